//! TLS to servers: the trusted ones, the certificate for them, and resumed sessions.

use std::fmt;
use std::net::IpAddr;
use std::sync::Arc;

use rustls::ClientConfig;
use rustls::client::Resumption;
use rustls::pki_types::ServerName;

use crate::certificate::Certificate;
use crate::error::CertificateError;
use crate::profile::{PROVIDER, Profile};
use crate::server::Protocols;
use crate::verifier::{ServerVerifier, Trust};

/// Options of connections to servers.
#[derive(Clone, Debug, PartialEq)]
pub struct ClientOptions {
    /// The servers that are trusted.
    pub trust: Trust,
    /// The certificate for servers that ask for one.
    pub certificate: Option<Certificate>,
    /// Versions and suites.
    pub profile: Profile,
    /// The name to ask for and to verify; `None`: that of the server's address.
    pub server_name: Option<ServerName<'static>>,
    /// The application protocols to offer.
    pub protocols: Protocols,
}

/// TLS to servers. Two are equal if they have the same options.
#[derive(Clone)]
pub struct ClientTls(Arc<Inner>);

struct Inner {
    options: ClientOptions,
    config: Arc<ClientConfig>,
}

/// Sessions of TLS 1.2, or servers with tickets of TLS 1.3, that a configuration remembers. Each is
/// for one server.
const SESSIONS_KEPT: usize = 8;

impl ClientTls {
    /// By these options.
    ///
    /// # Errors
    /// [`CertificateError`] if an authority cannot be used.
    pub fn new(options: ClientOptions) -> Result<ClientTls, CertificateError> {
        let builder = ClientConfig::builder_with_provider(PROVIDER.clone())
            .with_protocol_versions(options.profile.versions())
            .map_err(|error| CertificateError::Unusable(error.to_string()))?
            .dangerous()
            .with_custom_certificate_verifier(Arc::new(ServerVerifier::new(&options.trust)?));
        let mut config = match &options.certificate {
            None => builder.with_no_client_auth(),
            Some(certificate) => builder.with_client_cert_resolver(Arc::new(
                rustls::sign::SingleCertAndKey::from(Arc::clone(certificate.key())),
            )),
        };
        config.alpn_protocols = options.protocols.alpn();
        config.resumption = Resumption::disabled();
        Ok(ClientTls(Arc::new(Inner { options, config: Arc::new(config) })))
    }

    /// The same with another certificate.
    ///
    /// # Errors
    /// As [`ClientTls::new`].
    pub fn with_certificate(&self, new: Certificate) -> Result<ClientTls, CertificateError> {
        ClientTls::new(ClientOptions { certificate: Some(new), ..self.0.options.clone() })
    }

    /// For handshakes in full, which verify the server each time.
    pub fn config(&self) -> &Arc<ClientConfig> {
        &self.0.config
    }

    /// For handshakes with one server; it remembers the server's sessions. Tickets of one server
    /// are useless to another of the same name.
    pub fn config_for_one(&self) -> Arc<ClientConfig> {
        let mut config = ClientConfig::clone(&self.0.config);
        config.resumption = Resumption::in_memory_sessions(SESSIONS_KEPT);
        Arc::new(config)
    }

    /// The certificate for servers.
    pub fn certificate(&self) -> Option<&Certificate> {
        self.0.options.certificate.as_ref()
    }

    /// The name to ask a server for: the stated one, otherwise the host name or the IP address by
    /// which it is reached, `localhost` for neither (a unix socket).
    pub fn server_name(&self, host: Option<&str>, ip: Option<IpAddr>) -> ServerName<'static> {
        if let Some(stated) = &self.0.options.server_name {
            return stated.clone();
        }
        let by_host = host.and_then(|host| ServerName::try_from(host.to_string()).ok());
        let by_ip = || ip.map(|ip| ServerName::IpAddress(ip.into()));
        by_host.or_else(by_ip).unwrap_or_else(|| ServerName::try_from("localhost").expect("a name"))
    }

    /// Whether both are the same object; cheaper than a comparison.
    pub fn is_same(&self, other: &ClientTls) -> bool {
        Arc::ptr_eq(&self.0, &other.0)
    }
}

impl PartialEq for ClientTls {
    fn eq(&self, other: &ClientTls) -> bool {
        self.is_same(other) || self.0.options == other.0.options
    }
}

impl Eq for ClientTls {}

impl fmt::Debug for ClientTls {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let trust = match &self.0.options.trust {
            Trust::Authorities(all) => format!("{} authorities", all.len()),
            Trust::Anyone => "anyone".to_string(),
        };
        f.debug_struct("ClientTls")
            .field("trust", &trust)
            .field("certificate", &self.0.options.certificate)
            .field("profile", &self.0.options.profile)
            .field("server_name", &self.0.options.server_name)
            .field("protocols", &self.0.options.protocols)
            .finish()
    }
}

#[cfg(test)]
mod tests;
