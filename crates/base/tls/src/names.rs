//! The choice of a certificate for a handshake, by the name and the signatures of the client.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::SystemTime;

use rustls::SignatureScheme;
use rustls::server::{ClientHello, ResolvesServerCert};
use rustls::sign::CertifiedKey;

use crate::automatic::{AutomaticName, awaited};
use crate::certificate::Certificate;

/// Certificates by the names that they are valid for.
#[derive(Debug)]
pub(crate) struct ByName {
    all: Arc<[Certificate]>,
    /// Places in `all`, best key first.
    exact: HashMap<String, Vec<usize>>,
    /// By the part of a wildcard behind `*.`.
    wildcard: HashMap<String, Vec<usize>>,
    /// The certificates for other names; empty: the handshake fails.
    default: Vec<usize>,
    /// Automatic names without a certificate yet. Clients get no other one for them.
    awaited: Vec<AutomaticName>,
}

impl ByName {
    /// The first certificate is the default, with others for the same name, unless it is `strict`.
    pub(crate) fn new(
        all: Arc<[Certificate]>,
        strict: bool,
        automatic: &[AutomaticName],
    ) -> ByName {
        let (mut exact, mut wildcard) = (HashMap::new(), HashMap::new());
        let mut places: Vec<usize> = (0..all.len()).collect();
        places.sort_by_key(|place| (all[*place].kind(), *place));
        for place in places {
            for name in all[place].names() {
                let (map, name): (&mut HashMap<String, Vec<usize>>, _) =
                    match name.strip_prefix("*.") {
                        Some(parent) => (&mut wildcard, parent),
                        None => (&mut exact, name.as_str()),
                    };
                map.entry(name.to_string()).or_default().push(place);
            }
        }
        let first = all.first().and_then(|it| it.names().first());
        let of_first = first.and_then(|name| match name.strip_prefix("*.") {
            Some(parent) => wildcard.get(parent),
            None => exact.get(name),
        });
        let default = match of_first {
            _ if strict || all.is_empty() => Vec::new(),
            Some(places) => places.clone(),
            None => vec![0],
        };
        let awaited = awaited(automatic, &all).cloned().collect();
        ByName { all, exact, wildcard, default, awaited }
    }

    /// The best certificate for this name with a signature that the client accepts.
    pub(crate) fn pick(
        &self,
        name: Option<&str>,
        schemes: &[SignatureScheme],
    ) -> Option<&Certificate> {
        let exact = name.and_then(|name| self.exact.get(name));
        // A wildcard stands for one label (RFC 6125, section 6.4.3).
        let parent = name.and_then(|name| Some(name.split_once('.')?.1));
        let wildcard = parent.and_then(|parent| self.wildcard.get(parent));
        let named = exact.into_iter().chain(wildcard).flatten();
        let is_awaited = name.is_some_and(|name| self.awaited.iter().any(|it| it.covers(name)));
        let is_named = exact.is_some() || wildcard.is_some();
        let default = self.default.iter().filter(|_| !is_named && !is_awaited);
        let candidates = named.chain(default).map(|place| &self.all[*place]);
        let is_accepted = |it: &&Certificate| it.key().key.choose_scheme(schemes).is_some();
        // Without an acceptable one, rustls reports what the two sides do not have in common.
        candidates.clone().find(is_accepted).or_else(|| candidates.clone().next())
    }
}

impl ResolvesServerCert for ByName {
    fn resolve(&self, hello: ClientHello<'_>) -> Option<Arc<CertifiedKey>> {
        let picked = self.pick(hello.server_name(), hello.signature_schemes());
        picked.map(|certificate| Arc::clone(certificate.presented(SystemTime::now())))
    }
}

#[cfg(test)]
mod tests;
