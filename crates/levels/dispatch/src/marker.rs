//! The marker of a delegated request: the delegating node, signed so that no client can forge it.
//!
//! ```text
//! Equipoise-Delegated: SOURCE TAG     TAG = the first 128 bits of HMAC-SHA-256(key, "equipoise-delegated-2" 0 SOURCE 0
//!                                           TARGET 0 request line and Host line, as they go over the wire, then for
//!                                           each origin field its letter, value, LF), in hex
//! ```
//!
//! The tag binds a request to the delegating node, the serving node, the request line, `Host` and
//! the fields about its origin. It binds no other field and no body, and has no time and no nonce,
//! so that clocks need not agree. If nodes speak unencrypted, an attacker that reads a marker can
//! repeat requests with this line, `Host` and origin, with other fields and another body, at that
//! node: they are served there, and admitted while clients' are refused. With encryption, markers
//! cannot be read. A marker reaches neither applications nor clients, and a client's own is dropped
//! wherever requests are dispatched.

use std::fmt;

use aws_lc_rs::constant_time::verify_slices_are_equal;
use aws_lc_rs::hmac;
use equipoise_core::delegation::{OriginField, SignedHead};

const CONTEXT: &[u8] = b"equipoise-delegated-2\0";

/// Bytes of a tag: half of the hash, which is the minimum of RFC 2104 (section 5).
const TAG_BYTES: usize = 16;

const DIGITS: &[u8; 16] = b"0123456789abcdef";

/// Keys of markers. They are equal on all nodes, except during a change.
#[derive(Clone, Default)]
pub struct DelegationKeys {
    /// The first signs; all are accepted.
    secrets: Vec<Vec<u8>>,
    keys: Vec<hmac::Key>,
}

/// Secrets that would give no protection.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum KeysRefused {
    /// A secret can be guessed.
    #[error("a secret of {0} bytes; accepted: {min} or more, as `openssl rand -hex 32` makes", min = DelegationKeys::BYTES_MIN)]
    Short(usize),
    /// There are more secrets than a change needs.
    #[error("{0} secrets; accepted: at most {max}", max = DelegationKeys::MAX)]
    TooMany(usize),
}

impl DelegationKeys {
    /// Greatest number of secrets: the present one, and those before and after it.
    pub const MAX: usize = 4;
    /// Least number of bytes of a secret.
    pub const BYTES_MIN: usize = 16;

    /// Creates keys from these secrets; the first one signs.
    ///
    /// # Errors
    /// [`KeysRefused`].
    pub fn new(secrets: Vec<Vec<u8>>) -> Result<DelegationKeys, KeysRefused> {
        if let Some(short) = secrets.iter().find(|secret| secret.len() < Self::BYTES_MIN) {
            return Err(KeysRefused::Short(short.len()));
        }
        if secrets.len() > Self::MAX {
            return Err(KeysRefused::TooMany(secrets.len()));
        }
        let key = |secret: &Vec<u8>| hmac::Key::new(hmac::HMAC_SHA256, secret);
        Ok(DelegationKeys { keys: secrets.iter().map(key).collect(), secrets })
    }

    /// True if there is no key.
    pub fn is_empty(&self) -> bool {
        self.keys.is_empty()
    }

    /// Verifies that one of these keys signed this marker for this request, delegated to `target`.
    pub(crate) fn verify(&self, value: &[u8], target: &str, head: &SignedHead<'_>) -> bool {
        let Some(space) = value.iter().position(|byte| *byte == b' ') else { return false };
        let (source, tag) = (&value[..space], &value[space + 1..]);
        self.keys.iter().any(|key| {
            let expected = tag_of(key, source, target.as_bytes(), head);
            verify_slices_are_equal(&expected, tag).is_ok()
        })
    }
}

/// The delegating node in a marker's value, which is not verified yet.
pub(crate) fn source_of(value: &[u8]) -> Option<&str> {
    let end = value.iter().position(|byte| *byte == b' ')?;
    std::str::from_utf8(&value[..end]).ok()
}

/// Writes the marker's line for a request that `source` delegates to `target`; `None` without a
/// key.
pub(crate) fn write(
    keys: &DelegationKeys,
    source: &str,
    target: &str,
    head: &SignedHead<'_>,
    out: &mut Vec<u8>,
) -> Option<()> {
    let tag = tag_of(keys.keys.first()?, source.as_bytes(), target.as_bytes(), head);
    out.extend_from_slice(b"Equipoise-Delegated: ");
    out.extend_from_slice(source.as_bytes());
    out.push(b' ');
    out.extend_from_slice(&tag);
    out.extend_from_slice(b"\r\n");
    Some(())
}

/// The tag in hexadecimal.
fn tag_of(
    key: &hmac::Key,
    source: &[u8],
    target: &[u8],
    head: &SignedHead<'_>,
) -> [u8; 2 * TAG_BYTES] {
    let mut context = hmac::Context::with_key(key);
    for part in [CONTEXT, source, b"\0", target, b"\0", head.lines] {
        context.update(part);
    }
    (head.origin)(&mut |field: OriginField, value: &[u8]| {
        context.update(&[field as u8]);
        context.update(value.trim_ascii());
        context.update(b"\n");
    });
    let tag = context.sign();
    let mut hex = [0; 2 * TAG_BYTES];
    for (digits, byte) in hex.chunks_exact_mut(2).zip(tag.as_ref()) {
        digits.copy_from_slice(&[DIGITS[usize::from(byte >> 4)], DIGITS[usize::from(byte & 15)]]);
    }
    hex
}

