//! Certificates of nodes, and TLS endpoints outside an engine.

use std::collections::{BTreeMap, BTreeSet};
use std::io::{Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::sync::atomic::{AtomicU64, Ordering::SeqCst};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use equipoise_dispatch::Transport;
use equipoise_tls::{PeerCertificate, PeerCertificates, PeerTls};
use rcgen::{BasicConstraints, CertificateParams, CertifiedIssuer, IsCa, KeyPair};
use rustls::pki_types::{CertificateDer, PrivateKeyDer, PrivatePkcs8KeyDer, ServerName};
use rustls::server::WebPkiClientVerifier;
use rustls::{ClientConfig, ClientConnection, RootCertStore, ServerConfig, StreamOwned};

/// The host name that the engine expects of every peer; webpki checks only this name.
const ANY_NAME: &str = "peer.invalid";

/// An authority, and the state of the certificates that it issued.
pub(crate) struct Fleet {
    issuer: CertifiedIssuer<'static, KeyPair>,
    known: Arc<Known>,
}

#[derive(Debug, Default)]
struct Known {
    by_certificate: Mutex<BTreeMap<Vec<u8>, String>>,
    out: Mutex<BTreeSet<String>>,
    /// Validity in milliseconds; 0: an hour.
    lasts_ms: AtomicU64,
    epoch: AtomicU64,
}

fn lock<T>(of: &Mutex<T>) -> MutexGuard<'_, T> {
    of.lock().unwrap_or_else(PoisonError::into_inner)
}

impl PeerCertificates for Known {
    fn read(&self, certificate: &CertificateDer<'_>) -> Option<PeerCertificate> {
        let name = lock(&self.by_certificate).get(certificate.as_ref())?.clone();
        if lock(&self.out).contains(&name) {
            return None;
        }
        let valid_for = match self.lasts_ms.load(SeqCst) {
            0 => Duration::from_secs(3600),
            lasts_ms => Duration::from_millis(lasts_ms),
        };
        Some(PeerCertificate { nodes: vec![name], valid_for })
    }

    fn epoch(&self) -> u64 {
        self.epoch.load(SeqCst)
    }
}

impl Fleet {
    pub(crate) fn new() -> Fleet {
        let mut params = CertificateParams::default();
        params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        let key = KeyPair::generate().expect("a key");
        let issuer = CertifiedIssuer::self_signed(params, key).expect("an authority");
        Fleet { issuer, known: Arc::default() }
    }

    fn roots(&self) -> Arc<RootCertStore> {
        let mut roots = RootCertStore::empty();
        roots.add(self.issuer.der().clone()).expect("an authority's certificate");
        Arc::new(roots)
    }

    fn issue(&self, node: &str) -> (Vec<CertificateDer<'static>>, PrivateKeyDer<'static>) {
        let params = CertificateParams::new(vec![ANY_NAME.to_string()]).expect("a host name");
        let key = KeyPair::generate().expect("a key");
        let certificate = params.signed_by(&key, &self.issuer).expect("a certificate");
        let der = certificate.der().clone();
        lock(&self.known.by_certificate).insert(der.to_vec(), node.to_string());
        (vec![der], PrivateKeyDer::Pkcs8(PrivatePkcs8KeyDer::from(key.serialize_der())))
    }

    /// TLS of a client with the certificate of this node.
    pub(crate) fn client(&self, node: &str) -> Arc<ClientConfig> {
        self.client_trusting(node, self)
    }

    /// TLS of a client with the certificate of this node, which accepts servers of another fleet.
    pub(crate) fn client_trusting(&self, node: &str, other: &Fleet) -> Arc<ClientConfig> {
        let (chain, key) = self.issue(node);
        let config = ClientConfig::builder().with_root_certificates(other.roots());
        Arc::new(config.with_client_auth_cert(chain, key).expect("they belong together"))
    }

    /// A client without a certificate.
    pub(crate) fn nobody(&self) -> Arc<ClientConfig> {
        let config = ClientConfig::builder().with_root_certificates(self.roots());
        Arc::new(config.with_no_client_auth())
    }

    /// TLS of a server with the certificate of this node, which requires clients' certificates.
    pub(crate) fn server(&self, node: &str) -> Arc<ServerConfig> {
        let (chain, key) = self.issue(node);
        let verifier = WebPkiClientVerifier::builder(self.roots()).build().expect("a verifier");
        let config = ServerConfig::builder().with_client_cert_verifier(verifier);
        Arc::new(config.with_single_cert(chain, key).expect("they belong together"))
    }

    /// Client and server configuration of this node.
    pub(crate) fn tls(&self, node: &str) -> PeerTls {
        self.tls_with(self.client(node), node)
    }

