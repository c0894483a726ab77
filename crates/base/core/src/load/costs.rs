use super::{ClassRates, PerClass, RequestClass};

/// What a request of each class costs a node, learnt from how its CPU use follows the mix of requests.
///
/// The CPU that one request took is not measured; what is measured is the CPU of the whole node and how many requests
/// of each class it did. `cpu = idle + sum(rate * cost)` is solved for the costs as the mix changes. Classes whose
/// rates always move together share their cost between them, which is all that can be known, and all that choosing
/// between them needs. Bytes are counted per class, so that theirs is an average.
///
/// # Source
/// A random-walk Kalman filter, that is recursive least squares with a forgetting that cannot wind up (Haykin,
/// Adaptive Filter Theory, chapters 9 and 10). Deviates: costs wander in proportion to themselves, so that the unit
/// of a rate does not matter; those below zero are put to zero; the variance never exceeds what it began with.
#[derive(Clone, Debug, PartialEq)]
pub struct ClassCosts {
    /// CPU per cent of the node for one request a second of each class; then the idle CPU in per cent.
    estimate: [f64; SIZE],
    covariance: [[f64; SIZE]; SIZE],
    bytes: PerClass<f64>,
    /// Idling takes no more than this, per cent: what was used when nothing came, and a little more for every period since.
    idle_max: f64,
}

const CLASSES: usize = RequestClass::ALL.len();
const SIZE: usize = CLASSES + 1;

/// Variance of a measured CPU use about the model's, per cent squared.
const NOISE: f64 = 4.0;
/// Variance before anything is known, by what the classes mean: a light request may cost three hundredths of a per
/// cent, a transfer a third to a half, a computing one a whole; idling five. Alike, they would put most of the first
/// surprises on whatever comes most often; much smaller, on idling.
const UNKNOWN: [f64; SIZE] = [1e-3, 0.1, 0.3, 1.0, 25.0];
/// Part of itself by which a cost may wander from one measurement to the next, standard deviation.
const WANDER: f64 = 0.005;
/// The least that it may, so that a cost of zero can rise again. Idle use, last, is also other programs' and may change
/// at any time.
const WANDER_MIN: [f64; SIZE] = [1e-6, 1e-6, 1e-6, 1e-6, 0.3];
/// From this on the CPU measures its own bound and not the demand.
const SATURATED: f64 = 97.0;
/// Points by which idling may take more than when nothing came, for every period since. Requests are counted in one period
/// and done in the next: by that noise in the rates their costs come out too low, and idling too high.
const IDLE_RISE: f64 = 0.05;
/// Part of a new average that bytes per request take over.
const BYTES_GAIN: f64 = 0.1;

impl Default for ClassCosts {
    fn default() -> Self {
        let mut covariance = [[0.0; SIZE]; SIZE];
        for (at, row) in covariance.iter_mut().enumerate() {
            row[at] = UNKNOWN[at];
        }
        let estimate = [0.0; SIZE];
        ClassCosts { estimate, covariance, bytes: PerClass::default(), idle_max: 100.0 }
    }
}

impl ClassCosts {
    /// Takes a period in which the node did `rates` and used `cpu` per cent.
    pub fn observe(&mut self, cpu: f64, rates: &ClassRates) {
        for class in RequestClass::ALL {
            let done = rates[class].done();
            if done > 0.0 {
                let (now, mean) = (rates[class].bytes / done, &mut self.bytes[class]);
                *mean = if *mean == 0.0 { now } else { *mean + BYTES_GAIN * (now - *mean) };
            }
        }
        let any = RequestClass::ALL.iter().any(|class| rates[*class].done() > 0.0);
        self.idle_max = if any { self.idle_max + IDLE_RISE } else { cpu };
        if any && cpu < SATURATED {
            let [light, small, large, computing] =
                RequestClass::ALL.map(|class| rates[class].done());
            self.learn(cpu, &[light, small, large, computing, 1.0]);
        }
    }

    /// CPU that one request a second takes: per cent of the node. Times cores and ten, it is milliseconds a request.
    pub fn cpu_percent(&self, class: RequestClass) -> f64 {
        self.estimate[class as usize]
    }

    /// CPU that the node uses without requests, per cent.
    pub fn idle_cpu_percent(&self) -> f64 {
        self.estimate[CLASSES]
    }

    /// Bytes that one request moves, both ways.
    pub fn bytes(&self, class: RequestClass) -> f64 {
        self.bytes[class]
    }

    /// Whether any cost is known.
    pub fn is_known(&self) -> bool {
        self.estimate[..CLASSES].iter().any(|cost| *cost > 0.0)
    }

