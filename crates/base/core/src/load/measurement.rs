use std::fmt;

use serde::{Deserialize, Serialize};

use super::Percent;

/// A node's report as received from the network, unchecked.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Reported {
    /// CPU utilisation, per cent of all cores that the node may use.
    pub cpu: f64,
    /// Memory utilisation, per cent of what the node may use.
    pub memory: f64,
    /// Utilisation of the busier direction of the busiest interface, per cent of its link speed.
    /// Absent if the speed is unknown; it is never guessed.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub net: Option<f64>,
}

/// A checked report.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Measurement {
    /// CPU utilisation.
    pub cpu: Percent,
    /// Memory utilisation.
    pub memory: Percent,
    /// Network utilisation; `None` if there is no signal.
    pub net: Option<Percent>,
}

/// A resource that a node measures.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Signal {
    /// CPU time.
    Cpu,
    /// Memory.
    Memory,
    /// Network rate.
    Net,
}

/// The fault of a reported number.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Fault {
    /// NaN.
    NotANumber,
    /// Below zero.
    Negative,
    /// More than a sampler's jitter explains, or infinite.
    TooLarge,
}

/// Refusal of a report that is not credible. No part of it is used.
#[derive(Clone, Copy, Debug, thiserror::Error, PartialEq)]
#[error(
    "{signal} is {value}: {fault}; accepted: 0 to 100 per cent, and values up to {JITTER_MAX} count as 100. \
     The whole report is dropped; check the node's agent"
)]
pub struct MeasurementRefused {
    /// The first signal with a fault.
    pub signal: Signal,
    /// The fault.
    pub fault: Fault,
    /// The reported value.
    pub value: f64,
}

/// Largest value in per cent that counts as 100. A sampler reads its clock and its counter at two
/// instants, so a busy machine appears slightly above full.
pub const JITTER_MAX: f64 = 110.0;

impl Measurement {
    /// Checks a report.
    ///
    /// # Errors
    /// [`MeasurementRefused`] for the first signal that is NaN, negative or above [`JITTER_MAX`].
    pub fn checked(reported: &Reported) -> Result<Measurement, MeasurementRefused> {
        Ok(Measurement {
            cpu: check(Signal::Cpu, reported.cpu)?,
            memory: check(Signal::Memory, reported.memory)?,
            net: reported.net.map(|net| check(Signal::Net, net)).transpose()?,
        })
    }
}

fn check(signal: Signal, value: f64) -> Result<Percent, MeasurementRefused> {
    let fault = if value.is_nan() {
        Fault::NotANumber
    } else if value < 0.0 {
        Fault::Negative
    } else if value > JITTER_MAX {
        Fault::TooLarge
    } else {
        return Ok(Percent::nearest(value));
    };
    Err(MeasurementRefused { signal, fault, value })
}

/// Number of refused reports, by signal and fault.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Refusals {
    counts: [[u64; Fault::ALL.len()]; Signal::ALL.len()],
}

impl Refusals {
    /// Counts a refusal.
    pub fn count(&mut self, refused: &MeasurementRefused) {
        self.counts[refused.signal as usize][refused.fault as usize] += 1;
    }

    /// Every pair with its count, zeros included, in a fixed order, for the labels of a metric.
    pub fn iter(&self) -> impl Iterator<Item = (Signal, Fault, u64)> + '_ {
        Signal::ALL.into_iter().flat_map(move |signal| {
            let of = self.counts[signal as usize];
            Fault::ALL.into_iter().map(move |fault| (signal, fault, of[fault as usize]))
        })
    }

    /// The sum of all counts.
    pub fn total(&self) -> u64 {
        self.counts.iter().flatten().sum()
    }
}

impl Signal {
    /// All signals, in the order of their numbers.
    pub const ALL: [Signal; 3] = [Signal::Cpu, Signal::Memory, Signal::Net];
}

impl Fault {
    /// All faults, in the order of their numbers.
    pub const ALL: [Fault; 3] = [Fault::NotANumber, Fault::Negative, Fault::TooLarge];
}

impl fmt::Display for Signal {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Signal::Cpu => "cpu",
            Signal::Memory => "memory",
            Signal::Net => "net",
        })
    }
}

impl fmt::Display for Fault {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Fault::NotANumber => "not a number",
            Fault::Negative => "negative",
            Fault::TooLarge => "more than there is",
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_implausible_report_is_refused_and_counted() {
        let fine = Reported { cpu: 10.0, memory: 20.0, net: None };
        let rows = [
            (Reported { cpu: f64::NAN, ..fine }, Signal::Cpu, Fault::NotANumber),
            (Reported { cpu: -1.0, ..fine }, Signal::Cpu, Fault::Negative),
            (Reported { memory: 1e9, ..fine }, Signal::Memory, Fault::TooLarge),
            (Reported { memory: f64::INFINITY, ..fine }, Signal::Memory, Fault::TooLarge),
            (Reported { net: Some(f64::NEG_INFINITY), ..fine }, Signal::Net, Fault::Negative),
            (Reported { net: Some(110.1), ..fine }, Signal::Net, Fault::TooLarge),
        ];
        let mut refusals = Refusals::default();
        for (reported, signal, fault) in rows {
            let refused = Measurement::checked(&reported).unwrap_err();
            assert_eq!((refused.signal, refused.fault), (signal, fault), "{reported:?}");
            refusals.count(&refused);
        }
        assert_eq!(refusals.total(), 6);
        let of = |s, f| refusals.iter().find(|row| (row.0, row.1) == (s, f)).unwrap().2;
        assert_eq!(of(Signal::Memory, Fault::TooLarge), 2);
        assert_eq!(of(Signal::Net, Fault::NotANumber), 0);
    }

    #[test]
    fn a_value_slightly_above_100_counts_as_full() {
        let reported = Reported { cpu: 100.7, memory: 0.0, net: Some(110.0) };
        let measured = Measurement::checked(&reported).unwrap();
        assert_eq!((measured.cpu, measured.net), (Percent::FULL, Some(Percent::FULL)));
    }

    #[test]
    fn a_report_without_network_use_yields_no_network_signal() {
        let measured =
            Measurement::checked(&Reported { cpu: 1.0, memory: 2.0, net: None }).unwrap();
        assert_eq!(measured.net, None);
    }

    #[test]
    fn the_refusal_text_names_the_signal_value_and_accepted_range() {
        let reported = Reported { cpu: 1e9, ..Reported::default() };
        let text = Measurement::checked(&reported).unwrap_err().to_string();
        assert!(text.contains("cpu is 1000000000") && text.contains("0 to 100"), "{text}");
    }
}
