use std::fmt;
use std::time::Duration;

use etcd_client::{Certificate, ConnectOptions, Identity, TlsOptions};

use crate::{KeyError, Prefix};

/// Addresses of etcd, and our credentials.
#[derive(Clone, Debug)]
pub struct EtcdOptions {
    /// `http://host:port` or `https://host:port` of the members; all with the same scheme.
    pub endpoints: Vec<String>,
    /// Folder of all our keys, so that several clusters can share one etcd.
    pub namespace: String,
    /// TLS options; required for `https` endpoints.
    pub tls: Option<EtcdTls>,
    /// User, for an etcd with authentication.
    pub user: Option<EtcdUser>,
    /// Timeout of a request, over all members.
    pub patience: Duration,
    /// Interval between probes of an idle connection, and timeout of each probe.
    pub probe: Duration,
}

/// Certificates, as PEM text.
#[derive(Clone)]
pub struct EtcdTls {
    /// Certificate of the authority that signed the members' certificates. The system's authorities
    /// are not used.
    pub authority_pem: String,
    /// Client certificate and key, for an etcd that requires them (`--client-cert-auth`).
    pub identity_pem: Option<(String, String)>,
    /// Name in the members' certificates, if it differs from the endpoint's host.
    pub server_name: Option<String>,
}

/// A user of etcd.
#[derive(Clone)]
pub struct EtcdUser {
    /// User name.
    pub name: String,
    /// Password.
    pub password: String,
}

/// Reason why the etcd store does not start.
#[derive(Debug, thiserror::Error)]
pub enum ConnectError {
    /// There is no endpoint.
    #[error("no etcd endpoint is given: name at least one, as in http://10.0.0.1:2379")]
    NoEndpoint,
    /// An endpoint is invalid, or its scheme differs from the others'.
    #[error("etcd endpoint {endpoint:?} {wrong}; accepted is {accepted}")]
    Endpoint {
        /// The endpoint.
        endpoint: String,
        /// Description of the error.
        wrong: &'static str,
        /// The expected format.
        accepted: &'static str,
    },
    /// The authority's file has no certificate.
    #[error(
        "the etcd authority has no certificate in it: it must be PEM, with -----BEGIN CERTIFICATE-----"
    )]
    NoAuthority,
    /// The namespace is not a valid folder name.
    #[error("the etcd namespace is not accepted")]
    Namespace(#[from] KeyError),
    /// A certificate or key is unusable.
    #[error(
        "the etcd client cannot be set up: are certificates and key PEM, and do they belong together?"
    )]
    SetUp(#[source] crate::Cause),
    /// No member answers the first request.
    #[error("cannot use etcd at {endpoints}")]
    Unusable {
        /// The endpoints.
        endpoints: String,
        /// Error of the first request.
        #[source]
        source: crate::StoreError,
    },
}

impl EtcdOptions {
    /// Makes options with these endpoints, without TLS or user, and a request timeout of 2 s.
    pub fn new(endpoints: impl IntoIterator<Item = impl Into<String>>) -> EtcdOptions {
        EtcdOptions {
            endpoints: endpoints.into_iter().map(Into::into).collect(),
            namespace: "equipoise".to_string(),
            tls: None,
            user: None,
            patience: Duration::from_secs(2),
            probe: Duration::from_secs(1),
        }
    }

