use equipoise_monitor::{Sample, Utilisation};
use serde::{Deserialize, Serialize};

use crate::fault::{Fault, ReportRefused};

/// Per cent of the last 10 s in which some work of a node waited for a resource; `None` if its
/// kernel does not report it.
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
    /// The pressure in a sample of the monitor.
    pub fn of(used: &Utilisation) -> Pressure {
        Pressure {
            cpu: used.cpu_pressure_percent,
            memory: used.memory_pressure_percent,
            io: used.io_pressure_percent,
        }
    }

    /// True if no value is known.
    pub(crate) fn is_unknown(&self) -> bool {
        *self == Pressure::default()
    }

    /// Checks that the values are percentages.
    pub(crate) fn check(&self) -> Result<(), ReportRefused> {
        for (what, percent) in [("cpu", self.cpu), ("memory", self.memory), ("io", self.io)] {
            check_percent(&format!("{what} pressure"), percent)?;
        }
        Ok(())
    }

    /// Adds the pressure to a sample of the history.
    pub(crate) fn beside(self, sample: Sample) -> Sample {
        Sample {
            cpu_pressure_percent: self.cpu,
            memory_pressure_percent: self.memory,
            io_pressure_percent: self.io,
            ..sample
        }
    }
}

/// Refuses a value outside 0 to 100.
pub(crate) fn check_percent(what: &str, percent: Option<f64>) -> Result<(), ReportRefused> {
    match percent.filter(|percent| !(0.0..=100.0).contains(percent)) {
        None => Ok(()),
        Some(percent) => {
            let what = format!("{what} is {percent}; accepted: 0 to 100 per cent");
            Err(ReportRefused { fault: Fault::Load, what })
        }
    }
}
