//! Reads a client's ClientHello, which then passes to the backend as it came.

use std::future::poll_fn;
use std::io;
use std::task::{Context, Poll};
use std::time::Instant;

use rustls::server::Acceptor;

use crate::buffer::{BUFFER_BYTES, Buffer};
use crate::deadline::Deadline;
use crate::door::Door;
use crate::handshake::{Refused, poll_end};
use crate::reason::Reason;
use crate::socket::{Socket, poll_fill};
use crate::tls::FIRST_BYTE;
use crate::worker::Worker;

/// The longest ClientHello with its records, bytes. Real ones have at most 2 KB.
const HELLO_BYTES_MAX: usize = BUFFER_BYTES;

/// A ClientHello.
pub(crate) struct Hello {
    /// The bytes that were read, which the backend gets.
    pub(crate) bytes: Buffer,
    /// The server name in lower case.
    pub(crate) name: Option<String>,
}

/// Reads a client's ClientHello within the front door's header time-out; `first` was read already.
/// It may come in any number of pieces and records.
///
/// # Errors
/// [`Refused`]. A client with a malformed ClientHello was sent an alert.
pub(crate) async fn read_hello(
    worker: &Worker,
    door: &Door,
    client: &Socket,
    first: Option<Buffer>,
    deadline: &Deadline,
) -> Result<Hello, Refused> {
    deadline.set(Instant::now(), door.view().config.timeouts.header);
    let mut reading = Reading { input: first, fed: 0, acceptor: Acceptor::default() };
    let name = poll_fn(|cx| reading.poll(cx, worker, door, client, deadline)).await;
    deadline.clear();
    match (name, reading.input) {
        (Ok(name), Some(bytes)) => Ok(Hello { bytes, name }),
        (Err(refused), _) => Err(refused),
        (Ok(_), None) => Err(Refused::Unused),
    }
}

struct Reading {
    input: Option<Buffer>,
    /// Bytes of it that were parsed.
    fed: usize,
    acceptor: Acceptor,
}

impl Reading {
    fn poll(
        &mut self,
        cx: &mut Context<'_>,
        worker: &Worker,
        door: &Door,
        client: &Socket,
        deadline: &Deadline,
    ) -> Poll<Result<Option<String>, Refused>> {
        loop {
            if let Some(result) = self.parse(client).transpose() {
                return Poll::Ready(result);
            }
            match poll_fill(cx, client, &mut self.input, &worker.buffers) {
                Poll::Ready(Ok(1..)) => continue,
                Poll::Ready(Ok(0) | Err(_)) if self.input.is_none() => {
                    return Poll::Ready(Err(Refused::Unused));
                }
                Poll::Ready(Ok(0) | Err(_)) => {
                    return Poll::Ready(Err(Refused::Failed(Reason::ClientGone)));
                }
                Poll::Pending => {}
            }
            if self.input.is_none() && door.ends_idle() {
                return Poll::Ready(Err(Refused::Unused));
            }
            return poll_end(worker, deadline).map(|reason| Err(Refused::Failed(reason)));
        }
    }

    /// Parses what has come; `None`: more is needed. The name is `None` if the client sent none.
    fn parse(&mut self, client: &Socket) -> Result<Option<Option<String>>, Refused> {
        let Some(input) = &self.input else { return Ok(None) };
        if input.first() != Some(&FIRST_BYTE) {
            return Err(self.input.take().map_or(Refused::Unused, Refused::NotTls));
        }
        while self.fed < input.len() {
            let taken = self.acceptor.read_tls(&mut &input[self.fed..]);
            self.fed += taken.map_err(|_| Refused::Failed(Reason::TlsHandshake))?;
            match self.acceptor.accept() {
                Ok(None) => {}
                Ok(Some(accepted)) => {
                    let hello = accepted.client_hello();
                    return Ok(Some(hello.server_name().map(str::to_ascii_lowercase)));
                }
                Err((error, mut alert)) => {
                    tracing::debug!(%error, "a ClientHello cannot be read");
                    let mut bytes = Vec::new();
                    // A client that takes no bytes gets no alert.
                    let _: io::Result<()> = alert.write_all(&mut bytes);
                    let _ = client.try_write(&bytes);
                    return Err(Refused::Failed(Reason::TlsHandshake));
                }
            }
        }
        match input.len() < HELLO_BYTES_MAX {
            true => Ok(None),
            false => Err(Refused::Failed(Reason::TlsHandshake)),
        }
    }
}
