//! A new TLS connection for each request: wrk would resume sessions as it likes.

use std::io::Read;
use std::net::{SocketAddr, TcpStream};
use std::path::Path;
use std::sync::Arc;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};
use rustls::ClientConfig;

use crate::rows::{Object, Tls};
use crate::tls::Connection;
use crate::{http, sys, tls};

/// Connections at once, each in a thread.
const CLIENTS: usize = 16;

/// Connections that were served, and the time of each.
#[derive(Clone, Debug, Default)]
pub(crate) struct Outcome {
    /// From the connect to the end of the response, nanoseconds, ascending.
    pub(crate) latencies_ns: Vec<u64>,
    pub(crate) elapsed: Duration,
}

/// Opens connections to `address` for `time`.
///
/// # Errors
/// If one fails, or a session is resumed that should not be, or the other way round.
pub(crate) fn run(
    address: SocketAddr,
    object: Object,
    certificates: &Path,
    key: Tls,
    resumed: bool,
    time: Duration,
) -> Result<Outcome> {
    let start = Instant::now();
    let client = || -> Result<Vec<u64>> {
        // A client has its own tickets.
        let config = tls::client(certificates, key, resumed)?;
        if resumed {
            connect(address, object, &config, false)?;
        }
        let mut latencies = Vec::new();
        while start.elapsed() < time {
            sys::check_interrupt()?;
            let begun = Instant::now();
            connect(address, object, &config, resumed)?;
            latencies.push(begun.elapsed().as_nanos() as u64);
        }
        Ok(latencies)
    };
    let of_clients: Vec<Result<Vec<u64>>> = std::thread::scope(|scope| {
        let clients: Vec<_> = (0..CLIENTS).map(|_| scope.spawn(client)).collect();
        clients.into_iter().map(|client| client.join().expect("a client panicked")).collect()
    });
    let mut outcome = Outcome { elapsed: start.elapsed(), ..Outcome::default() };
    for latencies in of_clients {
        outcome.latencies_ns.extend(latencies?);
    }
    outcome.latencies_ns.sort_unstable();
    Ok(outcome)
}

/// One connection with one request; the proxy closes it.
fn connect(
    address: SocketAddr,
    object: Object,
    config: &Arc<ClientConfig>,
    resumed: bool,
) -> Result<()> {
    let socket = TcpStream::connect(address).context("opening a connection")?;
    socket.set_read_timeout(Some(Duration::from_secs(5)))?;
    let mut connection = Connection::new(socket, Some(config))?;
    let request = http::closing_request(address, object.path);
    http::exchange(&mut connection, &request, object.length)?;
    ensure!(
        connection.is_resumed() == resumed,
        "the session was {}resumed",
        if resumed { "not " } else { "" }
    );
    // Some close without TLS's announcement.
    let _ = connection.read(&mut [0]);
    Ok(())
}
