//! The state of a process's controller.

use std::fmt;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// The controller of this process. A single machine has one if a pool asks for it; controllers of a
/// cluster always have one.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct ControllerStatus {
    /// Whether it runs and leads.
    pub state: ControllerState,
    /// The leader, as far as this process knows.
    pub leader: Option<String>,
    /// The newest plan, `TERM.GENERATION`; `null` before the first one.
    pub plan: Option<String>,
    /// Time since it was planned or arrived here. Without a plan, the time since a controller was
    /// asked for.
    pub plan_age_seconds: f64,
    /// Interval between plans.
    pub period_seconds: f64,
    /// The problem; `null` if there is none.
    pub problem: Option<String>,
    /// The remedy of the problem.
    pub remedy: Option<String>,
}

words! {
    /// State of a controller.
    ControllerState {
        /// It plans.
        Leads = "leads",
        /// Another controller plans.
        Follows = "follows",
        /// It runs, and knows no controller that plans.
        Vacant = "vacant",
        /// It does not run.
        Stopped = "stopped",
    }
}
