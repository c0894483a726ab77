use std::net::SocketAddr;
use std::sync::Arc;

use equipoise_core::{AdminState, Health, Weight};

use super::inventory::{BackendEntry, Inventory, PoolEntry};
use crate::config::Place;

/// A pool as it is wanted and seen, for levels that send to backends in their own way.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PoolState {
    /// Its name.
    pub name: Arc<str>,
    /// In configured order, eligible or not.
    pub backends: Vec<BackendState>,
}

/// A backend as it is wanted and seen.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct BackendState {
    /// Its name.
    pub name: Arc<str>,
    /// Where it listens, or what identifies it if `place` says otherwise.
    pub address: SocketAddr,
    /// Where it is reached.
    pub place: Place,
    /// Of a host name's addresses, those that its checks stay with, at most one of each family;
    /// empty until a check passed.
    pub checked_at: Vec<SocketAddr>,
    /// The weight that holds: planned by load, the operator's, or else the configured one.
    pub weight: Weight,
    /// Its desired state.
    pub admin: AdminState,
    /// Its health by checks, without ejections: these follow from the session level's own traffic.
    pub health: Health,
}

impl Inventory {
    pub(crate) fn pool_states(&self) -> Vec<PoolState> {
        let backend = |backend: &BackendEntry| BackendState {
            name: backend.config.name.clone(),
            address: backend.config.address,
            place: backend.config.place.clone(),
            checked_at: backend.checked_at.clone(),
            weight: backend.weight(),
            admin: backend.admin,
            health: backend.verdict(),
        };
        let pool = |pool: &PoolEntry| PoolState {
            name: pool.settings.name.clone(),
            backends: pool.backends.iter().map(backend).collect(),
        };
        self.pools.iter().map(pool).collect()
    }
}
