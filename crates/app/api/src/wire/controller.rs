//! How the controller of a process does.

use std::fmt;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// The controller that this process is to run: on a machine of its own for pools that ask for one,
/// and on controllers of a cluster.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct ControllerStatus {
    /// Whether it runs, and what it does.
    pub state: ControllerState,
    /// The leader, as far as this process knows.
    pub leader: Option<String>,
    /// The newest plan, `TERM.GENERATION`; `null` before there is one.
    pub plan: Option<String>,
    /// Since it was planned or came here; since a controller was asked for if there is none.
    pub plan_age_seconds: f64,
    /// From one plan to the next.
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
        /// It runs, and knows of no controller that plans.
        Vacant = "vacant",
        /// It does not run.
        Stopped = "stopped",
    }
}
