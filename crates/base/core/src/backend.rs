use std::net::SocketAddr;
use std::sync::Arc;

use crate::{AdminState, Eligibility, Health, Weight, eligibility};

/// One real server of a pool.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Backend {
    /// The name operators use for it; its address unless the configuration names it.
    pub name: Arc<str>,
    /// Where it listens.
    pub address: SocketAddr,
    /// Its share.
    pub weight: Weight,
    /// What is wanted of it.
    pub admin: AdminState,
    /// What is seen of it.
    pub health: Health,
}

impl Backend {
    /// A backend that is wanted up, of unknown health.
    pub fn new(address: SocketAddr, weight: Weight) -> Backend {
        Backend {
            name: address.to_string().into(),
            address,
            weight,
            admin: AdminState::Up,
            health: Health::Unknown,
        }
    }

    /// Whether it may be given new work.
    pub fn eligibility(&self) -> Eligibility {
        eligibility(self.admin, self.health, self.weight)
    }
}
