use equipoise_core::load::MeasurementRefused;
use serde::{Deserialize, Serialize};

/// Refusal of a report that is not credible. No part of it is used, but it counts as a sign of
/// life.
#[derive(Clone, Debug, thiserror::Error, PartialEq)]
#[error("report refused: {what}")]
pub struct ReportRefused {
    /// The kind of fault, which is a metric's label.
    pub fault: Fault,
    /// Description of the fault.
    pub what: String,
}

/// A fault of a report.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Fault {
    /// A value of its load is not a percentage.
    Load,
    /// Another number is not finite, or is negative.
    Number,
    /// Too many pools, backends, peers or addresses.
    TooMany,
    /// A name is empty, too long, or has control characters.
    Name,
    /// The node's own name is not valid.
    Node,
    /// The number of members has reached its limit.
    TooManyMembers,
}

impl Fault {
    /// All faults, in the order of their numbers.
    pub const ALL: [Fault; 6] = [
        Fault::Load,
        Fault::Number,
        Fault::TooMany,
        Fault::Name,
        Fault::Node,
        Fault::TooManyMembers,
    ];

    /// The metric's label.
    pub fn label(self) -> &'static str {
        match self {
            Fault::Load => "load",
            Fault::Number => "number",
            Fault::TooMany => "too_many",
            Fault::Name => "name",
            Fault::Node => "node",
            Fault::TooManyMembers => "too_many_members",
        }
    }
}

impl From<MeasurementRefused> for ReportRefused {
    fn from(refused: MeasurementRefused) -> ReportRefused {
        ReportRefused { fault: Fault::Load, what: refused.to_string() }
    }
}
