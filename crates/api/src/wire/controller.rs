//! How the controller of a process does.

use std::fmt;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// The controller that this process is to run: on a machine of its own for pools that ask for one, and on controllers of a
/// cluster.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct ControllerStatus {
    /// Whether it runs, and what it does.
    pub state: ControllerState,
    /// Who leads, as far as is known here.
    pub leader: Option<String>,
    /// The newest plan, `TERM.GENERATION`; `null` before there is one.
    pub plan: Option<String>,
    /// Since it was planned or came here; since a controller was asked for if there is none.
    pub plan_age_seconds: f64,
    /// From one plan to the next.
    pub period_seconds: f64,
    /// What does not work; `null` if all is well.
    pub problem: Option<String>,
    /// What to do about that.
    pub remedy: Option<String>,
}

words! {
    /// What a controller does.
    ControllerState {
        /// It plans.
        Leads = "leads",
        /// Another controller plans.
        Follows = "follows",
        /// It runs, and as far as it knows nobody plans.
        Vacant = "vacant",
        /// It does not run.
        Stopped = "stopped",
    }
}
