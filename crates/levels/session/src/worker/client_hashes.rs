//! The hashes by which a client's requests are spread.

use std::net::{IpAddr, SocketAddr};

use equipoise_core::{Ask, Loads};

use crate::config::PoolOptions;

/// The hashes that a scheduler may use, computed once per connection.
#[derive(Clone, Copy)]
pub(crate) struct ClientHashes {
    pub(super) address: IpAddr,
    flow: u64,
    pub(crate) source: u64,
    /// The hash of the part of the request that `hash-by` of its pool names.
    pub(crate) key: Option<u64>,
    /// The value of the request's sticky cookie.
    pub(crate) sticky: Option<u64>,
}

impl ClientHashes {
    pub(crate) fn new(client: SocketAddr, local: SocketAddr) -> ClientHashes {
        use equipoise_core::hash;
        ClientHashes {
            address: client.ip(),
            flow: hash::flow_hash(client, local, crate::FLEET_SEED),
            source: hash::source_hash(client.ip(), crate::FLEET_SEED),
            key: None,
            sticky: None,
        }
    }

    /// Reads the parts of a request by which its pool, with these options, picks a backend. `head`
    /// is as it goes to a backend.
    pub(crate) fn read(&mut self, options: Option<&PoolOptions>, head: &[u8]) {
        self.key = options.and_then(|options| options.hash_by.hash(head));
        let cookie = options.and_then(|options| options.sticky.as_ref());
        self.sticky = cookie.and_then(|cookie| cookie.value(head));
    }

    /// The input of a scheduler's pick for this client.
    #[inline]
    pub(crate) fn ask<'a>(
        &self,
        avoid: Option<usize>,
        loads: &'a dyn Loads,
        rng: &'a mut dyn rand::Rng,
    ) -> Ask<'a> {
        let source_hash = self.key.unwrap_or(self.source);
        Ask { flow_hash: self.flow, source_hash, avoid, loads, rng }
    }
}
