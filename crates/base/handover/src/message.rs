//! The messages of a handover.

use std::net::{IpAddr, SocketAddr};

use equipoise_core::{AdminState, Health};
use serde::{Deserialize, Serialize};

use crate::sockets::SocketName;

/// Version of the messages. A successor of another version refuses, so that the running process
/// continues.
pub const VERSION: u32 = 1;

/// A message of a handover; the table of the [crate](crate) has the order.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum HandoverMessage {
    /// Sockets of this name, which come with the message. Messages of one name continue each other.
    Sockets(SocketName),
    /// A process that was replaced earlier and still serves clients. The descriptors of its
    /// [`Departing`](crate::Departing) come with the message.
    Earlier(Replaced),
    /// All sockets are sent.
    Prepare {
        /// [`VERSION`].
        version: u32,
    },
    /// The successor has read its configuration, and has every socket that it needs.
    Prepared,
    /// The successor gives up.
    Failed {
        /// The reason.
        error: String,
    },
    /// The running process has released what only one process can have.
    Released {
        /// States of the backends of all pools.
        backends: Vec<BackendState>,
        /// Backends that operators added.
        #[serde(default)]
        added: Vec<AddedBackend>,
        /// Keys of session tickets.
        #[serde(default)]
        ticket_keys: TicketKeysText,
    },
    /// The successor can serve.
    Ready,
    /// The running process accepts nothing any more. The successor has replaced it. The descriptors
    /// of its [`Departing`](crate::Departing) come with the message.
    Committed(Replaced),
    /// Clients of a UDP front door. Upstream sockets come with the message, in the order of the
    /// clients that have one.
    Clients {
        /// The front door's address.
        door: SocketAddr,
        /// Index of the listening socket in its group.
        socket: usize,
        /// The clients.
        clients: Vec<UdpClient>,
    },
    /// All clients are sent: the successor accepts from now on.
    Begin,
}

/// Keys of session tickets as JSON, or an empty text. Its `Debug` does not show it.
#[derive(Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct TicketKeysText(pub String);

impl std::fmt::Debug for TicketKeysText {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("TicketKeysText")
    }
}

/// A replaced process that still serves clients.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Replaced {
    /// Its process id.
    pub pid: u32,
    /// Time of its replacement, in seconds since 1970.
    pub since_unix_seconds: u64,
}

/// The state of a backend that is not in the configuration.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct BackendState {
    /// Its pool.
    pub pool: String,
    /// Its address, which identifies it in the pool.
    pub address: SocketAddr,
    /// The operator's state.
    pub admin: AdminState,
    /// The operator's weight.
    pub weight: Option<u16>,
    /// The operator's concurrency limit.
    #[serde(default)]
    pub concurrency: Option<u32>,
    /// The verdict of its checks.
    pub health: Health,
    /// Remaining time of an ejection.
    pub ejected_ms: Option<u64>,
}

/// A backend that an operator added to a pool of the configuration.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct AddedBackend {
    /// The pool.
    pub pool: String,
    /// Its name, unique in its pool.
    pub name: String,
    /// `IP:PORT` or `HOST:PORT`.
    pub address: String,
    /// Its share.
    pub weight: u16,
    /// It gets new work only while no other kind of backend can take any.
    pub backup: bool,
    /// Its concurrency limit; `None`: the pool's.
    pub concurrency: Option<u32>,
    /// It outlives the process.
    #[serde(default)]
    pub keep: bool,
    /// It is removed as soon as it has no work.
    pub is_leaving: bool,
}

/// A client of a UDP front door. Times are before the message.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct UdpClient {
    /// Its address.
    pub peer: SocketAddr,
    /// The address of ours that it sends to, if the front door has several.
    pub local: Option<IpAddr>,
    /// Its pool and its backend's address, if a socket comes with it.
    pub upstream: Option<(String, SocketAddr)>,
    /// Time since its last datagram.
    pub heard_ms: u64,
    /// Time since its first datagram.
    pub first_heard_ms: u64,
    /// Its address is not forged.
    pub is_proven: bool,
    /// Datagrams that it has sent.
    pub requests: u64,
    /// Datagrams that were sent to it.
    pub responses: u64,
    /// Bytes that it has sent.
    pub bytes_in: u64,
    /// Bytes that were sent to it.
    pub bytes_out: u64,
    /// Its end will be logged.
    pub is_logged: bool,
}
