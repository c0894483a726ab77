use std::net::SocketAddr;
use std::sync::Arc;

use crate::{AdminState, Eligibility, Health, Weight, eligibility};

/// One real server of a pool.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Backend {
    /// The operators' name for it: the configured name, or its address.
    pub name: Arc<str>,
    /// The address at which it listens.
    pub address: SocketAddr,
    /// Its share of new work.
    pub weight: Weight,
    /// The operator's wish.
    pub admin: AdminState,
    /// The observed health.
    pub health: Health,
}

impl Backend {
    /// A backend with admin state up and unknown health.
    pub fn new(address: SocketAddr, weight: Weight) -> Backend {
        Backend {
            name: address.to_string().into(),
            address,
            weight,
            admin: AdminState::Up,
            health: Health::Unknown,
        }
    }

    /// Whether the backend may receive new work.
    pub fn eligibility(&self) -> Eligibility {
        eligibility(self.admin, self.health, self.weight)
    }
}