    pub(super) fn check(&self) -> Result<Prefix, ConnectError> {
        if self.endpoints.is_empty() {
            return Err(ConnectError::NoEndpoint);
        }
        let is_pem = |tls: &EtcdTls| tls.authority_pem.contains("-----BEGIN CERTIFICATE-----");
        if !self.tls.as_ref().is_none_or(is_pem) {
            return Err(ConnectError::NoAuthority);
        }
        for endpoint in &self.endpoints {
            let (scheme, rest) = endpoint.split_once("://").unwrap_or_default();
            let wrong = match (scheme, self.tls.is_some()) {
                ("http", true) => Some("is not encrypted, but TLS options are given"),
                ("https", false) => {
                    Some("is encrypted, but no authority is given for its certificate")
                }
                ("http" | "https", _) if rest.is_empty() => Some("has no host"),
                ("http" | "https", _) => None,
                _ => Some("is no URL of a member"),
            };
            if let Some(wrong) = wrong {
                let accepted = match self.tls {
                    Some(_) => "https://HOST:PORT",
                    None => {
                        "http://HOST:PORT, or https://HOST:PORT with the authority's certificate"
                    }
                };
                let endpoint = endpoint.clone();
                return Err(ConnectError::Endpoint { endpoint, wrong, accepted });
            }
        }
        Ok(Prefix::of(&self.namespace)?)
    }

    pub(super) fn to_client(&self) -> ConnectOptions {
        let mut options = ConnectOptions::new()
            .with_connect_timeout(self.patience / 2)
            .with_keep_alive(self.probe, self.probe)
            .with_keep_alive_while_idle(true)
            // Makes a partitioned member end its watches instead of staying silent.
            .with_require_leader(true)
            .with_auto_token_refresh(true);
        if let Some(user) = &self.user {
            options = options.with_user(&user.name, &user.password);
        }
        if let Some(tls) = &self.tls {
            let authority = Certificate::from_pem(&tls.authority_pem);
            let mut client = TlsOptions::new().ca_certificate(authority);
            if let Some((certificate, key)) = &tls.identity_pem {
                client = client.identity(Identity::from_pem(certificate, key));
            }
            if let Some(name) = &tls.server_name {
                client = client.domain_name(name);
            }
            options = options.with_tls(client);
        }
        options
    }
}

impl fmt::Debug for EtcdTls {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("EtcdTls")
            .field("server_name", &self.server_name)
            .field("with_identity", &self.identity_pem.is_some())
            .finish_non_exhaustive()
    }
}

impl fmt::Debug for EtcdUser {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("EtcdUser").field("name", &self.name).finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn tls() -> EtcdTls {
        let identity_pem = Some(("certificate".to_string(), "secret key".to_string()));
        EtcdTls {
            authority_pem: "-----BEGIN CERTIFICATE-----".to_string(),
            identity_pem,
            server_name: None,
        }
    }

    #[test]
    fn an_authority_without_a_certificate_is_refused() {
        let mut options = EtcdOptions::new(["https://a:2379"]);
        options.tls = Some(EtcdTls { authority_pem: "path/to/ca.pem".to_string(), ..tls() });
        assert!(matches!(options.check(), Err(ConnectError::NoAuthority)));
    }

    #[test]
    fn endpoints_and_tls_must_agree() {
        let options = |endpoint: &str, tls| EtcdOptions { tls, ..EtcdOptions::new([endpoint]) };
        assert!(options("http://a:2379", None).check().is_ok());
        assert!(options("https://a:2379", Some(tls())).check().is_ok());
        for (endpoint, tls) in [
            ("https://a:2379", None),
            ("http://a:2379", Some(tls())),
            ("a:2379", None),
            ("http://", None),
            ("", None),
        ] {
            let error = options(endpoint, tls).check().unwrap_err();
            assert!(matches!(error, ConnectError::Endpoint { .. }), "{endpoint}: {error}");
        }
        let none: [&str; 0] = [];
        assert!(matches!(EtcdOptions::new(none).check(), Err(ConnectError::NoEndpoint)));
    }

    #[test]
    fn secrets_are_not_shown() {
        let mut options = EtcdOptions::new(["http://a:2379"]);
        options.tls = Some(tls());
        options.user = Some(EtcdUser { name: "edge".to_string(), password: "secret".to_string() });
        let shown = format!("{options:?}");
        assert!(shown.contains("edge") && !shown.contains("secret"), "{shown}");
    }
}
