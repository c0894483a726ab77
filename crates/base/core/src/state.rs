use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::Weight;

/// The operator's wish for a backend.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum AdminState {
    /// Receives new work.
    #[default]
    Up,
    /// Keeps its work and receives no new work.
    Drain,
    /// Receives no work, and its present work may be cut off.
    Down,
}

/// The observed health of a backend.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum Health {
    /// Not checked yet, or not checked at all. Counts as healthy.
    #[default]
    Unknown,
    /// The last checks passed.
    Healthy,
    /// The last checks failed, or it was ejected for failing requests.
    Unhealthy,
}

/// Whether a backend may receive new work, and if not, the reason.
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

/// The eligibility that follows from the operator's wish, the health and the weight.
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn eligibility_follows_admin_state_health_and_weight() {
        use AdminState::{Down, Drain, Up};
        use Eligibility as E;
        use Health::{Healthy, Unhealthy, Unknown};
        // Admin state, health, and the results for weights 0, 1 and 1000.
        let table = [
            (Up, Unknown, [E::Draining, E::Eligible, E::Eligible]),
            (Up, Healthy, [E::Draining, E::Eligible, E::Eligible]),
            (Up, Unhealthy, [E::Draining, E::Unhealthy, E::Unhealthy]),
            (Drain, Unknown, [E::Draining; 3]),
            (Drain, Healthy, [E::Draining; 3]),
            (Drain, Unhealthy, [E::Draining; 3]),
            (Down, Unknown, [E::Down; 3]),
            (Down, Healthy, [E::Down; 3]),
            (Down, Unhealthy, [E::Down; 3]),
        ];
        for (admin, health, expected) in table {
            for (weight, expected) in [0, 1, Weight::MAX].into_iter().zip(expected) {
                let found = eligibility(admin, health, Weight::new(weight).unwrap());
                assert_eq!(found, expected, "{admin:?} {health:?} weight {weight}");
                assert_eq!(found.is_eligible(), expected == E::Eligible);
            }
        }
    }

    #[test]
    fn a_backend_with_default_state_health_and_weight_is_eligible() {
        let found = eligibility(AdminState::default(), Health::default(), Weight::default());
        assert_eq!(found, Eligibility::Eligible);
    }
}
