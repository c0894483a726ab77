//! The access rules in force, and their decisions about callers.

use std::net::IpAddr;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::sync::{Mutex, PoisonError, RwLock};
use std::time::{Duration, Instant};

use equipoise_basics::lock;

use super::certificate::{self, ApiClient, ClientCertificate};
use super::throttle::Throttle;
use super::token::{self, ApiToken};
use super::{Caller, Peer, Role, Who};

/// Access rules for TCP.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Policy {
    /// Accepted tokens. If there are any tokens or clients, every request over TCP must carry a
    /// token, or come with the certificate of a client. Without both, TCP is read-only, loopback
    /// included, because every user of the machine can reach it.
    pub tokens: Vec<ApiToken>,
    /// Callers with client certificates.
    pub clients: Vec<ApiClient>,
    /// Largest number of requests with unknown tokens for each source and minute. Further ones are
    /// rejected without evaluation.
    pub failures_per_minute: u32,
}

impl Default for Policy {
    fn default() -> Self {
        Policy { tokens: Vec::new(), clients: Vec::new(), failures_per_minute: 60 }
    }
}

impl Policy {
    /// The caller over TCP that these credentials identify. Credentials of a kind that the policy
    /// does not know are ignored.
    fn know(&self, shown: Shown<'_>) -> Result<Caller, Unknown> {
        let token = shown.token.filter(|_| !self.tokens.is_empty());
        let certificate = shown.certificate.filter(|_| !self.clients.is_empty());
        match (token, certificate) {
            (Some(token), _) => {
                let token = token::find(&self.tokens, token).ok_or(Unknown::WrongToken)?;
                Ok(Caller { who: Who::Token(token.name.clone()), role: Some(token.role) })
            }
            (None, Some(certificate)) => {
                let client = certificate::find(&self.clients, certificate);
                let client = client.ok_or(Unknown::Certificate)?;
                Ok(Caller { who: Who::Client(client.name.clone()), role: Some(client.role) })
            }
            (None, None) if self.tokens.is_empty() && self.clients.is_empty() => {
                Ok(Caller { who: Who::Anonymous, role: Some(Role::Read) })
            }
            (None, None) => Err(Unknown::NoToken),
        }
    }
}

/// The policy in force, and counts of failures.
#[derive(Debug, Default)]
pub struct Gate {
    policy: RwLock<Policy>,
    throttle: Mutex<Throttle>,
    turned_away: [AtomicU64; TurnedAwayFor::ALL.len()],
}

/// Reasons why callers were rejected.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum TurnedAwayFor {
    NoToken,
    WrongToken,
    /// Its certificate is none of a client.
    Certificate,
    /// The TLS handshake failed, or took too long.
    Handshake,
    TooMany,
    /// The role of its token, its certificate or its kind of peer does not suffice.
    Role,
    /// The request itself, before authentication: for example, it comes from another site's page.
    Request,
    /// Its connection was silent for longest when another one needed room.
    Silent,
    /// All other connections were being answered.
    NoRoom,
}

impl TurnedAwayFor {
    const ALL: [(TurnedAwayFor, &str); 9] = [
        (TurnedAwayFor::NoToken, "no_token"),
        (TurnedAwayFor::WrongToken, "wrong_token"),
        (TurnedAwayFor::Certificate, "certificate"),
        (TurnedAwayFor::Handshake, "handshake"),
        (TurnedAwayFor::TooMany, "too_many"),
        (TurnedAwayFor::Role, "role"),
        (TurnedAwayFor::Request, "request"),
        (TurnedAwayFor::Silent, "silent"),
        (TurnedAwayFor::NoRoom, "no_room"),
    ];
}

/// Reasons why a caller is unknown.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Unknown {
    /// A token is required and missing.
    NoToken,
    /// The token is not one of the accepted tokens.
    WrongToken,
    /// The certificate is none of a client.
    Certificate,
    /// The source has failed too often.
    TooMany {
        /// Time until it may fail again.
        after: Duration,
    },
}

/// The credentials of a request.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Shown<'r> {
    /// The bearer token.
    pub(crate) token: Option<&'r [u8]>,
    /// The verified certificate of the connection.
    pub(crate) certificate: Option<&'r ClientCertificate>,
}

impl Gate {
    /// A gate with this policy.
    pub fn new(policy: Policy) -> Gate {
        Gate { policy: RwLock::new(policy), ..Gate::default() }
    }

    /// Sets the policy, from the next request on.
    pub fn set(&self, policy: Policy) {
        *self.policy.write().unwrap_or_else(PoisonError::into_inner) = policy;
    }

    /// Counts of rejected callers by reason, zeros included.
    pub fn turned_away(&self) -> Vec<(&'static str, u64)> {
        let count = |(why, word): (TurnedAwayFor, &'static str)| {
            (word, self.turned_away[why as usize].load(Relaxed))
        };
        TurnedAwayFor::ALL.into_iter().map(count).collect()
    }

    /// Counts a connection that was closed to make room for another.
    pub(crate) fn count_evicted(&self) {
        self.count(TurnedAwayFor::Silent);
    }

    /// Counts a connection that was refused for lack of room.
    pub(crate) fn count_refused(&self) {
        self.count(TurnedAwayFor::NoRoom);
    }

