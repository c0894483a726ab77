//! Backends that speak HTTP/2: the `h2` crate's, and one that sends any frames.
#![allow(dead_code, reason = "each test binary uses its part of this")]

use std::io::Read;
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::sync::atomic::{AtomicUsize, Ordering::SeqCst};
use std::sync::{Arc, Mutex};

use bytes::Bytes;
use equipoise_testkit::PATIENCE;
use h2::RecvStream;
use h2::server::{Builder, SendResponse};
use http::{HeaderMap, Request, Response};

use super::{ACK, END_HEADERS, Raw, SETTINGS, block};

/// A request of which the head has arrived.
pub(crate) struct Arrived {
    pub(crate) request: Request<RecvStream>,
    pub(crate) respond: SendResponse<Bytes>,
    /// The number of its connection, from 0.
    pub(crate) connection: usize,
}

/// Serves each stream by a function of the test.
pub(crate) struct Http2Backend {
    pub(crate) address: SocketAddr,
    connections: Arc<AtomicUsize>,
    open: Arc<AtomicUsize>,
    heads: Arc<Mutex<Vec<Head>>>,
}

/// The head of a request.
#[derive(Clone, Debug)]
pub(crate) struct Head {
    pub(crate) method: String,
    pub(crate) uri: String,
    pub(crate) headers: HeaderMap,
    pub(crate) connection: usize,
}

impl Http2Backend {
    /// With defaults.
    pub(crate) fn start<F>(serve: impl Fn(Arrived) -> F + Send + Sync + 'static) -> Http2Backend
    where
        F: Future<Output = ()> + Send + 'static,
    {
        Http2Backend::with(Builder::new(), serve)
    }

    /// With other settings.
    pub(crate) fn with<F>(
        how: Builder,
        serve: impl Fn(Arrived) -> F + Send + Sync + 'static,
    ) -> Http2Backend
    where
        F: Future<Output = ()> + Send + 'static,
    {
        let listener = TcpListener::bind("127.0.0.1:0").expect("a port is free");
        let backend = Http2Backend {
            address: listener.local_addr().expect("it is bound"),
            connections: Arc::default(),
            open: Arc::default(),
            heads: Arc::default(),
        };
        let (connections, open) = (backend.connections.clone(), backend.open.clone());
        let (heads, serve) = (backend.heads.clone(), Arc::new(serve));
        listener.set_nonblocking(true).expect("an option can be set");
        std::thread::spawn(move || {
            let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
            runtime.expect("a runtime can be made").block_on(async move {
                let listener = tokio::net::TcpListener::from_std(listener).expect("a listener");
                loop {
                    let Ok((socket, _)) = listener.accept().await else { return };
                    let connection = connections.fetch_add(1, SeqCst);
                    let (heads, serve, how) = (heads.clone(), serve.clone(), how.clone());
                    let open = open.clone();
                    open.fetch_add(1, SeqCst);
                    tokio::spawn(async move {
                        if let Ok(mut frames) = how.handshake::<_, Bytes>(socket).await {
                            while let Some(Ok((request, respond))) = frames.accept().await {
                                heads.lock().expect("no panic").push(Head {
                                    method: request.method().to_string(),
                                    uri: request.uri().to_string(),
                                    headers: request.headers().clone(),
                                    connection,
                                });
                                tokio::spawn(serve(Arrived { request, respond, connection }));
                            }
                        }
                        open.fetch_sub(1, SeqCst);
                    });
                }
            });
        });
        backend
    }

    /// Answers each request with this text.
    pub(crate) fn says(text: &'static str) -> Http2Backend {
        Http2Backend::start(move |mut arrived| async move { arrived.say(text) })
    }

    /// Connections that were opened to it so far.
    pub(crate) fn connections(&self) -> usize {
        self.connections.load(SeqCst)
    }

    /// Connections that are open.
    pub(crate) fn open(&self) -> usize {
        self.open.load(SeqCst)
    }

    /// The heads of the requests so far.
    pub(crate) fn heads(&self) -> Vec<Head> {
        self.heads.lock().expect("no panic").clone()
    }
}

impl Arrived {
    pub(crate) fn path(&self) -> String {
        self.request.uri().path().to_string()
    }

    /// Answers with this text.
    pub(crate) fn say(&mut self, text: &str) {
        let body = Bytes::from(text.to_string());
        if let Ok(mut stream) = self.respond.send_response(Response::new(()), false) {
            let _ = stream.send_data(body, true);
        }
    }

    pub(crate) fn reset(&mut self, reason: h2::Reason) {
        self.respond.send_reset(reason);
    }
}

/// Listens for connections that a test serves frame by frame.
pub(crate) struct RawBackend(TcpListener);

impl RawBackend {
    pub(crate) fn start() -> RawBackend {
        RawBackend(TcpListener::bind("127.0.0.1:0").expect("a port is free"))
    }

    pub(crate) fn address(&self) -> SocketAddr {
        self.0.local_addr().expect("it is bound")
    }

    /// Accepts a connection without reading from it.
    pub(crate) fn accept_socket(&self) -> TcpStream {
        let (stream, _) = self.0.accept().expect("a connection");
        stream.set_read_timeout(Some(PATIENCE)).expect("a time-out can be set");
        stream.set_nodelay(true).expect("an option can be set");
        stream
    }

    /// Accepts a connection, reads the preface and settings, and sends these settings.
    pub(crate) fn accept(&self, settings: &[u8]) -> Raw {
        let mut stream = self.accept_socket();
        let mut preface = [0; 24];
        stream.read_exact(&mut preface).expect("a preface");
        assert_eq!(&preface, b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n");
        let mut raw = Raw(stream);
        raw.read_until(SETTINGS);
        raw.frame(SETTINGS, 0, 0, settings).frame(SETTINGS, ACK, 0, &[]);
        raw
    }
}

/// The fields of a response with this status.
pub(crate) fn response(raw: &mut Raw, stream: u32, fields: &[(&str, &str)], flags: u8) {
    raw.frame(super::HEADERS, END_HEADERS | flags, stream, &block(fields));
}
