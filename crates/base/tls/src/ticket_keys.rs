//! Keys of session tickets and their times. The time is an argument.

use std::fmt;
use std::time::{Duration, SystemTime};

use aws_lc_rs::aead::{AES_256_GCM, Aad, LessSafeKey, NONCE_LEN, Nonce, UnboundKey};
use aws_lc_rs::constant_time::verify_slices_are_equal;
use aws_lc_rs::error::Unspecified;
use aws_lc_rs::hkdf::{HKDF_SHA256, Prk};
use aws_lc_rs::rand;
use serde::{Deserialize, Serialize};

/// Time for which a key encrypts tickets. It decrypts them for as long again, and is then deleted.
/// That of rustls' own tickets, too.
pub(crate) const ROTATION: Duration = Duration::from_secs(6 * 3600);

const NAME_BYTES: usize = 16;
const SEED_BYTES: usize = 32;

/// There are no random numbers for a key of session tickets.
pub type NoRandomNumbers = Unspecified;

/// A key of session tickets.
#[derive(Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct TicketKey {
    /// The beginning of its tickets. It is public.
    name: [u8; NAME_BYTES],
    secret: [u8; 32],
    /// Begin of its use, in seconds since 1970.
    from: u64,
}

/// The keys of session tickets at one time: the current one, the one before it, and the next one,
/// which other machines may use a little earlier.
#[derive(Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct TicketKeys(Vec<TicketKey>);

impl TicketKey {
    fn random(from: u64) -> Result<TicketKey, NoRandomNumbers> {
        let (mut name, mut secret) = ([0; NAME_BYTES], [0; 32]);
        rand::fill(&mut name)?;
        rand::fill(&mut secret)?;
        Ok(TicketKey { name, secret, from })
    }

    fn encrypts(&self, now: u64) -> bool {
        self.from <= now && now < self.from.saturating_add(ROTATION.as_secs())
    }

    fn decrypts(&self, now: u64) -> bool {
        now < self.from.saturating_add(2 * ROTATION.as_secs())
    }

    /// The key of tickets that are valid in this scope alone.
    pub(crate) fn within(&self, scope: &[u8]) -> TicketKey {
        TicketKey { secret: derived(&self.secret, "equipoise ticket scope", scope), ..self.clone() }
    }

    /// Encrypts a ticket: name, seed, AES-256-GCM of the plaintext. `None`: there are no random
    /// numbers.
    pub(crate) fn seal(&self, plain: &[u8]) -> Option<Vec<u8>> {
        let mut seed = [0; SEED_BYTES];
        rand::fill(&mut seed).ok()?;
        let mut sealed = plain.to_vec();
        let (nonce, aad) = (nonce(), Aad::from(self.name));
        self.cipher(&seed)?.seal_in_place_append_tag(nonce, aad, &mut sealed).ok()?;
        Some([&self.name[..], &seed, &sealed].concat())
    }

    /// Decrypts the part of a ticket behind its name.
    fn open(&self, rest: &[u8]) -> Option<Vec<u8>> {
        let (seed, sealed) = rest.split_first_chunk::<SEED_BYTES>()?;
        let mut plain = sealed.to_vec();
        let opened = self.cipher(seed)?.open_in_place(nonce(), Aad::from(self.name), &mut plain);
        let length = opened.ok()?.len();
        plain.truncate(length);
        Some(plain)
    }

    /// Each ticket has a key of its own, so that the number of tickets of a cluster is not limited
    /// by random nonces, which may repeat.
    fn cipher(&self, seed: &[u8; SEED_BYTES]) -> Option<LessSafeKey> {
        let key = derived(&self.secret, "equipoise ticket", seed);
        UnboundKey::new(&AES_256_GCM, &key).ok().map(LessSafeKey::new)
    }
}

/// The nonce of a key that encrypts one message.
fn nonce() -> Nonce {
    Nonce::assume_unique_for_key([0; NONCE_LEN])
}