    /// Counts a connection whose TLS handshake failed.
    pub(crate) fn count_handshake(&self) {
        self.count(TurnedAwayFor::Handshake);
    }

    fn count(&self, why: TurnedAwayFor) {
        self.turned_away[why as usize].fetch_add(1, Relaxed);
    }

    /// Identifies a peer that shows these credentials; a token decides before a certificate. A
    /// known token is always accepted, however many unknown ones its source has sent. Tokens are
    /// too long to guess. The limit only protects logs and CPU, and a broken client must not lock
    /// out others behind the same address.
    pub(crate) fn know(
        &self,
        peer: Peer,
        shown: Shown<'_>,
        now: Instant,
    ) -> Result<Caller, Unknown> {
        let address = match peer {
            Peer::Unix { uid, .. } => {
                return Ok(Caller { who: Who::User(uid), role: Some(Role::Admin) });
            }
            Peer::Tcp { address, .. } => address.ip(),
        };
        let policy = self.policy.read().unwrap_or_else(PoisonError::into_inner);
        policy.know(shown).map_err(|why| {
            let why = self.failed(address, policy.failures_per_minute, why, now);
            self.count(match why {
                Unknown::NoToken => TurnedAwayFor::NoToken,
                Unknown::WrongToken => TurnedAwayFor::WrongToken,
                Unknown::Certificate => TurnedAwayFor::Certificate,
                Unknown::TooMany { .. } => TurnedAwayFor::TooMany,
            });
            why
        })
    }

    /// Counts a request that is rejected for another reason than its token. Returns whether its
    /// source has failed too often, in which case the log gets no line.
    pub(crate) fn is_too_often(&self, peer: Peer, why: TurnedAwayFor, now: Instant) -> bool {
        self.count(why);
        let Peer::Tcp { address, .. } = peer else { return false };
        let policy = self.policy.read().unwrap_or_else(PoisonError::into_inner);
        let why = self.failed(address.ip(), policy.failures_per_minute, Unknown::NoToken, now);
        matches!(why, Unknown::TooMany { .. })
    }

    fn failed(&self, source: IpAddr, per_minute: u32, why: Unknown, now: Instant) -> Unknown {
        let mut throttle = lock(&self.throttle);
        match throttle.failed(source, per_minute, now) {
            Ok(()) => why,
            Err(after) => Unknown::TooMany { after },
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::auth::TokenDigest;

    const REMOTE: &str = "192.0.2.1:5000";

    fn tcp(loopback: bool) -> Peer {
        Peer::Tcp { address: REMOTE.parse().unwrap(), loopback }
    }

    fn bearing(token: &[u8]) -> Shown<'_> {
        Shown { token: Some(token), certificate: None }
    }

    fn with_token() -> Gate {
        let digest = TokenDigest::of(b"right");
        let token = ApiToken { name: "ci".into(), role: Role::Operate, digest };
        Gate::new(Policy { tokens: vec![token], failures_per_minute: 2, ..Policy::default() })
    }

    #[test]
    fn without_tokens_every_tcp_caller_has_the_read_role() {
        let (gate, now) = (Gate::default(), Instant::now());
        for loopback in [true, false] {
            let caller = gate.know(tcp(loopback), bearing(b"any"), now).unwrap();
            assert_eq!(caller, Caller { who: Who::Anonymous, role: Some(Role::Read) });
        }
    }

    #[test]
    fn with_tokens_tcp_requests_need_one_and_unix_requests_do_not() {
        let (gate, now) = (with_token(), Instant::now());
        let unix = gate.know(Peer::Unix { uid: 7, pid: None }, Shown::default(), now).unwrap();
        assert_eq!(unix, Caller { who: Who::User(7), role: Some(Role::Admin) });
        assert_eq!(gate.know(tcp(true), Shown::default(), now), Err(Unknown::NoToken));
        assert_eq!(gate.know(tcp(true), bearing(b"wrong"), now), Err(Unknown::WrongToken));
        assert_eq!(gate.turned_away()[..2], [("no_token", 1), ("wrong_token", 1)]);
        let known = gate.know(tcp(true), bearing(b"right"), now).unwrap();
        assert_eq!(known, Caller { who: Who::Token("ci".into()), role: Some(Role::Operate) });
    }

    #[test]
    fn a_throttled_source_gets_a_retry_delay_without_a_valid_token() {
        let (gate, now) = (with_token(), Instant::now());
        assert_eq!(gate.know(tcp(false), bearing(b"wrong"), now), Err(Unknown::WrongToken));
        assert_eq!(gate.know(tcp(false), Shown::default(), now), Err(Unknown::NoToken));
        let after = Duration::from_secs(30);
        assert_eq!(gate.know(tcp(false), bearing(b"wrong"), now), Err(Unknown::TooMany { after }));
        assert!(gate.know(tcp(false), bearing(b"right"), now).is_ok());
    }

    #[test]
    fn a_new_policy_applies_from_the_next_request_on() {
        let (gate, now) = (with_token(), Instant::now());
        let digest = TokenDigest::of(b"new");
        let token = ApiToken { name: "ci".into(), role: Role::Read, digest };
        gate.set(Policy { tokens: vec![token], ..Policy::default() });
        assert!(gate.know(tcp(false), bearing(b"right"), now).is_err());
        assert_eq!(gate.know(tcp(false), bearing(b"new"), now).unwrap().role, Some(Role::Read));
    }
}
