//! Idle client connections, and the memory that a proxy keeps for them.

use std::io::{self, ErrorKind};
use std::net::{Ipv4Addr, SocketAddr, TcpStream};
use std::time::Duration;

use anyhow::{Context, Result, ensure};
use socket2::{Domain, Socket, Type};

use crate::http;
use crate::process::Memory;
use crate::rows::Object;
use crate::stage::Server;
use crate::sys;
use crate::tls::Connection;

/// Connections from one source address; the default range of ephemeral ports has 28,000.
const CONNECTIONS_PER_SOURCE: u32 = 5000;
/// For the proxy to finish what it does after a request.
const SETTLE: Duration = Duration::from_secs(1);

/// Bytes per connection that `server` keeps.
#[derive(Clone, Copy, Debug)]
pub(crate) struct PerConnection {
    pub(crate) resident: f64,
    pub(crate) private: f64,
}

/// Opens `connections` to `server`, one after the other, makes one request on each, and compares
/// the server's memory before the first with that after the last.
pub(crate) fn run(server: &Server, object: Object, connections: u32) -> Result<PerConnection> {
    let request = http::request(server.address, object.path);
    sys::sleep(SETTLE)?;
    let before = Memory::of(&server.pids)?;
    let mut open = Vec::with_capacity(connections as usize);
    for number in 0..connections {
        if number % 100 == 0 {
            sys::check_interrupt()?;
        }
        let stream = connect_from(source(number), server.address)
            .with_context(|| format!("opening idle connection {} of {connections}", number + 1))?;
        stream.set_read_timeout(Some(Duration::from_secs(5)))?;
        let mut stream = Connection::new(stream, server.tls.as_ref())?;
        http::exchange(&mut stream, &request, object.length)
            .with_context(|| format!("on idle connection {} of {connections}", number + 1))?;
        open.push(stream);
    }
    sys::sleep(SETTLE)?;
    let after = Memory::of(&server.pids)?;
    for (number, stream) in open.iter().enumerate() {
        ensure!(is_open(&stream.socket)?, "the proxy closed idle connection {}", number + 1);
    }
    let grown = |after: u64, before: u64| (after as f64 - before as f64) / f64::from(connections);
    Ok(PerConnection {
        resident: grown(after.resident, before.resident),
        private: grown(after.private, before.private),
    })
}

fn connect_from(source: Ipv4Addr, server: SocketAddr) -> io::Result<TcpStream> {
    let socket = Socket::new(Domain::IPV4, Type::STREAM, None)?;
    socket.bind(&SocketAddr::from((source, 0)).into())?;
    socket.connect(&server.into())?;
    Ok(socket.into())
}

/// 127.0.0.2, 127.0.0.3, and so on.
fn source(number: u32) -> Ipv4Addr {
    Ipv4Addr::from(Ipv4Addr::LOCALHOST.to_bits() + 1 + number / CONNECTIONS_PER_SOURCE)
}

fn is_open(stream: &TcpStream) -> io::Result<bool> {
    stream.set_nonblocking(true)?;
    match stream.peek(&mut [0]) {
        Ok(count) => Ok(count > 0),
        Err(error) if error.kind() == ErrorKind::WouldBlock => Ok(true),
        Err(error) if error.kind() == ErrorKind::ConnectionReset => Ok(false),
        Err(error) => Err(error),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sources_are_loopback_addresses_and_none_has_too_many_connections() {
        assert_eq!(source(0), Ipv4Addr::new(127, 0, 0, 2));
        assert_eq!(source(CONNECTIONS_PER_SOURCE), Ipv4Addr::new(127, 0, 0, 3));
        assert!(source(100_000).is_loopback());
    }
}
