use std::io::{Read, Write};
use std::net::{Shutdown, SocketAddr, TcpStream};

use crate::acceptor::{Acceptor, Connections};
use crate::{PATIENCE, Pattern, port};

/// The behaviour of a [`TcpBackend`] towards each connection.
#[derive(Clone, Debug)]
pub enum TcpBehaviour {
    /// Sends back what comes; at the peer's half-close, closes.
    Echo,
    /// Reads and ignores until the peer closes.
    Sink,
    /// Sends the first bytes of the pattern of a seed, then closes.
    Source {
        /// The pattern's seed.
        seed: u64,
        /// Bytes in all.
        bytes: u64,
    },
    /// Reads to the peer's half-close, then sends how many bytes came as text, then closes.
    CountAtEnd,
    /// Sends these bytes and half-closes at once, then reads until the peer closes.
    SayAndHalfClose(Vec<u8>),
    /// Sends these bytes to whoever connects, then closes.
    Say(Vec<u8>),
    /// Resets once this many bytes have come.
    ResetAfter(u64),
}

/// A TCP server of one behaviour.
pub struct TcpBackend(Acceptor);

impl TcpBackend {
    /// Starts one.
    pub fn start(behaviour: TcpBehaviour) -> TcpBackend {
        TcpBackend(Acceptor::start(move |stream, _, connections| {
            let _ = stream.set_write_timeout(Some(PATIENCE));
            // A peer that goes away ends the conversation: nothing to report.
            let _ = serve(&stream, connections, &behaviour);
        }))
    }

    /// Where it listens.
    pub fn address(&self) -> SocketAddr {
        self.0.address()
    }

    /// Its listener and connections: counts, stop, restart.
    pub fn acceptor(&self) -> &Acceptor {
        &self.0
    }
}

fn serve(
    mut stream: &TcpStream,
    connections: &Connections,
    behaviour: &TcpBehaviour,
) -> std::io::Result<()> {
    let mut buffer = vec![0; 64 << 10];
    let mut seen = 0;
    match behaviour {
        TcpBehaviour::Source { seed, bytes } => return send_pattern(stream, *seed, *bytes),
        TcpBehaviour::Say(bytes) => return stream.write_all(bytes),
        TcpBehaviour::SayAndHalfClose(bytes) => {
            stream.write_all(bytes)?;
            stream.shutdown(Shutdown::Write)?;
        }
        TcpBehaviour::ResetAfter(0) => {
            port::reset_on_close(stream);
            return Ok(());
        }
        _ => {}
    }
    loop {
        let bytes = stream.read(&mut buffer)?;
        connections.count_bytes(bytes);
        seen += bytes as u64;
        match behaviour {
            TcpBehaviour::CountAtEnd if bytes == 0 => {
                return stream.write_all(seen.to_string().as_bytes());
            }
            TcpBehaviour::ResetAfter(limit) if seen >= *limit => {
                port::reset_on_close(stream);
                return Ok(());
            }
            _ if bytes == 0 => return Ok(()),
            TcpBehaviour::Echo => stream.write_all(&buffer[..bytes])?,
            _ => {}
        }
    }
}

fn send_pattern(mut stream: &TcpStream, seed: u64, bytes: u64) -> std::io::Result<()> {
    let mut pattern = Pattern::new(seed);
    while pattern.offset() < bytes {
        let left = bytes - pattern.offset();
        stream.write_all(pattern.next(left.min(64 << 10) as usize))?;
    }
    Ok(())
}
