//! A node's certificate: requested by joining, stored in its folder, renewed in time.

use std::sync::Arc;
use std::time::{Duration, SystemTime};

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use equipoise_basics::with_causes;
use hyper::Method;
use rand::seq::SliceRandom;
use rcgen::{CertificateParams, KeyPair, PublicKeyData};
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, PrivateKeyDer, PrivatePkcs8KeyDer};
use rustls::sign::CertifiedKey;
use rustls::{ClientConfig, RootCertStore};
use tokio::time::sleep;

use super::{Inner, NoToken, TokenSource};
use crate::backoff::Backoff;
use crate::client::{ClientError, Connection, json};
use crate::folder::{FolderError, StateFile};
use crate::identity::NotCertified;
use crate::tls::{TlsError, Trust, client, roots, showable};
use crate::wire::{JOIN, JoinRequest, Joined, RENEW, RenewRequest};
use crate::{Certified, Fingerprint, JoinToken, Name, Role, StateFolder};

/// Credentials of a node towards controllers and peers.
#[derive(Debug)]
pub(crate) struct Credentials {
    pub(crate) tls: Arc<ClientConfig>,
    /// The certificate and key for peers.
    pub(crate) key: Arc<CertifiedKey>,
    pub(crate) roots: Arc<RootCertStore>,
    pub(crate) certified: Certified,
}

