use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::Weight;

/// What the operator wants of a backend.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum AdminState {
    /// Takes new work.
    #[default]
    Up,
    /// Keeps what it has, takes nothing new.
    Drain,
    /// Takes nothing, and what it has may be cut.
    Down,
}

/// What the health checks see of a backend.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum Health {
    /// Not checked yet, or not checked at all: taken for healthy.
    #[default]
    Unknown,
    /// The last checks passed.
    Healthy,
    /// The last checks failed, or it was ejected for failing requests.
    Unhealthy,
}

/// Whether a backend may be given new work, and if not, why not.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Eligibility {
    /// May be picked.
    Eligible,
    /// [`AdminState::Drain`], or a weight of zero.
    Draining,
    /// [`AdminState::Down`].
    Down,
    /// [`Health::Unhealthy`].
    Unhealthy,
}

/// Computes eligibility from what is wanted and what is seen.
pub fn eligibility(admin: AdminState, health: Health, weight: Weight) -> Eligibility {
    match (admin, health) {
        (AdminState::Down, _) => Eligibility::Down,
        (AdminState::Drain, _) => Eligibility::Draining,
        (AdminState::Up, _) if weight.get() == 0 => Eligibility::Draining,
        (AdminState::Up, Health::Unhealthy) => Eligibility::Unhealthy,
        (AdminState::Up, Health::Healthy | Health::Unknown) => Eligibility::Eligible,
    }
}

impl Eligibility {
    /// Whether the backend may be picked.
    pub fn is_eligible(self) -> bool {
        self == Eligibility::Eligible
    }
}
