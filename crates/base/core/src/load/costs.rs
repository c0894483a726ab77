use super::{ClassRates, PerClass, RequestClass};

/// The cost of a request of each class to a node, learnt from how its CPU utilisation follows the
/// mix of requests.
///
/// The CPU time of one request is not measured. Measured are the CPU utilisation of the whole node
/// and the number of requests of each class. `cpu = idle + sum(rate * cost)` is solved for the
/// costs as the mix changes. If the rates of some classes always change together, the classes share
/// their cost. No more can be known, and no more is needed to choose between classes. Bytes are
/// counted per class, so bytes per request are an average.
///
/// # Source
/// A random-walk Kalman filter, which is recursive least squares with a forgetting that cannot wind
/// up (Haykin, Adaptive Filter Theory, chapters 9 and 10). Deviates: costs vary in proportion to
/// themselves, so that the unit of a rate does not matter; negative costs become zero; the variance
/// never exceeds its initial value.
#[derive(Clone, Debug, PartialEq)]
pub struct ClassCosts {
    /// CPU per cent of the node for one request a second of each class; last, the idle CPU in per
    /// cent.
    estimate: [f64; SIZE],
    covariance: [[f64; SIZE]; SIZE],
    bytes: PerClass<f64>,
    /// Upper limit of idle CPU in per cent: the utilisation when no requests came, plus a little
    /// for every period since.
    idle_max: f64,
}

const CLASSES: usize = RequestClass::ALL.len();
const SIZE: usize = CLASSES + 1;

/// Variance of the measured CPU utilisation around the model's, in per cent squared.
const NOISE: f64 = 4.0;
/// Initial variances, by typical costs of the classes: a light request costs up to three hundredths
/// of a per cent, a transfer a third to a half, a computing request one, idling five. With equal
/// variances, the first errors would be attributed mostly to the most frequent class; with much
/// smaller ones, to idling.
const UNKNOWN: [f64; SIZE] = [1e-3, 0.1, 0.3, 1.0, 25.0];
/// Standard deviation of a cost's change from one measurement to the next, as a part of the cost.
const WANDER: f64 = 0.005;
/// Least standard deviation, so that a cost of zero can rise again. Idle CPU, the last, includes
/// other programs and may change at any time.
const WANDER_MIN: [f64; SIZE] = [1e-6, 1e-6, 1e-6, 1e-6, 0.3];
/// CPU utilisation from which it shows its limit and not the demand.
const SATURATED: f64 = 97.0;
/// Increase of the limit of idle CPU per period since the last period without requests, in per
/// cent. Requests are counted in one period and served in the next. This noise in the rates makes
/// their costs too low, and idle CPU too high.
const IDLE_RISE: f64 = 0.05;
/// Weight of a new value in the average of bytes per request.
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
    /// Takes a period in which the node served `rates` and used `cpu` per cent.
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

    /// CPU of one request a second in per cent of the node. Times cores and ten, it is milliseconds
    /// per request.
    pub fn cpu_percent(&self, class: RequestClass) -> f64 {
        self.estimate[class as usize]
    }

    /// CPU that the node uses without requests, in per cent.
    pub fn idle_cpu_percent(&self) -> f64 {
        self.estimate[CLASSES]
    }

    /// Bytes that one request moves, in both directions.
    pub fn bytes(&self, class: RequestClass) -> f64 {
        self.bytes[class]
    }

    /// True if any cost is known.
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
        // At least the noise: at rates of millions, the subtraction below loses its last digits.
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
