/// State of a node for the names that it serves. An answer has the nodes of the first of these
/// states that any node has; nodes that are `Down` are never given.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum Standing {
    /// Answers have the node.
    #[default]
    Serving,
    /// The node takes no new clients, and its names have a shorter TTL. Given if no node of a name
    /// serves.
    Draining,
    /// Health checks fail. Given only if no node serves or drains, because a check may be wrong.
    Unhealthy,
    /// The node drains, and its health checks fail.
    DrainingUnhealthy,
    /// The operator set the node down: never given.
    Down,
}

impl Standing {
    /// Whether an operator or the plan drains the node.
    pub fn drains(self) -> bool {
        matches!(self, Standing::Draining | Standing::DrainingUnhealthy)
    }
}

/// Current state and share of a node.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct NodeState {
    /// State of the node.
    pub standing: Standing,
    /// Share relative to the other nodes: a weight or a planned probability. Not negative.
    pub share: f64,
}
