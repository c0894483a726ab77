use std::io::{Read, Write};
use std::net::{Shutdown, SocketAddr, TcpStream};
use std::time::Duration;

use crate::wire::{Lines, Reader};
use crate::{Head, PATIENCE, WireError, port};

/// A response as the client saw it.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Response {
    /// Status line and headers.
    pub head: Head,
    /// Without its framing.
    pub body: Vec<u8>,
    /// Trailers of a chunked body.
    pub trailers: Vec<(String, String)>,
    /// Every byte of it.
    pub raw: Vec<u8>,
}

impl Response {
    /// Its status.
    pub fn status(&self) -> u16 {
        self.head.status()
    }

    /// The first value of a header.
    pub fn header(&self, name: &str) -> Option<&str> {
        self.head.header(name)
    }

    /// Its body as text.
    pub fn text(&self) -> String {
        String::from_utf8_lossy(&self.body).into_owned()
    }
}

/// How a connection ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Ending {
    /// The peer closed.
    Closed,
    /// The peer reset.
    Reset,
    /// It did not end while the client waited.
    StillOpen,
}

/// A client that sends exactly the given bytes.
pub struct Client {
    stream: TcpStream,
    reader: Reader<TcpStream>,
}

impl Client {
    /// Connects. A read or write without progress for [`PATIENCE`] fails.
    ///
    /// # Panics
    /// If the connection is refused.
    pub fn connect(address: SocketAddr) -> Client {
        let stream = TcpStream::connect_timeout(&address, PATIENCE);
        Client::over(stream.unwrap_or_else(|e| panic!("cannot connect to {address}: {e}")))
    }

    /// Takes over a connection.
    pub fn over(stream: TcpStream) -> Client {
        stream.set_nodelay(true).expect("TCP_NODELAY is always allowed");
        stream.set_write_timeout(Some(PATIENCE)).expect("PATIENCE is not zero");
        let reader = Reader::new(stream.try_clone().expect("a descriptor is free"), Lines::Strict);
        let client = Client { stream, reader };
        client.patience(PATIENCE);
        client
    }

    /// Sets how long a read waits.
    pub fn patience(&self, patience: Duration) {
        self.stream.set_read_timeout(Some(patience)).expect("patience is not zero");
    }

    /// This side's address.
    pub fn address(&self) -> SocketAddr {
        self.stream.local_addr().expect("a connected socket has an address")
    }

    /// The connection itself.
    pub fn stream(&self) -> &TcpStream {
        &self.stream
    }

    /// Sends all of `bytes`.
    ///
    /// # Panics
    /// If the peer takes no more.
    pub fn send(&mut self, bytes: impl AsRef<[u8]>) -> &mut Client {
        self.try_send(bytes).expect("the peer takes the bytes");
        self
    }

    /// Sends all of `bytes`.
    ///
    /// # Errors
    /// If the peer takes no more.
    pub fn try_send(&mut self, bytes: impl AsRef<[u8]>) -> Result<(), WireError> {
        Ok(self.stream.write_all(bytes.as_ref())?)
    }

    /// Sends one byte per segment. Gives up quietly when the peer closes: it may refuse before the
    /// end.
    pub fn send_bytewise(&mut self, bytes: impl AsRef<[u8]>) -> &mut Client {
        for byte in bytes.as_ref() {
            if self.stream.write_all(&[*byte]).is_err() {
                break;
            }
            std::thread::yield_now();
        }
        self
    }

    /// Says that nothing more will be sent.
    pub fn finish(&mut self) -> &mut Client {
        let _ = self.stream.shutdown(Shutdown::Write);
        self
    }

    /// Closes with a reset.
    pub fn reset(self) {
        port::reset_on_close(&self.stream);
    }

    /// Reads the response to a GET; interim responses count as responses.
    ///
    /// # Errors
    /// If there is no whole response.
    pub fn response(&mut self) -> Result<Response, WireError> {
        self.response_to("GET")
    }

    /// Reads the response to `method`, which decides whether there is a body.
    ///
    /// # Errors
    /// If there is no whole response.
    pub fn response_to(&mut self, method: &str) -> Result<Response, WireError> {
        self.reader.kept = Some(Vec::new());
        let mut body = Vec::new();
        let outcome = self.read_message(method, &mut |piece| body.extend_from_slice(piece));
        let raw = self.reader.kept.take().unwrap_or_default();
        outcome.map(|(head, trailers)| Response { head, body, trailers, raw })
    }

    /// Reads a response, passing the body to `sink` piece by piece.
    ///
    /// # Errors
    /// If there is no complete response.
    pub fn response_into(&mut self, sink: &mut dyn FnMut(&[u8])) -> Result<Head, WireError> {
        self.read_message("GET", sink).map(|(head, _)| head)
    }

    fn read_message(
        &mut self,
        method: &str,
        sink: &mut dyn FnMut(&[u8]),
    ) -> Result<(Head, Vec<(String, String)>), WireError> {
        let head = self.reader.head()?;
        let framing = head.response_framing(method);
        let trailers = self.reader.body(framing, sink)?;
        Ok((head, trailers))
    }

    /// Reads a head alone.
    ///
    /// # Errors
    /// If there is no whole head.
    pub fn head(&mut self) -> Result<Head, WireError> {
        self.reader.head()
    }

    /// Reads exactly `bytes` bytes, or up to the end of the connection.
    ///
    /// # Errors
    /// If the peer resets or stands still.
    pub fn read_exactly(&mut self, bytes: usize) -> Result<Vec<u8>, WireError> {
        let mut read = Vec::with_capacity(bytes);
        while read.len() < bytes {
            let piece = self.reader.some(bytes - read.len())?;
            if piece.is_empty() {
                return Err(WireError::Truncated);
            }
            read.extend_from_slice(&piece);
        }
        Ok(read)
    }

    /// Reads until the connection ends.
    pub fn read_to_end(&mut self) -> (Vec<u8>, Ending) {
        let mut read = Vec::new();
        loop {
            match self.reader.some(64 << 10) {
                Ok(piece) if piece.is_empty() => return (read, Ending::Closed),
                Ok(piece) => read.extend_from_slice(&piece),
                Err(WireError::TimedOut) => return (read, Ending::StillOpen),
                Err(_) => return (read, Ending::Reset),
            }
        }
    }

    /// Sends a request and reads its response.
    ///
    /// # Errors
    /// If there is no whole response.
    pub fn ask(&mut self, request: impl AsRef<[u8]>) -> Result<Response, WireError> {
        let method = request.as_ref().split(|b| *b == b' ').next().unwrap_or_default();
        let method = String::from_utf8_lossy(method).into_owned();
        self.try_send(request)?;
        self.response_to(&method)
    }

    /// A whole exchange on a connection of its own.
    ///
    /// # Errors
    /// If there is no whole response.
    pub fn exchange(address: SocketAddr, request: impl AsRef<[u8]>) -> Result<Response, WireError> {
        Client::connect(address).ask(request)
    }

    /// Whether the peer has left the connection open and silent for `time`.
    pub fn is_silent_for(&mut self, time: Duration) -> bool {
        self.patience(time);
        let outcome = self.reader.some(1);
        self.patience(PATIENCE);
        outcome == Err(WireError::TimedOut)
    }
}

impl Read for Client {
    fn read(&mut self, buffer: &mut [u8]) -> std::io::Result<usize> {
        let piece =
            self.reader.some(buffer.len()).map_err(|e| std::io::Error::other(format!("{e:?}")))?;
        buffer[..piece.len()].copy_from_slice(&piece);
        Ok(piece.len())
    }
}
