use equipoise_core::load::NodeLoad;

use crate::inventory::NodeSpec;
use crate::plan::NodePlan;

/// A node with its measurements and its plan. Rows are ordered by name.
pub(crate) struct Row<'a> {
    pub(crate) name: &'a str,
    pub(crate) spec: &'a NodeSpec,
    pub(crate) missed_beats: f64,
    pub(crate) plan: NodePlan,
    /// Its measured load; `None` before it reported.
    pub(crate) load: Option<&'a NodeLoad>,
    /// Its previous plan.
    pub(crate) was: Option<&'a NodePlan>,
}
