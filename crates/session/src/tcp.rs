//! TCP front doors.

use std::net::SocketAddr;
use std::rc::Rc;

use crate::socket::Socket;
use crate::worker::{Door, Worker};

/// Serves one client connection to its end.
pub(crate) async fn serve(worker: Rc<Worker>, door: Rc<Door>, client: Socket, peer: SocketAddr) {
    let _ = (worker, door, client, peer);
}