/// HKDF-Expand (RFC 5869) of a secret that is random already.
fn derived(secret: &[u8; 32], label: &str, context: &[u8]) -> [u8; 32] {
    let mut key = [0; 32];
    let secret = Prk::new_less_safe(HKDF_SHA256, secret);
    let info = [label.as_bytes(), &[0], context];
    let filled = secret.expand(&info, HKDF_SHA256).and_then(|it| it.fill(&mut key));
    filled.expect("32 bytes are the length of SHA-256");
    key
}

impl TicketKeys {
    /// The keys from now on, if others than these: without expired ones, with a current
    /// and a next one.
    ///
    /// A next key may begin up to two rotations ahead, because clocks differ.
    ///
    /// # Errors
    /// [`NoRandomNumbers`].
    pub fn rotated(&self, now: SystemTime) -> Result<Option<TicketKeys>, NoRandomNumbers> {
        let now = seconds(now);
        let mut keys = self.0.clone();
        keys.retain(|it| it.decrypts(now) && it.from <= now + 2 * ROTATION.as_secs());
        if !keys.iter().any(|it| it.encrypts(now)) {
            keys.push(TicketKey::random(now)?);
        }
        let newest = keys.iter().map(|it| it.from).max().unwrap_or(now);
        if newest <= now {
            keys.push(TicketKey::random(newest + ROTATION.as_secs())?);
        }
        let new = TicketKeys(keys);
        Ok((new != *self).then_some(new))
    }

    /// How far the clock that made these keys is ahead of `now` at least, if by more than a
    /// rotation. Then a rotation at `now` would delete keys that another machine uses.
    pub fn ahead(&self, now: SystemTime) -> Option<Duration> {
        let newest = self.0.iter().map(|it| it.from).max()?;
        // A next key begins up to a rotation after the clock that made it.
        let ahead = newest.checked_sub(seconds(now))?.checked_sub(ROTATION.as_secs())?;
        (ahead > ROTATION.as_secs()).then_some(Duration::from_secs(ahead))
    }

