//! TLS of a listener.

use std::fmt;
use std::sync::Arc;

use rustls::server::NoServerSessionStorage;
use rustls::{Error, ServerConfig};

use crate::automatic::{AutomaticName, awaited};
use crate::certificate::Certificate;
use crate::clients::Clients;
use crate::names::ByName;
use crate::profile::{PROVIDER, Profile};
use crate::tickets::{ListenerTickets, TicketNames, Tickets};

/// The application protocols of a listener, or those that a client offers, as in ALPN.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Protocols {
    /// The client's choice is neither read nor answered.
    #[default]
    Any,
    /// HTTP/1.1. A client that offers only others is refused; one that offers none is served.
    Http1,
    /// HTTP/2, else HTTP/1.1. A client that offers neither is refused; one that offers none is
    /// served.
    Http2,
    /// HTTP/2 alone.
    OnlyHttp2,
}

impl Protocols {
    /// Their names, the preferred one first.
    pub fn alpn(self) -> Vec<Vec<u8>> {
        match self {
            Protocols::Any => Vec::new(),
            Protocols::Http1 => vec![b"http/1.1".to_vec()],
            Protocols::Http2 => vec![b"h2".to_vec(), b"http/1.1".to_vec()],
            Protocols::OnlyHttp2 => vec![b"h2".to_vec()],
        }
    }
}

/// Options of a listener.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct TlsOptions {
    /// Certificates of clients; `None`: clients are not asked for any.
    pub clients: Option<Clients>,
    /// Versions and suites.
    pub profile: Profile,
    /// Refuse clients that ask for no name or for one that no certificate has.
    pub strict: bool,
    /// Application protocols.
    pub protocols: Protocols,
    /// Names with certificates that may come later.
    pub automatic: Vec<AutomaticName>,
}

/// TLS of a listener. Two are equal if they have the same options and certificates, whichever keys
/// their tickets have.
#[derive(Clone)]
pub struct ServerTls {
    options: TlsOptions,
    certificates: Arc<[Certificate]>,
    config: Arc<ServerConfig>,
    by_name: Arc<ByName>,
    tickets: Tickets,
}

impl ServerTls {
    /// With at least one certificate, the default first, or with automatic names. Certificates of
    /// automatic names stand behind the others, in the order of the names.
    ///
    /// # Errors
    /// The operating system has no random numbers for the keys of session tickets, or the
    /// authorities of clients cannot be used.
    pub fn new(options: TlsOptions, certificates: Vec<Certificate>) -> Result<ServerTls, Error> {
        let certificates = in_order(certificates, &options);
        let by_name =
            Arc::new(ByName::new(Arc::clone(&certificates), options.strict, &options.automatic));
        let builder = ServerConfig::builder_with_provider(PROVIDER.clone())
            .with_protocol_versions(options.profile.versions())?;
        let verifier = options.clients.as_ref().map(Clients::verifier).transpose();
        let builder = match verifier.map_err(|error| Error::General(error.to_string()))? {
            Some(verifier) => builder.with_client_cert_verifier(verifier),
            None => builder.with_no_client_auth(),
        };
        let mut config = builder.with_cert_resolver(Arc::clone(&by_name) as _);
        // Clients keep their sessions as tickets. There is no memory of sessions here.
        let tickets = Tickets::new().map_err(|_| Error::FailedToGetRandomBytes)?;
        let names = names(&certificates, &options);
        config.ticketer = ListenerTickets::new(&tickets, &names, options.clients.as_ref());
        config.session_storage = Arc::new(NoServerSessionStorage {});
        config.alpn_protocols = options.protocols.alpn();
        Ok(ServerTls { options, certificates, config: Arc::new(config), by_name, tickets })
    }

