//! TLS of the measuring side: certificates for the proxies, and a client that trusts them.

use std::io::{self, Read, Write};
use std::net::TcpStream;
use std::path::Path;
use std::process::Command;
use std::sync::Arc;

use anyhow::{Context, Result, ensure};
use rustls::client::Resumption;
use rustls::crypto::aws_lc_rs::{self, kx_group};
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, ServerName};
use rustls::{ClientConfig, ClientConnection, HandshakeKind, RootCertStore};

use crate::rows::Tls;

const NAME: &str = "bench.test";

/// Writes a self-signed certificate and its key into one file of `folder`, by openssl.
pub(crate) fn create(folder: &Path, tls: Tls) -> Result<()> {
    let file = folder.join(tls.file());
    let key: &[&str] = match tls {
        Tls::Ecdsa => &["-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:P-256"],
        Tls::Rsa => &["-newkey", "rsa:2048"],
    };
    let output = Command::new("openssl")
        .args(["req", "-x509", "-nodes", "-sha256", "-days", "2", "-subj", "/CN=bench.test"])
        .args(["-addext", "subjectAltName=DNS:bench.test"])
        .args(["-addext", "basicConstraints=critical,CA:FALSE"])
        .args(key)
        // The key and then the certificate: both go to one file.
        .args(["-keyout", "-", "-out", "-"])
        .output()
        .context("running openssl (Debian: openssl)")?;
    let error = String::from_utf8_lossy(&output.stderr);
    ensure!(output.status.success(), "openssl could not make a certificate:\n{error}");
    std::fs::write(&file, output.stdout).with_context(|| format!("writing {}", file.display()))
}

/// A client that trusts the certificate of `tls` in `folder`. TLS 1.3 with X25519, which all
/// proxies speak.
pub(crate) fn client(folder: &Path, tls: Tls, resumes: bool) -> Result<Arc<ClientConfig>> {
    let mut roots = RootCertStore::empty();
    roots.add(CertificateDer::from_pem_file(folder.join(tls.file()))?)?;
    let provider = rustls::crypto::CryptoProvider {
        kx_groups: vec![kx_group::X25519],
        ..aws_lc_rs::default_provider()
    };
    let builder = ClientConfig::builder_with_provider(Arc::new(provider))
        .with_protocol_versions(&[&rustls::version::TLS13])?;
    let mut config = builder.with_root_certificates(roots).with_no_client_auth();
    if !resumes {
        config.resumption = Resumption::disabled();
    }
    Ok(Arc::new(config))
}

/// A client's connection, encrypted or not.
pub(crate) struct Connection {
    pub(crate) socket: TcpStream,
    tls: Option<Box<ClientConnection>>,
}

impl Connection {
    /// The handshake comes with the first byte.
    pub(crate) fn new(socket: TcpStream, config: Option<&Arc<ClientConfig>>) -> Result<Connection> {
        let begin = |config: &Arc<ClientConfig>| {
            let name = ServerName::try_from(NAME)?;
            anyhow::Ok(Box::new(ClientConnection::new(Arc::clone(config), name)?))
        };
        Ok(Connection { socket, tls: config.map(begin).transpose()? })
    }

    pub(crate) fn is_resumed(&self) -> bool {
        let kind = self.tls.as_ref().and_then(|tls| tls.handshake_kind());
        kind == Some(HandshakeKind::Resumed)
    }
}

impl Read for Connection {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        match &mut self.tls {
            Some(tls) => rustls::Stream::new(&mut **tls, &mut self.socket).read(buffer),
            None => self.socket.read(buffer),
        }
    }
}

impl Write for Connection {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        match &mut self.tls {
            Some(tls) => rustls::Stream::new(&mut **tls, &mut self.socket).write(bytes),
            None => self.socket.write(bytes),
        }
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}
