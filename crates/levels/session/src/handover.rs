//! The clients of UDP front doors that a process gives to its successor.

use std::net::SocketAddr;
use std::os::fd::OwnedFd;

use equipoise_handover::UdpClient;

/// A client, and the socket through which it reaches its backend.
pub type GivenClient = (UdpClient, Option<OwnedFd>);

/// Clients of one listening socket of a UDP front door.
#[derive(Debug)]
pub struct UdpHandover {
    /// The front door's address.
    pub door: SocketAddr,
    /// Index of the socket in its group.
    pub socket: usize,
    /// The clients.
    pub clients: Vec<GivenClient>,
}

/// The clients of one task.
pub(crate) struct GivenClients {
    pub(crate) socket: usize,
    pub(crate) clients: Vec<GivenClient>,
}
