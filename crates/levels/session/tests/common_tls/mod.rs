//! Certificates of a front door, and clients that trust them.
#![allow(dead_code, reason = "each test binary uses its part of this")]

use std::io::{self, Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::sync::Arc;
use std::time::Duration;

use equipoise_tls::{Certificate, Protocols, ServerTls, TlsOptions, Trust};
use rcgen::{CertificateParams, KeyPair};
use rustls::pki_types::ServerName;
use rustls::{ClientConfig, ClientConnection, RootCertStore, StreamOwned};

/// The name of the first certificate.
pub(crate) const NAME: &str = "www.example.com";

/// A client's TLS connection.
pub(crate) type Stream = StreamOwned<ClientConnection, TcpStream>;

/// Self-signed certificates, and the clients' trust in them.
pub(crate) struct Site {
    certificates: Vec<Certificate>,
    roots: RootCertStore,
    pem: String,
}

impl Site {
    /// One certificate for [`NAME`].
    pub(crate) fn new() -> Site {
        Site::of(&[NAME])
    }

    /// A certificate for each name.
    pub(crate) fn of(names: &[&str]) -> Site {
        let mut site =
            Site { certificates: Vec::new(), roots: RootCertStore::empty(), pem: String::new() };
        for name in names {
            let key = KeyPair::generate().expect("a key");
            let params = CertificateParams::new(vec![name.to_string()]).expect("a name");
            site.add(&params.self_signed(&key).expect("a certificate"), &key);
        }
        site
    }

    /// With this certificate.
    pub(crate) fn with(certificate: &rcgen::Certificate, key: &KeyPair) -> Site {
        let mut site = Site::of(&[]);
        site.add(certificate, key);
        site
    }

    fn add(&mut self, certificate: &rcgen::Certificate, key: &KeyPair) {
        self.roots.add(certificate.der().clone()).expect("it is its own authority");
        let read = Certificate::from_pem(&certificate.pem(), &key.serialize_pem());
        self.certificates.push(read.expect("they match"));
        self.pem += &certificate.pem();
    }

    /// The certificates.
    pub(crate) fn pem(&self) -> String {
        self.pem.clone()
    }

    /// Trust in these certificates.
    pub(crate) fn trust(&self) -> Trust {
        Trust::from_pem(&self.pem).expect("certificates")
    }

    /// TLS of an HTTP front door.
    pub(crate) fn http(&self) -> Option<ServerTls> {
        self.tls(TlsOptions { protocols: Protocols::Http1, ..TlsOptions::default() })
    }

    /// TLS of a TCP front door.
    pub(crate) fn tcp(&self) -> Option<ServerTls> {
        self.tls(TlsOptions::default())
    }

    pub(crate) fn tls(&self, options: TlsOptions) -> Option<ServerTls> {
        Some(ServerTls::new(options, self.certificates.clone()).expect("there is randomness"))
    }

    pub(crate) fn client(&self) -> Arc<ClientConfig> {
        let config = ClientConfig::builder().with_root_certificates(self.roots.clone());
        Arc::new(config.with_no_client_auth())
    }

    /// Connects, without a handshake yet.
    pub(crate) fn connect(&self, to: SocketAddr) -> Stream {
        self.over(TcpStream::connect(to).expect("it listens"), NAME)
    }

    /// The same over a connection that exists, for the site of this name.
    pub(crate) fn over(&self, stream: TcpStream, name: &str) -> Stream {
        stream.set_read_timeout(Some(Duration::from_secs(30))).expect("a time");
        let name = ServerName::try_from(name.to_string()).expect("a name");
        let connection = ClientConnection::new(self.client(), name).expect("a client");
        StreamOwned::new(connection, stream)
    }

    /// The whole response to a request that closes the connection.
    pub(crate) fn ask(&self, to: SocketAddr, request: &str) -> io::Result<String> {
        let mut stream = self.connect(to);
        stream.write_all(closing(request).as_bytes())?;
        rest(&mut stream)
    }
}

/// A request for this path.
pub(crate) fn get(path: &str) -> String {
    format!("GET {path} HTTP/1.1\r\nHost: {NAME}\r\n\r\n")
}

/// The request with `Connection: close`.
pub(crate) fn closing(request: &str) -> String {
    request.replacen("\r\n\r\n", "\r\nConnection: close\r\n\r\n", 1)
}

/// Everything up to the announced end.
pub(crate) fn rest(stream: &mut Stream) -> io::Result<String> {
    let mut bytes = Vec::new();
    stream.read_to_end(&mut bytes)?;
    Ok(String::from_utf8_lossy(&bytes).into_owned())
}

/// Announces the end of what this side sends, as TLS does, and then as TCP does.
pub(crate) fn finish(stream: &mut Stream) {
    stream.conn.send_close_notify();
    stream.flush().expect("it is sent");
    stream.sock.shutdown(std::net::Shutdown::Write).expect("it is open");
}

/// The bytes with which a client begins its handshake.
pub(crate) fn client_hello(site: &Site) -> Vec<u8> {
    let name = ServerName::try_from(NAME).expect("a name");
    let mut connection = ClientConnection::new(site.client(), name).expect("a client");
    let mut bytes = Vec::new();
    connection.write_tls(&mut bytes).expect("memory");
    bytes
}
