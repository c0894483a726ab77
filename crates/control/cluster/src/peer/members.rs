//! Peers of a cluster: its nodes, identified by their certificates.

use std::sync::Arc;
use std::sync::atomic::AtomicU64;
use std::sync::atomic::Ordering::{Acquire, Release};

use rustls::pki_types::CertificateDer;
use rustls::sign::CertifiedKey;
use rustls::{CertificateError, RootCertStore};
use tokio::sync::watch;

use super::{Fleet, PeerCredentials, PeerNames};
use crate::evicted::Evictions;
use crate::node::credentials::Credentials;
use crate::{Certified, Role};

/// Members by this node's current credentials, and the known evictions.
#[derive(Debug)]
pub(crate) struct Members {
    own: watch::Receiver<Option<Arc<Credentials>>>,
    evicted: watch::Receiver<Evictions>,
    /// Number of changes of the above. It is read for each request, and so without a lock.
    epoch: Arc<AtomicU64>,
}

impl Members {
    /// Must be called on a runtime. A task follows evictions as long as their sender lives.
    pub(crate) fn credentials(
        own: watch::Receiver<Option<Arc<Credentials>>>,
        evicted: watch::Receiver<Evictions>,
    ) -> PeerCredentials {
        let epoch = Arc::<AtomicU64>::default();
        let (mut changes, rising) = (evicted.clone(), Arc::clone(&epoch));
        tokio::spawn(async move {
            while changes.changed().await.is_ok() {
                rising.fetch_add(1, Release);
            }
        });
        PeerCredentials::new(rand::random(), Arc::new(Members { own, evicted, epoch }))
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
        self.epoch.load(Acquire)
    }
}
