//! Backends with TLS, and pools with TLS to them.

use std::net::SocketAddr;

use equipoise_session::config::{FrontDoor, Protocol, Upstream, UpstreamTls};
use equipoise_tls::{ClientOptions, ClientTls, Profile, Protocols, TlsOptions, Trust};
use rustls::pki_types::ServerName;

use crate::common::{Plan, Proxy};
use crate::common_tls::{NAME, Site};

/// A TCP front door with this TLS before `backend`: a TLS backend.
pub(crate) fn behind_tls(site: &Site, options: TlsOptions, backend: SocketAddr) -> Proxy {
    let plan = Plan::new(Upstream::Exclusive, &[backend]).front(|front| {
        *front = FrontDoor::new(front.listen, Protocol::Tcp, "web");
        front.tls = site.tls(options);
    });
    plan.start()
}

/// HTTP/1.1 with a backend that proves [`NAME`].
pub(crate) fn options(trust: Trust) -> ClientOptions {
    ClientOptions {
        trust,
        certificate: None,
        profile: Profile::default(),
        server_name: Some(ServerName::try_from(NAME).expect("a name")),
        protocols: Protocols::Http1,
    }
}

/// The TLS of a pool with these options.
pub(crate) fn to_backends(options: ClientOptions) -> Option<UpstreamTls> {
    Some(UpstreamTls::Server(ClientTls::new(options).expect("usable authorities")))
}
