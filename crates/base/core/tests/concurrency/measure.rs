//! The learner in the simulator, and the goodput that is possible.

use std::time::Duration;

use equipoise_core::concurrency::{Learner, Load, Sample};

use super::backend::Backend;
use super::simulator::{Limiter, Outcomes, Setting, simulate};

impl Limiter for Learner {
    fn limit(&self) -> u32 {
        Learner::limit(self)
    }

    fn finished(&mut self, samples: &[Sample], _: &[u32]) {
        self.observe(samples);
    }

    fn step(&mut self, load: Load) {
        Learner::step(self, load);
    }

    fn describe(&self) -> String {
        format!("{self:?}")
    }
}

pub(crate) fn learner(setting: &Setting) -> Box<dyn Limiter> {
    Box::new(Learner::new(Duration::from_secs_f64(setting.wait)))
}

/// Simulates with a learner for each balancer.
pub(crate) fn learned(setting: &Setting) -> Outcomes {
    let mut limiters: Vec<_> = setting.skews.iter().map(|_| learner(setting)).collect();
    simulate(setting, &mut limiters)
}

/// Answers a second that the backend can give or that are asked for, whichever is less.
pub(crate) fn possible(backend: &Backend, times: f64, from: f64, to: f64) -> f64 {
    let at = |second: u32| {
        let now = f64::from(second);
        ((backend.scale)(now) / (backend.slowdown)(now)).min(times) * backend.capacity
    };
    (from as u32..to as u32).map(at).sum::<f64>() / (to - from)
}
