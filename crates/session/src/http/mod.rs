//! HTTP front doors: HTTP/1.0 and HTTP/1.1 over kept-open upstream sessions.
//!
//! The life of a request: [`connection`] reads its head, [`request`] checks it and writes the head that
//! goes upstream, [`exchange`] picks a backend and a session, [`attempt`] sends the request over it, [`pump`] moves the body, [`response`] checks
//! the backend's head and writes the client's; [`answer`] is what the proxy says itself.

mod answer;
mod attempt;
mod chunk;
mod connection;
mod exchange;
mod head;
mod mux;
mod pump;
mod request;
mod response;

use std::net::SocketAddr;
use std::rc::Rc;

use crate::deadline::Deadline;
use crate::socket::Socket;
use crate::worker::{ClientHashes, Door, Worker};
use connection::ClientConnection;
pub(crate) use mux::MuxSessions;

/// Serves one client connection to its end.
pub(crate) async fn serve(worker: Rc<Worker>, door: Rc<Door>, client: Socket, peer: SocketAddr) {
    let _task = worker.task();
    let _open = door.enter();
    let deadline = Deadline::of_this_task(&worker.deadlines).await;
    let hashes = ClientHashes::new(peer, door.view().config.listen);
    let connection = ClientConnection {
        worker,
        door,
        client: Rc::new(client),
        ticket: None,
        peer,
        hashes,
        deadline: Rc::new(deadline),
        input: None,
        request_end: None,
    };
    connection.run().await;
}
