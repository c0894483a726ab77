use serde::{Deserialize, Serialize};

use super::Percent;

/// The weight of each resource in a node's load.
///
/// # Source
/// TLLB ("Two-Layer Load Balancing for the Onedata system"):
/// `L1 = (alpha*net + beta*cpu + gamma*mem) / (alpha + beta + gamma)`, and L2 is the same without
/// the network. Deviates: a missing signal is left out of numerator and denominator, so that a node
/// with unknown link speed is compared by its other signals.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Coefficients {
    /// alpha.
    pub net: f64,
    /// beta.
    pub cpu: f64,
    /// gamma.
    pub memory: f64,
}

/// Invalid coefficients.
#[derive(Clone, Copy, Debug, thiserror::Error, PartialEq)]
pub enum CoefficientsRefused {
    /// A coefficient is negative or not finite.
    #[error("load.{name} is {value}; accepted: a number of 0 or more")]
    Value {
        /// The name of the coefficient.
        name: &'static str,
        /// Its value.
        value: f64,
    },
    /// L2 would be zero divided by zero.
    #[error("load.cpu and load.memory are both 0; the load without the network needs one of them")]
    NothingButNet,
}

/// Utilisation of each resource in per cent. Above 100 only for work that is offered to a node and
/// not done there.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Signals {
    /// CPU.
    pub cpu: f64,
    /// Memory.
    pub memory: f64,
    /// Network; `None` if there is no signal.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub net: Option<f64>,
}

impl Default for Coefficients {
    /// For front nodes limited by their network: TLLB's dominating alpha.
    fn default() -> Self {
        Coefficients { net: 2.0, cpu: 1.0, memory: 0.5 }
    }
}

impl Coefficients {
    /// Returns the coefficients if they are valid.
    ///
    /// # Errors
    /// [`CoefficientsRefused`] names the first invalid one.
    pub fn checked(self) -> Result<Coefficients, CoefficientsRefused> {
        for (name, value) in [("net", self.net), ("cpu", self.cpu), ("memory", self.memory)] {
            if !(value.is_finite() && value >= 0.0) {
                return Err(CoefficientsRefused::Value { name, value });
            }
        }
        if self.cpu + self.memory > 0.0 {
            Ok(self)
        } else {
            Err(CoefficientsRefused::NothingButNet)
        }
    }

    /// L1, the load in status and metrics. Shares follow the part of it that moves with requests.
    pub fn l1(&self, signals: &Signals) -> Percent {
        let (net, of_net) = signals.net.map_or((0.0, 0.0), |net| (self.net * net, self.net));
        let sum = net + self.cpu * signals.cpu + self.memory * signals.memory;
        Percent::nearest(sum / (of_net + self.cpu + self.memory))
    }

    /// L2, the load that the dispatch level uses. It has no network part, because delegation does
    /// not relieve a network. In per cent; above 100 if the signals are.
    pub fn l2(&self, signals: &Signals) -> f64 {
        self.l2_of_cpu(signals.cpu) + self.l2_of_memory(signals.memory)
    }

    /// The CPU part of L2, which moves with requests.
    pub fn l2_of_cpu(&self, cpu: f64) -> f64 {
        self.cpu * cpu / (self.cpu + self.memory)
    }

    /// The memory part of L2, which does not move with a request.
    pub fn l2_of_memory(&self, memory: f64) -> f64 {
        self.memory * memory / (self.cpu + self.memory)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const PAPER: Coefficients = Coefficients { net: 2.0, cpu: 1.0, memory: 0.5 };

    #[test]
    fn l1_is_the_papers_weighted_mean() {
        let signals = Signals { net: Some(70.0), cpu: 35.0, memory: 14.0 };
        assert_eq!(PAPER.l1(&signals).get(), (140.0 + 35.0 + 7.0) / 3.5);
    }

    #[test]
    fn a_missing_network_leaves_both_sides_of_the_line() {
        let signals = Signals { net: None, cpu: 30.0, memory: 60.0 };
        assert_eq!(PAPER.l1(&signals).get(), 40.0);
        assert_eq!(PAPER.l1(&signals).get(), PAPER.l2(&signals));
    }

    #[test]
    fn l2_does_not_see_the_network() {
        let at = |net| PAPER.l2(&Signals { net, cpu: 30.0, memory: 60.0 });
        assert_eq!(at(Some(100.0)), at(None));
        assert_eq!(at(None), PAPER.l2_of_cpu(30.0) + PAPER.l2_of_memory(60.0));
    }

    #[test]
    fn a_dominating_alpha_favours_free_networks() {
        let busy_net = Signals { net: Some(90.0), cpu: 10.0, memory: 10.0 };
        let busy_cpu = Signals { net: Some(10.0), cpu: 90.0, memory: 10.0 };
        assert!(PAPER.l1(&busy_net) > PAPER.l1(&busy_cpu));
    }

    #[test]
    fn coefficients_that_make_no_load_are_refused() {
        use CoefficientsRefused as R;
        let nothing = Coefficients { net: 1.0, cpu: 0.0, memory: 0.0 };
        assert_eq!(nothing.checked(), Err(R::NothingButNet));
        for value in [-1.0, f64::INFINITY] {
            let wrong = Coefficients { cpu: value, ..PAPER };
            assert_eq!(wrong.checked(), Err(R::Value { name: "cpu", value }));
        }
        assert!(Coefficients { net: f64::NAN, ..PAPER }.checked().is_err());
        assert_eq!(PAPER.checked(), Ok(PAPER));
    }
}
