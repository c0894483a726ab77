use equipoise_monitor::{Sample, Utilisation};
use serde::{Deserialize, Serialize};

use crate::{Fault, ReportRefused};

/// Per cent of the last 10 s in which some work of a node waited for a resource; `None` where its kernel does not say.
///
/// # Source
/// Linux, Documentation/accounting/psi.rst: `some avg10`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Pressure {
    /// Processors.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cpu: Option<f64>,
    /// Memory.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub memory: Option<f64>,
    /// Disks.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub io: Option<f64>,
}

impl Pressure {
    /// What the monitor saw.
    pub fn of(used: &Utilisation) -> Pressure {
        Pressure {
            cpu: used.cpu_pressure_percent,
            memory: used.memory_pressure_percent,
            io: used.io_pressure_percent,
        }
    }

    /// Whether nothing is known.
    pub(crate) fn is_unknown(&self) -> bool {
        *self == Pressure::default()
    }

    /// Whether it can be believed.
    pub(crate) fn check(&self) -> Result<(), ReportRefused> {
        for (what, percent) in [("cpu", self.cpu), ("memory", self.memory), ("io", self.io)] {
            check_percent(&format!("{what} pressure"), percent)?;
        }
        Ok(())
    }

    /// As the history has it, beside other signals.
    pub(crate) fn beside(self, sample: Sample) -> Sample {
        Sample {
            cpu_pressure_percent: self.cpu,
            memory_pressure_percent: self.memory,
            io_pressure_percent: self.io,
            ..sample
        }
    }
}

/// Refuses a signal that is no per cent.
pub(crate) fn check_percent(what: &str, percent: Option<f64>) -> Result<(), ReportRefused> {
    match percent.filter(|percent| !(0.0..=100.0).contains(percent)) {
        None => Ok(()),
        Some(percent) => {
            let what = format!("{what} is {percent}; accepted: 0 to 100 per cent");
            Err(ReportRefused { fault: Fault::Load, what })
        }
    }
}