/// The reason why a node has no usable certificate.
#[derive(Debug, thiserror::Error)]
pub(crate) enum NoCertificate {
    #[error(transparent)]
    Folder(#[from] FolderError),
    #[error(transparent)]
    Token(#[from] NoToken),
    #[error("{0} is not valid PEM; remove it and join again")]
    Pem(std::path::PathBuf),
    #[error("{0} is not a certificate of a cluster; remove it and join again")]
    Foreign(std::path::PathBuf, #[source] NotCertified),
    #[error(
        "the certificate in {folder} is {whose}, but this is the node {name}; check `instance.name`. The node joins again if it has a token"
    )]
    Other { folder: std::path::PathBuf, whose: String, name: Name },
    #[error("the certificate in {folder} expired {ago:?} ago, while this node was away")]
    Ended { folder: std::path::PathBuf, ago: Duration },
    #[error("a controller accepted the node, but its answer is not a valid certificate: {0}")]
    Answer(&'static str),
    #[error("cannot make a key or a signing request")]
    Key(#[from] rcgen::Error),
    #[error(transparent)]
    Tls(#[from] TlsError),
    #[error("no controller accepted the node; the last error: {0}")]
    Unreachable(ClientError),
    #[error("{0}")]
    Refused(ClientError),
    #[error("no controller is configured")]
    NoController,
}

/// Reads the certificate in the folder. `None` if the node never joined.
pub(crate) fn load(
    folder: &StateFolder,
    name: &Name,
) -> Result<Option<Credentials>, NoCertificate> {
    let file = StateFile::NodeCertificate;
    if !folder.has(file) {
        return Ok(None);
    }
    let certificate = certificate(folder, file)?;
    let path = folder.path_of(file);
    let certified =
        Certified::of(&certificate).map_err(|error| NoCertificate::Foreign(path.clone(), error))?;
    if certified.identity.role != Role::Node || certified.identity.name != *name {
        let (folder, whose) = (path, certified.identity.to_string());
        return Err(NoCertificate::Other { folder, whose, name: name.clone() });
    }
    if let Ok(ago) = SystemTime::now().duration_since(certified.valid_until) {
        return Err(NoCertificate::Ended { folder: path, ago });
    }
    let authority = self::certificate(folder, StateFile::AuthorityCertificate)?;
    let key = own_key(folder)?;
    if Fingerprint::of_key(&key.subject_public_key_info()) != certified.key {
        return Err(NoCertificate::Pem(folder.path_of(StateFile::NodeKey)));
    }
    credentials(certificate, authority, &key, certified).map(Some)
}

fn certificate(
    folder: &StateFolder,
    file: StateFile,
) -> Result<CertificateDer<'static>, NoCertificate> {
    let text = folder.read(file)?;
    let parsed = CertificateDer::from_pem_slice(text.as_bytes());
    parsed.map_err(|_| NoCertificate::Pem(folder.path_of(file)))
}

fn own_key(folder: &StateFolder) -> Result<KeyPair, NoCertificate> {
    let text = folder.read(StateFile::NodeKey)?;
    KeyPair::from_pem(&text).map_err(|_| NoCertificate::Pem(folder.path_of(StateFile::NodeKey)))
}

fn credentials(
    certificate: CertificateDer<'static>,
    authority: CertificateDer<'static>,
    key: &KeyPair,
    certified: Certified,
) -> Result<Credentials, NoCertificate> {
    let key = PrivateKeyDer::Pkcs8(PrivatePkcs8KeyDer::from(key.serialize_der()));
    Ok(Credentials::new(vec![certificate], authority, key, certified)?)
}

impl Credentials {
    /// Credentials with a certificate chain up to the authority, and the key.
    pub(crate) fn new(
        chain: Vec<CertificateDer<'static>>,
        authority: CertificateDer<'static>,
        key: PrivateKeyDer<'static>,
        certified: Certified,
    ) -> Result<Credentials, TlsError> {
        let roots = Arc::new(roots(&authority)?);
        let shown = showable(chain.clone(), key.clone_key())?;
        let tls = client(&Trust::Authority(authority), Some((chain, key)))?;
        Ok(Credentials { tls, key: shown, roots, certified })
    }
}

/// The time at which to renew a certificate: after two thirds of its validity, so that controllers
/// may be away for the last third.
pub(crate) fn renew_at(certified: &Certified) -> SystemTime {
    let whole = certified.valid_until.duration_since(certified.valid_from).unwrap_or_default();
    certified.valid_from + whole * 2 / 3
}

/// Largest file of a join token, in bytes.
const TOKEN_BYTES_MAX: u64 = 64 << 10;

/// Longest sleep before a renewal, so that a change of the system clock is noticed.
const LOOK_AT_THE_CLOCK: Duration = Duration::from_secs(60);

/// Pause after a controller's refusal, or while there is no token.
const REFUSED_PAUSE: Duration = Duration::from_secs(5);

/// Joins if the node has not joined, and renews the certificate for ever.
pub(crate) async fn keep_certified(inner: Arc<Inner>) {
    let mut backoff = Backoff::new(inner.options.pauses.0, Duration::from_secs(30));
    let mut last_said = String::new();
    let mut say = |inner: &Inner, error: &NoCertificate| {
        let text = with_causes(error);
        inner.note(|status| status.certificate_problem = Some(text.clone()));
        if text != last_said {
            tracing::warn!("not in the cluster: {text}; traffic continues, trying again");
            last_said = text;
        }
    };
    match load(&inner.options.folder, &inner.options.name) {
        Ok(Some(found)) => install(&inner, found),
        Ok(None) => {}
        Err(error) => say(&inner, &error),
    }
    loop {
        let current = inner.credentials.borrow().clone();
        let now = SystemTime::now();
        let live = current.filter(|current| now < current.certified.valid_until);
        if let Some(live) = &live
            && let Ok(left) = renew_at(&live.certified).duration_since(now)
            && !left.is_zero()
        {
            sleep(left.min(LOOK_AT_THE_CLOCK)).await;
            continue;
        }
        let got = match &live {
            Some(live) => renew(&inner, live).await,
            None => join(&inner).await,
        };
        match got {
            Ok(new) => {
                let is_due = renew_at(&new.certified) <= SystemTime::now();
                install(&inner, new);
                backoff.reset();
                if is_due {
                    tracing::warn!(
                        "the new certificate is due for renewal at once: the clock of this \
                         machine is ahead of the controller's; set both by NTP"
                    );
                    sleep(LOOK_AT_THE_CLOCK).await;
                }
            }
            Err(error) => {
                say(&inner, &error);
                let mut pause = backoff.pause(&mut rand::rng());
                // An operator must act first.
                if let NoCertificate::Refused(_) | NoCertificate::Token(_) = error {
                    pause = pause.max(REFUSED_PAUSE);
                }
                sleep(pause).await;
            }
        }
    }
}

fn install(inner: &Inner, new: Credentials) {
    let until = new.certified.valid_until;
    tracing::info!(node = %new.certified.identity, "certified for the cluster");
    inner.note(|status| {
        (status.certificate_until, status.certificate_problem) = (Some(until), None);
    });
    inner.note_certified();
    inner.credentials.send_replace(Some(Arc::new(new)));
}

async fn join(inner: &Inner) -> Result<Credentials, NoCertificate> {
    let token = token(inner.options.token.as_ref())?;
    let folder = &inner.options.folder;
    // The key is stored before it is used, so that a request can be repeated with the same key if
    // the answer is lost.
    if !folder.has(StateFile::NodeKey) {
        folder.create(StateFile::NodeKey, &KeyPair::generate()?.serialize_pem())?;
    }
    let key = own_key(folder)?;
    let body = json(&JoinRequest {
        token: token.reveal(),
        name: inner.options.name.clone(),
        request: signing_request(&key)?,
    });
    let tls = client(&Trust::Pinned(token.authority()), None)?;
    let joined = ask_any(inner, &tls, JOIN, &body).await?;
    keep(inner, &key, token.authority(), &joined)
}

async fn renew(inner: &Inner, current: &Credentials) -> Result<Credentials, NoCertificate> {
    let folder = &inner.options.folder;
    let key = own_key(folder)?;
    let authority = certificate(folder, StateFile::AuthorityCertificate)?;
    let path = folder.path_of(StateFile::AuthorityCertificate);
    let authority = Certified::of(&authority).map_err(|e| NoCertificate::Foreign(path, e))?.key;
    let body = json(&RenewRequest { request: signing_request(&key)? });
    let joined = ask_any(inner, &current.tls, RENEW, &body).await?;
    keep(inner, &key, authority, &joined)
}

/// Asks the controllers in turn. The first that answers decides; those that are unreachable or have
/// no store are skipped.
async fn ask_any(
    inner: &Inner,
    tls: &Arc<ClientConfig>,
    path: &str,
    body: &hyper::body::Bytes,
) -> Result<Joined, NoCertificate> {
    let mut controllers = inner.options.controllers.clone();
    controllers.shuffle(&mut rand::rng());
    let mut last = None;
    for address in &controllers {
        let asked = async {
            let mut connection = Connection::open(address, tls, inner.options.patience).await?;
            connection.ask::<Joined>(Method::POST, path, body.clone()).await
        };
        inner.note_tried(address);
        let answered = asked.await;
        if answered.as_ref().err().is_none_or(|error| error.status().is_some()) {
            inner.note_heard(address);
        }
        match answered {
            Ok(joined) => return Ok(joined),
            Err(error) if matches!(error.status(), Some(400..=403)) => {
                return Err(NoCertificate::Refused(error));
            }
            Err(error) => last = Some(error),
        }
    }
    Err(last.map_or(NoCertificate::NoController, NoCertificate::Unreachable))
}

/// Checks and stores a controller's answer.
fn keep(
    inner: &Inner,
    key: &KeyPair,
    pinned: Fingerprint,
    joined: &Joined,
) -> Result<Credentials, NoCertificate> {
    let parse = |pem: &str| {
        let der = CertificateDer::from_pem_slice(pem.as_bytes()).ok()?;
        let certified = Certified::of(&der).ok()?;
        Some((der, certified))
    };
    let answer = NoCertificate::Answer;
    let (certificate, certified) =
        parse(&joined.certificate).ok_or(answer("its certificate is unreadable"))?;
    let (authority, of_authority) =
        parse(&joined.authority).ok_or(answer("the authority's certificate is unreadable"))?;
    let identity = &certified.identity;
    if identity.role != Role::Node || identity.name != inner.options.name {
        return Err(answer("it is for somebody else"));
    }
    if certified.key != Fingerprint::of_key(&key.subject_public_key_info()) {
        return Err(answer("it is for another key"));
    }
    if of_authority.key != pinned || of_authority.identity.role != Role::Authority {
        return Err(answer("it is of another authority"));
    }
    // In this order, so that a stored certificate is always complete.
    let folder = &inner.options.folder;
    folder.replace(StateFile::AuthorityCertificate, &joined.authority)?;
    folder.replace(StateFile::NodeCertificate, &joined.certificate)?;
    credentials(certificate, authority, key, certified)
}

fn signing_request(key: &KeyPair) -> Result<String, NoCertificate> {
    let request = CertificateParams::default().serialize_request(key)?;
    Ok(STANDARD.encode(request.der()))
}

fn token(source: Option<&TokenSource>) -> Result<JoinToken, NoToken> {
    match source {
        None => Err(NoToken::NotGiven),
        Some(TokenSource::Given(token)) => Ok(token.clone()),
        Some(TokenSource::File(path)) => {
            let text = equipoise_basics::files::read_text(path, TOKEN_BYTES_MAX)
                .map_err(|source| NoToken::File { path: path.clone(), source })?;
            text.parse().map_err(|source| NoToken::Content { path: path.clone(), source })
        }
    }
}

#[cfg(test)]
mod tests {
    use std::time::UNIX_EPOCH;

    use super::*;

    #[test]
    fn a_third_of_a_certificates_time_is_left_when_it_is_renewed() {
        let at = |seconds| UNIX_EPOCH + Duration::from_secs(seconds);
        let certified = Certified {
            identity: "equipoise://prod/node/a".parse().unwrap(),
            valid_from: at(1000),
            valid_until: at(1900),
            key: Fingerprint::of_key(b"key"),
        };
        assert_eq!(renew_at(&certified), at(1600));
    }
}
