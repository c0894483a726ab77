//! Servers of others: nginx, HAProxy, openssl.

use std::net::{SocketAddr, TcpStream};
use std::process::{Child, Command, Stdio};

use equipoise_testkit::eventually;

/// A server of others, which is killed when this is dropped.
pub struct Peer(Child);

impl Drop for Peer {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// Starts a server, and waits until it listens.
pub fn spawn(command: &mut Command, listens: SocketAddr) -> Peer {
    let child = command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null()).spawn();
    let peer = Peer(child.expect("it runs; `make test-setup` installs it"));
    assert!(eventually(|| TcpStream::connect(listens).is_ok()), "{command:?} does not listen");
    peer
}
