//! Where a request or connection would go, and why.
//!
//! In: the snapshot that the data plane follows, and a [`Question`]. Out: the decisions in their
//! order ([`DecisionStep`]). Each decision is made by the function that makes it for requests.
//! Nothing is counted, and no permit, turn or random number of a data thread is used.
//!
//! A scheduler that is not a hash has its state on each thread. Its shares are those of trial picks
//! by an instance of its own, with the loads of this moment.

mod step;

use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;
use std::time::Instant;

use crate::affinity::HashBy;
use crate::config::{Challenges, Protocol};
use crate::permits::Work;

pub use step::{
    AffinityStep, BackendStep, CertificateStep, DecisionStep, DispatchStep, DoorStep, MirrorStep,
    PoolStep, QueueStep, RouteStep,
};

/// A request or connection.
#[derive(Clone, Debug)]
pub struct Question {
    /// `Http`: a request, to a front door of TCP or HTTP. Otherwise a connection or datagram.
    pub protocol: Protocol,
    /// Name of the front door; `None`: one that listens on `address` and `port`.
    pub front_door: Option<String>,
    /// Address of the destination, if it is known.
    pub address: Option<IpAddr>,
    /// Port of the destination.
    pub port: u16,
    /// Address of the client.
    pub client: IpAddr,
    /// Port of the client, if it is known.
    pub client_port: Option<u16>,
    /// Whether the client speaks TLS; `None`: as the front door expects.
    pub tls: Option<bool>,
    /// The server name that the client's TLS asks for, in lower case.
    pub server_name: Option<String>,
    /// Head of the request as the client sends it, with its empty line.
    pub head: Vec<u8>,
    /// Explain each route that it does not meet, however many they are.
    pub all_routes: bool,
}

impl Question {
    /// The client, with port 0 if that is unknown.
    pub(crate) fn client(&self) -> SocketAddr {
        SocketAddr::new(self.client, self.client_port.unwrap_or(0))
    }
}

/// Explains by the state of one engine.
#[derive(Clone, Debug)]
pub struct Explainer {
    /// Start of the times in the state of backends.
    pub(crate) epoch: Instant,
    pub(crate) instance: Arc<str>,
    pub(crate) challenges: Challenges,
}

/// The pools of a request.
pub(crate) struct Goes {
    /// Indices in the snapshot, with their shares of requests like this one.
    pub(crate) pools: Vec<(usize, f64)>,
    /// The part by which one of several is chosen; `None`: there is one, or it is random.
    pub(crate) by: Option<HashBy>,
    /// The kind of permits that it takes.
    pub(crate) work: Work,
    /// Head of the request as it goes to a backend; empty without one.
    pub(crate) head: Vec<u8>,
}

/// Trial picks of a scheduler, and trial choices of a peer.
pub(crate) const TRIALS: u32 = 1000;
