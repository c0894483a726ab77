use std::fmt;
use std::net::SocketAddr;
use std::sync::Arc;

use super::Role;

/// The other end of a connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Peer {
    /// A peer over the unix socket, as reported by the kernel (`SO_PEERCRED`).
    Unix {
        /// User id.
        uid: u32,
        /// Process id at the time of the connection.
        pid: Option<i32>,
    },
    /// A peer over TCP.
    Tcp {
        /// Its address and port.
        address: SocketAddr,
        /// Whether only this machine can reach the listener, in the clear. With TLS, a browser
        /// verifies that the certificate is for the page's host.
        loopback: bool,
    },
}

impl fmt::Display for Peer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Peer::Unix { pid: Some(pid), .. } => write!(f, "unix socket, process {pid}"),
            Peer::Unix { pid: None, .. } => f.write_str("unix socket"),
            Peer::Tcp { address, .. } => address.fmt(f),
        }
    }
}

/// Identity of a caller.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Who {
    /// The holder of the token with this name.
    Token(Arc<str>),
    /// The holder of the certificate of the client with this name.
    Client(Arc<str>),
    /// A user of this machine.
    User(u32),
    /// A signal to the process.
    Signal(&'static str),
    /// An unknown caller.
    Anonymous,
}

impl fmt::Display for Who {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Who::Token(name) => write!(f, "token:{name}"),
            Who::Client(name) => write!(f, "client:{name}"),
            Who::User(uid) => write!(f, "uid:{uid}"),
            Who::Signal(name) => write!(f, "signal:{name}"),
            Who::Anonymous => f.write_str("anonymous"),
        }
    }
}

/// Identity and role of a caller.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Caller {
    pub(crate) who: Who,
    /// Role of the caller; `None` permits nothing that needs a role.
    pub(crate) role: Option<Role>,
}