    /// The same with tickets by these keys, instead of keys of its own.
    #[must_use]
    pub fn with_tickets(&self, tickets: &Tickets) -> ServerTls {
        let mut new = self.clone();
        new.tickets = tickets.clone();
        let names = names(&new.certificates, &new.options);
        let ticketer = ListenerTickets::new(tickets, &names, new.options.clients.as_ref());
        Arc::make_mut(&mut new.config).ticketer = ticketer;
        new
    }

    /// The names by which this listener shares its tickets with other machines; `None`: it shares
    /// none, because a ticket stands for the certificate of its client.
    pub fn ticket_names(&self) -> Option<TicketNames> {
        let shares = self.options.clients.is_none();
        shares.then(|| names(&self.certificates, &self.options))
    }

    /// The same with other certificates. Tickets of clients stay valid if the names are the same.
    pub fn with_certificates(&self, certificates: Vec<Certificate>) -> ServerTls {
        let certificates = in_order(certificates, &self.options);
        let by_name =
            ByName::new(Arc::clone(&certificates), self.options.strict, &self.options.automatic);
        let by_name = Arc::new(by_name);
        let mut config = ServerConfig::clone(&self.config);
        config.cert_resolver = Arc::clone(&by_name) as _;
        let (options, config) = (self.options.clone(), Arc::new(config));
        let new =
            ServerTls { options, certificates, config, by_name, tickets: self.tickets.clone() };
        new.with_tickets(&self.tickets)
    }

    /// The certificate for a client that asks for this name, in lower case, and accepts every kind
    /// of key. `None`: its handshake fails.
    pub fn certificate_for(&self, name: Option<&str>) -> Option<&Certificate> {
        let schemes = PROVIDER.signature_verification_algorithms.supported_schemes();
        self.by_name.pick(name, &schemes)
    }

    /// For handshakes.
    pub fn config(&self) -> &Arc<ServerConfig> {
        &self.config
    }

    /// For handshakes of QUIC with clients that speak HTTP/3. They use TLS 1.3, which each profile
    /// has, and no early data.
    pub fn http3(&self) -> Arc<ServerConfig> {
        let mut config = ServerConfig::clone(&self.config);
        config.alpn_protocols = vec![b"h3".to_vec()];
        Arc::new(config)
    }

    /// Whether clients are asked for certificates.
    pub fn asks_clients(&self) -> bool {
        self.options.clients.is_some()
    }

    /// The certificates, the default first.
    pub fn certificates(&self) -> &[Certificate] {
        &self.certificates
    }

    /// The names for which this process obtains certificates.
    pub fn automatic(&self) -> &[AutomaticName] {
        &self.options.automatic
    }

    /// The automatic names that have no certificate yet.
    pub fn awaited(&self) -> impl Iterator<Item = &AutomaticName> {
        awaited(&self.options.automatic, &self.certificates)
    }

    /// Whether a client that asks for this name has to wait for its first certificate.
    pub fn awaits(&self, name: Option<&str>) -> bool {
        self.certificates.is_empty()
            || self.awaited().any(|awaited| name.is_some_and(|name| awaited.covers(name)))
    }
}

/// Automatic certificates come last, in the order of the names.
fn in_order(mut certificates: Vec<Certificate>, options: &TlsOptions) -> Arc<[Certificate]> {
    certificates.sort_by_key(|it| {
        let place = options.automatic.iter().position(|name| it.files() == Some(&name.files));
        place.map(|place| place + 1)
    });
    certificates.into()
}

/// All names that its certificates are for, also those that are awaited.
fn names(certificates: &[Certificate], options: &TlsOptions) -> TicketNames {
    let awaited = options.automatic.iter().map(|it| it.name.clone());
    certificates.iter().flat_map(Certificate::ticket_names).chain(awaited).collect()
}

impl PartialEq for ServerTls {
    fn eq(&self, other: &ServerTls) -> bool {
        self.options == other.options && self.certificates == other.certificates
    }
}

impl Eq for ServerTls {}

impl fmt::Debug for ServerTls {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ServerTls")
            .field("options", &self.options)
            .field("certificates", &self.certificates)
            .finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests;