    fn learn(&mut self, cpu: f64, done: &[f64; SIZE]) {
        let mut seen = [0.0; SIZE];
        for (at, row) in self.covariance.iter_mut().enumerate() {
            let wander = (WANDER * self.estimate[at]).max(WANDER_MIN[at]);
            row[at] = (row[at] + wander * wander).min(UNKNOWN[at]);
            seen[at] = dot(row, done);
        }
        let surprise = cpu - dot(&self.estimate, done);
        // Not below the noise: at rates of millions the subtraction below loses its last digits.
        let variance = NOISE + dot(&seen, done).max(0.0);
        for at in 0..SIZE {
            let gain = seen[at] / variance;
            self.estimate[at] = (self.estimate[at] + gain * surprise).max(0.0);
            for (known, seen) in self.covariance[at].iter_mut().zip(seen) {
                *known -= gain * seen;
            }
        }
        self.estimate[CLASSES] = self.estimate[CLASSES].min(self.idle_max);
    }
}

fn dot(a: &[f64; SIZE], b: &[f64; SIZE]) -> f64 {
    a.iter().zip(b).map(|(a, b)| a * b).sum()
}

#[cfg(test)]
mod tests {
    use rand::rngs::StdRng;
    use rand::{RngExt, SeedableRng};

    use super::*;
    use crate::load::ClassRate;

    const COSTS: [f64; CLASSES] = [0.004, 0.02, 0.05, 1.5];
    const BYTES: [f64; CLASSES] = [200.0, 4e3, 8e6, 1e3];
    const LARGEST_RATES: [f64; CLASSES] = [2000.0, 600.0, 60.0, 20.0];

    fn period(rng: &mut StdRng, costs: &[f64; CLASSES]) -> (f64, ClassRates) {
        let rates = ClassRates::from_fn(|class| {
            let arrived = rng.random_range(0.0..LARGEST_RATES[class as usize]);
            let bytes = arrived * BYTES[class as usize];
            ClassRate { arrived, bytes, ..ClassRate::default() }
        });
        let at = |class: RequestClass| costs[class as usize] * rates[class].arrived;
        let cpu = 6.0 + RequestClass::ALL.iter().map(|class| at(*class)).sum::<f64>();
        (cpu + rng.random_range(-2.0..2.0), rates)
    }

    fn assert_known(learnt: &ClassCosts, costs: &[f64; CLASSES]) {
        for class in RequestClass::ALL {
            let (found, is) = (learnt.cpu_percent(class), costs[class as usize]);
            assert!((found - is).abs() < 0.15 * is, "{class}: learnt {found}, is {is}");
        }
    }

    #[test]
    fn costs_are_learnt_from_changing_mixes() {
        let mut rng = StdRng::seed_from_u64(7);
        let mut learnt = ClassCosts::default();
        assert!(!learnt.is_known());
        for _ in 0..1000 {
            let (cpu, rates) = period(&mut rng, &COSTS);
            learnt.observe(cpu, &rates);
        }
        assert_known(&learnt, &COSTS);
        assert!((learnt.idle_cpu_percent() - 6.0).abs() < 2.0, "{learnt:?}");
        for class in RequestClass::ALL {
            assert!(
                (learnt.bytes(class) - BYTES[class as usize]).abs() < 1e-6 * learnt.bytes(class)
            );
        }
    }

    #[test]
    fn a_new_version_that_costs_more_is_learnt_anew() {
        let mut rng = StdRng::seed_from_u64(8);
        let mut learnt = ClassCosts::default();
        let dearer = [0.004, 0.04, 0.05, 1.5];
        for costs in [&COSTS, &dearer] {
            for _ in 0..3000 {
                let (cpu, rates) = period(&mut rng, costs);
                learnt.observe(cpu, &rates);
            }
        }
        assert_known(&learnt, &dearer);
    }

    #[test]
    fn a_mix_that_never_changes_makes_no_cost_absurd() {
        let mut learnt = ClassCosts::default();
        let rate = ClassRate { arrived: 10.0, ..ClassRate::default() };
        let rates = ClassRates { light: rate, computing: rate, ..ClassRates::default() };
        for _ in 0..10_000 {
            learnt.observe(40.0, &rates);
        }
        let sum = 10.0
            * (learnt.cpu_percent(RequestClass::Light)
                + learnt.cpu_percent(RequestClass::Computing));
        assert!((sum + learnt.idle_cpu_percent() - 40.0).abs() < 1.0, "{learnt:?}");
        assert_eq!(learnt.cpu_percent(RequestClass::LargeTransfer), 0.0);
    }

    #[test]
    fn a_saturated_cpu_teaches_nothing() {
        let mut learnt = ClassCosts::default();
        let rate = ClassRate { arrived: 1e6, ..ClassRate::default() };
        learnt.observe(100.0, &ClassRates { light: rate, ..ClassRates::default() });
        assert!(!learnt.is_known());
    }
}
