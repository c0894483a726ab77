//! Peers of a cluster: its nodes, by the certificates that they have of it.

use std::sync::{Arc, Mutex, PoisonError};

use rustls::pki_types::CertificateDer;
use rustls::sign::CertifiedKey;
use rustls::{CertificateError, RootCertStore};
use tokio::sync::watch;

use super::{Fleet, PeerCredentials, PeerNames};
use crate::evicted::Evictions;
use crate::node::credentials::Credentials;
use crate::{Certified, Role};

/// By what this node has now, and what it knows of who was shut out.
#[derive(Debug)]
pub(crate) struct Members {
    own: watch::Receiver<Option<Arc<Credentials>>>,
    evicted: watch::Receiver<Evictions>,
    /// The evictions that were last looked at, and how often they were others.
    seen: Mutex<(u64, Evictions)>,
}

impl Members {
    pub(crate) fn credentials(
        own: watch::Receiver<Option<Arc<Credentials>>>,
        evicted: watch::Receiver<Evictions>,
    ) -> PeerCredentials {
        let seen = Mutex::new((0, evicted.borrow().clone()));
        PeerCredentials::new(rand::random(), Arc::new(Members { own, evicted, seen }))
    }
}

impl Fleet for Members {
    fn own(&self) -> Option<Arc<CertifiedKey>> {
        self.own.borrow().as_ref().map(|own| Arc::clone(&own.key))
    }

    fn authorities(&self) -> Option<Arc<RootCertStore>> {
        self.own.borrow().as_ref().map(|own| Arc::clone(&own.roots))
    }

    fn read(&self, certificate: &CertificateDer<'_>) -> Result<PeerNames, CertificateError> {
        let refused = CertificateError::ApplicationVerificationFailure;
        let certified = Certified::of(certificate).map_err(|_| refused.clone())?;
        let own = self.own.borrow().clone();
        let cluster = own.map(|own| own.certified.identity.cluster.clone());
        let identity = &certified.identity;
        if identity.role != Role::Node || Some(&identity.cluster) != cluster.as_ref() {
            return Err(refused);
        }
        if self.evicted.borrow().has(&certified) {
            return Err(CertificateError::Revoked);
        }
        let nodes = vec![identity.name.to_string()];
        Ok(PeerNames { nodes, valid_until: certified.valid_until })
    }

    fn epoch(&self) -> u64 {
        let now = self.evicted.borrow();
        let mut seen = self.seen.lock().unwrap_or_else(PoisonError::into_inner);
        if seen.1 != *now {
            *seen = (seen.0 + 1, now.clone());
        }
        seen.0
    }
}