impl PartialEq for DelegationKeys {
    fn eq(&self, other: &DelegationKeys) -> bool {
        self.secrets == other.secrets
    }
}

impl fmt::Debug for DelegationKeys {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "DelegationKeys({} secrets)", self.secrets.len())
    }
}

#[cfg(test)]
mod tests {
    use equipoise_core::delegation::{DELEGATED_FIELD, EachField};

    use super::*;

    const HEAD: &[u8] = b"GET /a HTTP/1.1\r\nHost: a.example\r\n";
    type Origin = [(OriginField, &'static [u8])];
    const ORIGIN: [(OriginField, &[u8]); 2] =
        [(OriginField::For, b"192.0.2.7"), (OriginField::Forwarded, b"for=192.0.2.7")];

    fn with_head<T>(lines: &[u8], origin: &Origin, then: impl FnOnce(&SignedHead<'_>) -> T) -> T {
        let origin = |each: EachField<'_>| {
            origin.iter().for_each(|(field, value)| each(*field, value));
        };
        then(&SignedHead { lines, origin: &origin })
    }

    fn believes(keys: &DelegationKeys, value: &[u8], target: &str, head: &[u8]) -> bool {
        with_head(head, &ORIGIN, |head| keys.verify(value, target, head))
    }

    fn keys(secrets: &[&str]) -> DelegationKeys {
        let secrets = secrets.iter().map(|text| text.repeat(16).into_bytes()).collect();
        DelegationKeys::new(secrets).unwrap()
    }

    /// The marker's value, without its name and line end.
    fn marker(keys: &DelegationKeys, source: &str, target: &str, head: &[u8]) -> Vec<u8> {
        let mut line = Vec::new();
        with_head(head, &ORIGIN, |head| write(keys, source, target, head, &mut line)).unwrap();
        let name = DELEGATED_FIELD.len() + 2;
        assert!(line[..name - 2].eq_ignore_ascii_case(DELEGATED_FIELD.as_bytes()));
        line[name..line.len() - 2].to_vec()
    }

    #[test]
    fn a_marker_verifies_only_for_its_nodes_request_and_origin() {
        let keys = keys(&["s"]);
        let value = marker(&keys, "edge-1", "edge-2", HEAD);
        assert!(believes(&keys, &value, "edge-2", HEAD));
        assert!(!believes(&keys, &value, "edge-3", HEAD), "another target");
        assert!(!believes(&keys, &value, "edge-2", b"GET /b HTTP/1.1\r\nHost: a.example\r\n"));
        let other = [b"edge-9".as_slice(), &value[6..]].concat();
        assert!(!believes(&keys, &other, "edge-2", HEAD), "another source");
        let verifies =
            |origin: &Origin| with_head(HEAD, origin, |head| keys.verify(&value, "edge-2", head));
        let mut origin = ORIGIN;
        assert!(!verifies(&origin[..1]), "one is gone");
        origin.swap(0, 1);
        assert!(!verifies(&origin), "in another order");
        origin = [ORIGIN[0], (OriginField::Forwarded, b"for=192.0.2.8")];
        assert!(!verifies(&origin), "another client");
    }

    #[test]
    fn verification_rejects_altered_markers_and_missing_keys() {
        let keys = keys(&["s"]);
        let value = marker(&keys, "edge-1", "edge-2", HEAD);
        for cut in 0..value.len() {
            assert!(!believes(&keys, &value[..cut], "edge-2", HEAD), "cut at {cut}");
            let mut turned = value.clone();
            turned[cut] ^= 1;
            assert!(!believes(&keys, &turned, "edge-2", HEAD), "turned at {cut}");
        }
        let longer = [value.as_slice(), b"0"].concat();
        assert!(!believes(&keys, &longer, "edge-2", HEAD));
        assert!(!believes(&DelegationKeys::default(), &value, "edge-2", HEAD), "no key");
    }

    #[test]
    fn both_secrets_verify_during_rotation_and_the_first_signs() {
        let (old, both, new) = (keys(&["o"]), keys(&["n", "o"]), keys(&["n"]));
        let of = |keys| marker(keys, "a", "b", HEAD);
        assert!(believes(&both, &of(&old), "b", HEAD) && believes(&both, &of(&new), "b", HEAD));
        assert!(believes(&new, &of(&both), "b", HEAD), "the first one signs");
        assert!(!believes(&old, &of(&both), "b", HEAD));
    }

    #[test]
    fn short_or_too_many_secrets_are_refused_and_debug_hides_them() {
        assert_eq!(DelegationKeys::new(vec![vec![0; 15]]), Err(KeysRefused::Short(15)));
        assert_eq!(DelegationKeys::new(vec![vec![0; 16]; 5]), Err(KeysRefused::TooMany(5)));
        assert!(!format!("{:?}", keys(&["secret"])).contains("secretsecret"));
    }
}