    /// Deletes expired keys.
    pub(crate) fn expire(&mut self, now: SystemTime) {
        let now = seconds(now);
        self.0.retain(|it| it.decrypts(now));
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// These keys within a scope.
    pub(crate) fn within(&self, scope: &[u8]) -> TicketKeys {
        TicketKeys(self.0.iter().map(|it| it.within(scope)).collect())
    }

    /// The key that encrypts now.
    pub(crate) fn current(&self, now: SystemTime) -> Option<&TicketKey> {
        let now = seconds(now);
        self.0.iter().filter(|it| it.encrypts(now)).max_by_key(|it| it.from)
    }

    /// Decrypts a ticket of these keys, in this scope, or of keys that are within one already.
    pub(crate) fn open(
        &self,
        scope: Option<&[u8]>,
        now: SystemTime,
        ticket: &[u8],
    ) -> Option<Vec<u8>> {
        let (name, rest) = ticket.split_first_chunk::<NAME_BYTES>()?;
        let is_named = |it: &&TicketKey| verify_slices_are_equal(&it.name, name).is_ok();
        let key = self.0.iter().find(is_named).filter(|it| it.decrypts(seconds(now)))?;
        match scope {
            Some(scope) => key.within(scope).open(rest),
            None => key.open(rest),
        }
    }
}

fn seconds(time: SystemTime) -> u64 {
    time.duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default().as_secs()
}

impl fmt::Debug for TicketKeys {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_list().entries(self.0.iter().map(|it| it.from)).finish()
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "a panic is how a test fails")]

    use super::*;

    fn at(hours: u64) -> SystemTime {
        SystemTime::UNIX_EPOCH + Duration::from_secs(1_000_000 + hours * 3600)
    }

    /// The hours at which the keys begin.
    fn hours(keys: &TicketKeys) -> Vec<u64> {
        keys.0.iter().map(|it| (it.from - 1_000_000) / 3600).collect()
    }

    #[test]
    fn rotation_adds_a_key_and_removes_one_every_six_hours() {
        let mut keys = TicketKeys::default();
        for (hour, expected) in [
            (0, &[0, 6][..]),
            (5, &[0, 6]),
            (6, &[0, 6, 12]),
            (11, &[0, 6, 12]),
            (12, &[6, 12, 18]),
            (18, &[12, 18, 24]),
            // No one was there for long.
            (50, &[50, 56]),
        ] {
            keys = keys.rotated(at(hour)).unwrap().unwrap_or(keys);
            assert_eq!(hours(&keys), expected, "{hour}");
            assert_eq!(keys.rotated(at(hour)).unwrap(), None, "{hour}");
        }
        // A clock that was wrong by days.
        assert_eq!(keys.ahead(at(1)), Some(Duration::from_secs(49 * 3600)));
        let keys = keys.rotated(at(1)).unwrap().unwrap();
        assert_eq!(hours(&keys), [1, 7]);
    }

    #[test]
    fn keys_count_as_ahead_only_if_rotation_deletes_a_future_key() {
        let clocks = (0..40).map(|ahead| {
            let keys = TicketKeys::default().rotated(at(100 + ahead)).unwrap().unwrap();
            let rotated = keys.rotated(at(100)).unwrap();
            let is_kept = |keys: &TicketKeys| hours(keys).contains(&(106 + ahead));
            (ahead, keys.ahead(at(100)), rotated.is_none_or(|it| is_kept(&it)))
        });
        for (ahead, found, is_kept) in clocks {
            let hours = Duration::from_secs(ahead * 3600);
            assert_eq!(found, (ahead > 6).then_some(hours), "{ahead}");
            assert_eq!(is_kept, found.is_none(), "{ahead}");
        }
        assert_eq!(TicketKeys::default().ahead(at(100)), None);
    }

    #[test]
    fn a_ticket_is_valid_for_six_to_twelve_hours() {
        let keys = TicketKeys::default().rotated(at(0)).unwrap().unwrap();
        let next = keys.rotated(at(6)).unwrap().unwrap();
        let early = keys.current(at(0)).unwrap().seal(b"early").unwrap();
        let late = next.current(at(6)).unwrap().seal(b"late").unwrap();
        let opens = |keys: &TicketKeys, hour, ticket: &[u8]| keys.open(None, at(hour), ticket);
        assert_eq!(opens(&keys, 0, &early).unwrap(), b"early");
        assert_eq!(opens(&next, 11, &early).unwrap(), b"early");
        // Also without a rotation, as when the store does not answer.
        assert_eq!(opens(&keys, 12, &early), None);
        assert_eq!(opens(&next, 12, &early), None);
        assert_eq!(opens(&next, 17, &late).unwrap(), b"late");
        // Another machine's clock is ahead: it encrypts with the next key already.
        assert_eq!(opens(&keys, 5, &late).unwrap(), b"late");
        assert!(keys.current(at(12)).is_none());
        let mut old = keys.clone();
        old.expire(at(12));
        assert_eq!(hours(&old), [6]);
    }

    #[test]
    fn a_ticket_that_was_changed_or_is_of_another_scope_or_key_is_not_opened() {
        let keys = TicketKeys::default().rotated(at(0)).unwrap().unwrap();
        let ticket = keys.current(at(0)).unwrap().within(b"a").seal(b"secret").unwrap();
        let open = |ticket: &[u8]| keys.open(Some(b"a"), at(0), ticket);
        assert_eq!(open(&ticket).unwrap(), b"secret");
        assert_eq!(keys.within(b"a").open(None, at(0), &ticket).unwrap(), b"secret");
        assert_eq!(keys.open(Some(b"b"), at(0), &ticket), None);
        for length in 0..ticket.len() {
            assert_eq!(open(&ticket[..length]), None, "{length}");
        }
        for place in 0..ticket.len() {
            let mut changed = ticket.clone();
            changed[place] ^= 1;
            assert_eq!(open(&changed), None, "{place}");
        }
        let others = TicketKeys::default().rotated(at(0)).unwrap().unwrap();
        assert_eq!(others.open(Some(b"a"), at(0), &ticket), None);
        assert!(!format!("{keys:?}").contains("secret"));
    }
}
