//! Answers to the challenges by which an ACME directory verifies control over a name.

use std::collections::HashMap;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use rustls::pki_types::{CertificateDer, PrivateKeyDer};
use rustls::server::{ClientHello, NoServerSessionStorage};
use rustls::sign::{CertifiedKey, SingleCertAndKey};
use rustls::{Error, ServerConfig};

use crate::profile::PROVIDER;

/// The application protocol of TLS-ALPN-01 (RFC 8737, section 3).
const ACME_TLS: &[u8] = b"acme-tls/1";

/// The answers of this process, which every thread may read. Clones share them.
///
/// Front doors read the answers only for a path of HTTP-01, and for a handshake while
/// [`Challenges::expects_handshakes`].
#[derive(Clone, Debug, Default)]
pub struct Challenges(Arc<Shared>);

#[derive(Debug, Default)]
struct Shared {
    expects_handshakes: AtomicBool,
    answers: Mutex<Answers>,
}

#[derive(Debug, Default)]
struct Answers {
    /// Key authorizations by token.
    http: HashMap<String, String>,
    /// Configurations with the certificate of the challenge, by name.
    tls: HashMap<String, Arc<ServerConfig>>,
    /// TXT records: name and text.
    texts: Vec<(String, String)>,
}

/// The key of an answer.
#[derive(Debug)]
enum Key {
    Http(String),
    Tls(String),
    Text(String, String),
}

/// Withdraws its answer when it is dropped.
#[derive(Debug)]
#[must_use]
pub struct ChallengeAnswer {
    challenges: Challenges,
    key: Key,
}

impl Challenges {
    /// Answers HTTP-01 (RFC 8555, section 8.3).
    pub fn answer_http(&self, token: &str, key_authorization: &str) -> ChallengeAnswer {
        self.answers().http.insert(token.into(), key_authorization.into());
        self.answer(Key::Http(token.into()))
    }

    /// Answers TLS-ALPN-01 (RFC 8737, section 3) with the certificate for the challenge.
    ///
    /// # Errors
    /// The key cannot be used.
    pub fn answer_tls(
        &self,
        name: &str,
        certificate: CertificateDer<'static>,
        key: PrivateKeyDer<'static>,
    ) -> Result<ChallengeAnswer, Error> {
        // `with_single_cert` would refuse the critical extension of the challenge.
        let key = PROVIDER.key_provider.load_private_key(key)?;
        let key = SingleCertAndKey::from(CertifiedKey::new(vec![certificate], key));
        let mut config = ServerConfig::builder_with_provider(PROVIDER.clone())
            .with_safe_default_protocol_versions()?
            .with_no_client_auth()
            .with_cert_resolver(Arc::new(key));
        config.alpn_protocols = vec![ACME_TLS.to_vec()];
        config.session_storage = Arc::new(NoServerSessionStorage {});
        config.send_tls13_tickets = 0;
        let mut answers = self.answers();
        answers.tls.insert(name.into(), Arc::new(config));
        self.0.expects_handshakes.store(true, Relaxed);
        drop(answers);
        Ok(self.answer(Key::Tls(name.into())))
    }

    /// Answers DNS-01 (RFC 8555, section 8.4) with a TXT record of this name.
    pub fn answer_query(&self, name: &str, text: &str) -> ChallengeAnswer {
        self.answers().texts.push((name.into(), text.into()));
        self.answer(Key::Text(name.into(), text.into()))
    }

    /// The TXT records of DNS-01: name and text.
    pub fn texts(&self) -> Vec<(String, String)> {
        self.answers().texts.clone()
    }

    /// The body of the answer to HTTP-01 with this token.
    pub fn key_authorization(&self, token: &str) -> Option<String> {
        self.answers().http.get(token).cloned()
    }

    /// Whether a TLS-ALPN-01 challenge is answered at present.
    pub fn expects_handshakes(&self) -> bool {
        self.0.expects_handshakes.load(Relaxed)
    }

    /// The configuration for a client, if its handshake is a TLS-ALPN-01 challenge. The connection
    /// ends after such a handshake.
    pub fn handshake(&self, hello: &ClientHello<'_>) -> Option<Arc<ServerConfig>> {
        // It is the only protocol that a directory offers (RFC 8737, section 3).
        let mut offered = hello.alpn()?;
        if offered.next() != Some(ACME_TLS) || offered.next().is_some() {
            return None;
        }
        self.answers().tls.get(hello.server_name()?).cloned()
    }

    fn answer(&self, key: Key) -> ChallengeAnswer {
        ChallengeAnswer { challenges: self.clone(), key }
    }

    fn answers(&self) -> MutexGuard<'_, Answers> {
        // No update can be left half done.
        self.0.answers.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Drop for ChallengeAnswer {
    fn drop(&mut self) {
        let mut answers = self.challenges.answers();
        match &self.key {
            Key::Http(token) => drop(answers.http.remove(token)),
            Key::Tls(name) => drop(answers.tls.remove(name)),
            Key::Text(name, text) => {
                let is_it = |it: &(String, String)| it.0 == *name && it.1 == *text;
                if let Some(place) = answers.texts.iter().position(is_it) {
                    answers.texts.swap_remove(place);
                }
            }
        }
        self.challenges.0.expects_handshakes.store(!answers.tls.is_empty(), Relaxed);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_answer_lasts_as_long_as_its_guard() {
        let challenges = Challenges::default();
        let first = challenges.answer_http("a", "a.key");
        let second = challenges.clone().answer_http("b", "b.key");
        assert_eq!(challenges.key_authorization("a").as_deref(), Some("a.key"));
        drop(first);
        assert_eq!(challenges.key_authorization("a"), None);
        assert_eq!(challenges.key_authorization("b").as_deref(), Some("b.key"));
        drop(second);
        assert_eq!(challenges.key_authorization("b"), None);
        assert!(!challenges.expects_handshakes());
    }
}
