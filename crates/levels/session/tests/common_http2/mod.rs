//! Clients of HTTP/2: the `h2` crate's, and one that sends whatever frames a test asks for.
#![allow(dead_code, reason = "each test binary uses its part of this")]

pub(crate) mod backend;

use std::future::poll_fn;
use std::io::{Read, Write};
use std::net::{SocketAddr, TcpStream};

use bytes::Bytes;
use equipoise_testkit::PATIENCE;
use h2::client::{ResponseFuture, SendRequest};
use h2::{RecvStream, SendStream};
use http::{HeaderMap, Request, StatusCode};
use tokio::task::JoinHandle;

/// Runs a test's future, which fails if it takes longer than patience has it.
pub(crate) fn run<T>(test: impl Future<Output = T>) -> T {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
    let within = async { tokio::time::timeout(3 * PATIENCE, test).await.expect("it ends in time") };
    runtime.expect("a runtime can be made").block_on(within)
}

/// A connection of the `h2` crate.
pub(crate) struct Connection {
    pub(crate) sender: SendRequest<Bytes>,
    pub(crate) ended: JoinHandle<Result<(), h2::Error>>,
}

/// A whole response.
#[derive(Debug)]
pub(crate) struct Reply {
    pub(crate) status: StatusCode,
    pub(crate) headers: HeaderMap,
    pub(crate) body: Vec<u8>,
    pub(crate) trailers: Option<HeaderMap>,
}

impl Reply {
    pub(crate) fn text(&self) -> String {
        String::from_utf8_lossy(&self.body).into_owned()
    }
}

impl Connection {
    pub(crate) async fn to(address: SocketAddr) -> Connection {
        Connection::with(address, &mut h2::client::Builder::new()).await
    }

    pub(crate) async fn with(address: SocketAddr, how: &mut h2::client::Builder) -> Connection {
        let socket = tokio::net::TcpStream::connect(address).await.expect("it listens");
        let (sender, connection) = how.handshake(socket).await.expect("it speaks HTTP/2");
        Connection { sender, ended: tokio::spawn(connection) }
    }

    /// Begins a request; without a body if `is_whole`.
    pub(crate) async fn begin(
        &self,
        request: Request<()>,
        is_whole: bool,
    ) -> (ResponseFuture, SendStream<Bytes>) {
        begin(self.sender.clone(), request, is_whole).await
    }

    pub(crate) async fn ask(&self, request: Request<()>) -> Result<Reply, h2::Error> {
        let (response, _stream) = self.begin(request, true).await;
        read(response).await
    }

    pub(crate) async fn get(&self, path: &str) -> Result<Reply, h2::Error> {
        self.ask(request("GET", path)).await
    }
}

/// Begins a request when the connection has room for it; without a body if `is_whole`.
pub(crate) async fn begin(
    sender: SendRequest<Bytes>,
    request: Request<()>,
    is_whole: bool,
) -> (ResponseFuture, SendStream<Bytes>) {
    let mut sender = sender.ready().await.expect("it takes a stream");
    sender.send_request(request, is_whole).expect("a stream can be opened")
}

pub(crate) fn request(method: &str, path: &str) -> Request<()> {
    let uri = format!("http://a.example{path}");
    Request::builder().method(method).uri(uri).body(()).expect("a request")
}

pub(crate) async fn read(response: ResponseFuture) -> Result<Reply, h2::Error> {
    let response = response.await?;
    let (status, headers) = (response.status(), response.headers().clone());
    let mut stream = response.into_body();
    let body = read_body(&mut stream).await?;
    Ok(Reply { status, headers, body, trailers: stream.trailers().await? })
}

pub(crate) async fn read_body(stream: &mut RecvStream) -> Result<Vec<u8>, h2::Error> {
    let mut body = Vec::new();
    while let Some(bytes) = stream.data().await {
        let bytes = bytes?;
        stream.flow_control().release_capacity(bytes.len())?;
        body.extend_from_slice(&bytes);
    }
    Ok(body)
}

/// Sends a body as the flow control allows, and as long as the stream is open; ends it if
/// `is_last`.
pub(crate) async fn send(
    stream: &mut SendStream<Bytes>,
    mut body: Bytes,
    is_last: bool,
) -> Result<(), h2::Error> {
    while !body.is_empty() {
        stream.reserve_capacity(body.len());
        while stream.capacity() == 0 {
            let Some(grown) = poll_fn(|cx| stream.poll_capacity(cx)).await else {
                // The other side wants no more.
                return Ok(());
            };
            grown?;
        }
        let count = stream.capacity().min(body.len());
        let piece = body.split_to(count);
        stream.send_data(piece, is_last && body.is_empty())?;
    }
    Ok(())
}

pub(crate) const DATA: u8 = 0;
pub(crate) const HEADERS: u8 = 1;
pub(crate) const PRIORITY: u8 = 2;
pub(crate) const RST_STREAM: u8 = 3;
pub(crate) const SETTINGS: u8 = 4;
pub(crate) const PING: u8 = 6;
pub(crate) const GOAWAY: u8 = 7;
pub(crate) const WINDOW_UPDATE: u8 = 8;
pub(crate) const CONTINUATION: u8 = 9;