    /// The same, with another client configuration.
    pub(crate) fn tls_with(&self, client: Arc<ClientConfig>, node: &str) -> PeerTls {
        let known = Arc::clone(&self.known) as Arc<dyn PeerCertificates>;
        static NUMBER: AtomicU64 = AtomicU64::new(0);
        PeerTls::new(NUMBER.fetch_add(1, SeqCst), client, self.server(node), known)
    }

    pub(crate) fn required(&self, node: &str) -> Transport {
        Transport::Encrypted(Some(self.tls(node)))
    }

    pub(crate) fn accepted(&self, node: &str) -> Transport {
        Transport::Either(Some(self.tls(node)))
    }

    /// Sets the validity of certificates of new sessions.
    pub(crate) fn lasts(&self, time: Duration) {
        self.known.lasts_ms.store(time.as_millis() as u64, SeqCst);
    }

    /// Evicts this node: its certificates are not accepted any more.
    pub(crate) fn shut_out(&self, node: &str) {
        lock(&self.known.out).insert(node.to_string());
        self.known.epoch.fetch_add(1, SeqCst);
    }
}

/// A client on a new connection. The first write performs the handshake.
pub(crate) fn connect(
    to: SocketAddr,
    config: &Arc<ClientConfig>,
) -> StreamOwned<ClientConnection, TcpStream> {
    let stream = TcpStream::connect(to).expect("it listens");
    stream.set_read_timeout(Some(Duration::from_secs(30))).expect("a time");
    let name = ServerName::try_from(ANY_NAME).expect("a host name");
    StreamOwned::new(ClientConnection::new(Arc::clone(config), name).expect("a client"), stream)
}

/// The response to a request, up to the end of the connection or the first error.
pub(crate) fn ask(
    to: SocketAddr,
    config: &Arc<ClientConfig>,
    request: &str,
) -> Result<String, String> {
    let mut stream = connect(to, config);
    let mut answer = Vec::new();
    let request = request.replacen("\r\n\r\n", "\r\nConnection: close\r\n\r\n", 1);
    let asked = stream.write_all(request.as_bytes()).and_then(|()| stream.read_to_end(&mut answer));
    match asked {
        Ok(_) => Ok(String::from_utf8_lossy(&answer).into_owned()),
        Err(error) => Err(error.to_string()),
    }
}

/// A peer for one connection: it performs the handshake, reads a request's head, sends these bytes,
/// and closes with or without a TLS close.
pub(crate) fn one_answer(
    config: Arc<ServerConfig>,
    bytes: Vec<u8>,
    announces_end: bool,
) -> SocketAddr {
    let listener = TcpListener::bind("127.0.0.1:0").expect("a port");
    let address = listener.local_addr().expect("it is bound");
    std::thread::spawn(move || {
        let Ok((stream, _)) = listener.accept() else { return };
        let connection = rustls::ServerConnection::new(config).expect("a server");
        let mut stream = StreamOwned::new(connection, stream);
        // A request without a body is one record.
        if !matches!(stream.read(&mut [0; 4096]), Ok(1..)) {
            return;
        }
        let _ = stream.write_all(&bytes).and_then(|()| stream.flush());
        if announces_end {
            stream.conn.send_close_notify();
            let _ = stream.flush();
        }
    });
    address
}

/// Forwards connections to `to`, and records the bytes of clients.
pub(crate) fn eavesdrop(to: SocketAddr) -> (SocketAddr, Arc<Mutex<Vec<u8>>>) {
    let listener = TcpListener::bind("127.0.0.1:0").expect("a port");
    let address = listener.local_addr().expect("it is bound");
    let heard: Arc<Mutex<Vec<u8>>> = Arc::default();
    let shared = Arc::clone(&heard);
    std::thread::spawn(move || {
        for client in listener.incoming().map_while(Result::ok) {
            let server = TcpStream::connect(to).expect("it listens");
            let (mut back, mut to_client) =
                (server.try_clone().expect("a descriptor"), client.try_clone().expect("one"));
            std::thread::spawn(move || std::io::copy(&mut back, &mut to_client));
            let shared = Arc::clone(&shared);
            std::thread::spawn(move || pass(client, server, &shared));
        }
    });
    (address, heard)
}

fn pass(mut from: TcpStream, mut to: TcpStream, heard: &Mutex<Vec<u8>>) {
    let mut buffer = [0; 4096];
    while let Ok(count @ 1..) = from.read(&mut buffer) {
        lock(heard).extend_from_slice(&buffer[..count]);
        if to.write_all(&buffer[..count]).is_err() {
            return;
        }
    }
    let _ = to.shutdown(std::net::Shutdown::Write);
}