pub(crate) const END_STREAM: u8 = 1;
pub(crate) const END_HEADERS: u8 = 4;
pub(crate) const ACK: u8 = 1;

/// A client that sends any frames.
pub(crate) struct Raw(pub(crate) TcpStream);

#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Frame {
    pub(crate) kind: u8,
    pub(crate) flags: u8,
    pub(crate) stream: u32,
    pub(crate) payload: Vec<u8>,
}

impl Frame {
    /// The code of a RST_STREAM or GOAWAY.
    pub(crate) fn code(&self) -> u32 {
        let at = if self.kind == GOAWAY { 4 } else { 0 };
        u32::from_be_bytes(self.payload[at..at + 4].try_into().expect("four bytes"))
    }
}

impl Raw {
    /// Connects, and sends the preface and empty settings.
    pub(crate) fn to(address: SocketAddr) -> Raw {
        let stream = TcpStream::connect(address).expect("it listens");
        stream.set_read_timeout(Some(PATIENCE)).expect("a time-out can be set");
        stream.set_nodelay(true).expect("an option can be set");
        let mut raw = Raw(stream);
        raw.0.write_all(b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n").expect("it takes the preface");
        raw.frame(SETTINGS, 0, 0, &[]);
        raw
    }

    /// Sends a frame. The other side may have closed, which a test sees by what it reads.
    pub(crate) fn frame(&mut self, kind: u8, flags: u8, stream: u32, payload: &[u8]) -> &mut Raw {
        let _ = self.0.write_all(&frame(kind, flags, stream, payload));
        self
    }

    /// Sends a request without a body.
    pub(crate) fn ask(&mut self, stream: u32, fields: &[(&str, &str)]) -> &mut Raw {
        self.frame(HEADERS, END_STREAM | END_HEADERS, stream, &block(fields))
    }

    /// Reads a frame; `None` at the end of the connection.
    pub(crate) fn read(&mut self) -> Option<Frame> {
        let mut head = [0; 9];
        self.0.read_exact(&mut head).ok()?;
        let length = u32::from_be_bytes([0, head[0], head[1], head[2]]) as usize;
        let mut payload = vec![0; length];
        self.0.read_exact(&mut payload).ok()?;
        let stream = u32::from_be_bytes([head[5], head[6], head[7], head[8]]);
        Some(Frame { kind: head[3], flags: head[4], stream, payload })
    }

    /// Reads up to a frame of this kind.
    #[track_caller]
    pub(crate) fn read_until(&mut self, kind: u8) -> Frame {
        loop {
            let frame = self.read().expect("the connection ended too early");
            if frame.kind == kind && (kind != SETTINGS || frame.flags & ACK == 0) {
                return frame;
            }
        }
    }

    /// Makes sure that the other side has read everything sent so far.
    pub(crate) fn meet(&mut self) {
        self.frame(PING, 0, 0, b"12345678");
        self.read_until(PING);
    }
}

pub(crate) fn frame(kind: u8, flags: u8, stream: u32, payload: &[u8]) -> Vec<u8> {
    let length = (payload.len() as u32).to_be_bytes();
    let mut frame = vec![length[1], length[2], length[3], kind, flags];
    frame.extend_from_slice(&stream.to_be_bytes());
    frame.extend_from_slice(payload);
    frame
}

/// Fields in HPACK, as literals without indexing (RFC 7541, section 6.2.2).
pub(crate) fn block(fields: &[(&str, &str)]) -> Vec<u8> {
    let mut block = Vec::new();
    for (name, value) in fields {
        block.push(0);
        for text in [name, value] {
            assert!(text.len() < 127, "a length of one byte");
            block.push(text.len() as u8);
            block.extend_from_slice(text.as_bytes());
        }
    }
    block
}

/// The pseudo-fields of a GET.
pub(crate) const GET: [(&str, &str); 4] =
    [(":method", "GET"), (":scheme", "http"), (":authority", "a.example"), (":path", "/")];

/// A GET with a field of 4 KB that it puts into the table of fields, and so many copies of it of a
/// byte each.
pub(crate) fn indexed_field(copies: usize) -> Vec<u8> {
    const VALUE_BYTES: usize = 4000;
    // The first field is a literal with incremental indexing (RFC 7541, section 6.2.1): it becomes
    // the first entry of the dynamic table. Its length has a prefix of 7 bits. The other fields
    // refer to that entry.
    let more = VALUE_BYTES - 127;
    let mut fields = block(&GET);
    fields.extend([0x40, 1, b'x', 127, 0x80 | (more & 127) as u8, (more >> 7) as u8]);
    fields.extend([b'a'; VALUE_BYTES]);
    fields.extend(INDEXED.repeat(copies));
    fields
}

/// A field that is the first entry of the dynamic table.
pub(crate) const INDEXED: [u8; 1] = [0x80 | 62];
