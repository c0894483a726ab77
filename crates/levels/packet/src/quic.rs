//! Connection ids of QUIC with the server's id (draft-ietf-quic-load-balancers-21), as configured
//! and as published.

mod aes;

use std::collections::BTreeMap;
use std::fmt;
use std::str::FromStr;

use equipoise_pog::{KeyHash, Seed, SipHash13};

use crate::abi;
use crate::backend_id::BackendId;

/// The connection ids of a VIP's servers.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Quic {
    /// No two with one config rotation id.
    pub configs: Vec<QuicConfig>,
    /// Server ids by config rotation id and backend; no two equal ones of one configuration.
    pub servers: BTreeMap<(u8, BackendId), ServerId>,
}

/// How servers make connection ids.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct QuicConfig {
    /// Config rotation id: the three highest bits of the first octet, 0 to [`Self::ROTATION_MAX`].
    pub rotation: u8,
    /// Length of the server id.
    pub server_id_bytes: u8,
    /// Length of the nonce.
    pub nonce_bytes: u8,
    /// `None`: server ids are readable for everyone.
    pub key: Option<QuicKey>,
}

impl QuicConfig {
    /// Largest config rotation id. 7 marks ids without a server id.
    pub const ROTATION_MAX: u8 = 6;
    /// Most bytes of server id and nonce: a connection id has 20.
    pub const BYTES_MAX: u8 = 19;
    /// Least bytes of a nonce.
    pub const NONCE_MIN: u8 = 4;

    /// Bytes of server id and nonce.
    pub fn bytes(&self) -> u8 {
        self.server_id_bytes + self.nonce_bytes
    }

    /// Name of the algorithm.
    pub fn algorithm(&self) -> &'static str {
        match self.form() {
            abi::quic_form::SINGLE_PASS => "aes-128-single-pass",
            abi::quic_form::FOUR_PASS => "aes-128-four-pass",
            _ => "plaintext",
        }
    }

    /// The server id of a backend for which none is given: derived from its address and port, and
    /// from the key, so that it is the same on all balancers and differs between configurations
    /// with different keys.
    pub fn derived_id(&self, backend: &BackendId) -> ServerId {
        let key = self.key.as_ref().map_or(0, |key| u128::from_le_bytes(key.0));
        let text = backend.to_string();
        let word = |number: u64| {
            let seed = Seed { k0: key as u64 ^ SERVER_ID_KEY, k1: (key >> 64) as u64 ^ number };
            SipHash13::with_seed(seed).hash(text.as_bytes()).to_le_bytes()
        };
        let [low, high] = [word(0), word(1)];
        let mut bytes = [0; 16];
        bytes[..8].copy_from_slice(&low);
        bytes[8..].copy_from_slice(&high);
        ServerId::of(&bytes[..usize::from(self.server_id_bytes)])
    }

    fn form(&self) -> u8 {
        match (&self.key, self.bytes()) {
            (None, _) => abi::quic_form::PLAINTEXT,
            (Some(_), 16) => abi::quic_form::SINGLE_PASS,
            (Some(_), _) => abi::quic_form::FOUR_PASS,
        }
    }

    /// As the program reads it.
    pub fn published(&self) -> abi::QuicConfig {
        let (form, bytes) = (self.form(), usize::from(self.bytes()));
        let server_mask = mask(0..2 * usize::from(self.server_id_bytes));
        // In half octets; the halves of an odd number of octets share the middle one.
        let right = bytes % 2..bytes % 2 + bytes;
        let half_masks = [mask(0..bytes), mask(right)];
        let last_pass = if self.server_id_bytes <= self.bytes() / 2 { 2 } else { 1 };
        let keys = match (&self.key, form) {
            (None, _) => [0; 22],
            (Some(key), abi::quic_form::SINGLE_PASS) => aes::decrypting(&key.0),
            (Some(key), _) => aes::encrypting(&key.0),
        };
        abi::QuicConfig {
            form,
            bytes: self.bytes(),
            last_pass,
            server_mask,
            half_masks,
            keys,
            ..abi::QuicConfig::default()
        }
    }

    /// Reads a published configuration; `None`: there is none.
    pub(crate) fn of_published(rotation: u8, of: &abi::QuicConfig) -> Option<QuicConfig> {
        let server_id_bytes = (of.server_mask.map(u64::count_ones).iter().sum::<u32>() / 8) as u8;
        Some(QuicConfig {
            rotation,
            server_id_bytes,
            nonce_bytes: of.bytes.checked_sub(server_id_bytes)?,
            key: published_key(of)?.map(QuicKey),
        })
    }
}

/// The key of a published configuration: the cipher's first round key, or the inverse cipher's
/// last. `None`: there is no configuration.
pub(crate) fn published_key(of: &abi::QuicConfig) -> Option<Option<[u8; 16]>> {
    let key = |words: &[u64]| {
        let mut key = [0; 16];
        key[..8].copy_from_slice(&words[0].to_le_bytes());
        key[8..].copy_from_slice(&words[1].to_le_bytes());
        Some(key)
    };
    match of.form {
        abi::quic_form::PLAINTEXT => Some(None),
        abi::quic_form::SINGLE_PASS => Some(key(&of.keys[20..])),
        abi::quic_form::FOUR_PASS => Some(key(&of.keys[..2])),
        _ => None,
    }
}

/// "eqpQuic1": separates this use of SipHash from others.
const SERVER_ID_KEY: u64 = u64::from_le_bytes(*b"eqpQuic1");

/// The mask of a range of half octets, the first one highest in the first octet.
fn mask(halves: std::ops::Range<usize>) -> [u64; 2] {
    let octet = |at: usize| {
        let half =
            |which: usize, bits: u8| if halves.contains(&(2 * at + which)) { bits } else { 0 };
        u64::from(half(0, 0xf0) | half(1, 0x0f)) << (8 * (at % 8))
    };
    [(0..8).map(octet).sum(), (8..16).map(octet).sum()]
}

/// A key of AES-128. It is never shown.
#[derive(Clone, PartialEq, Eq)]
pub struct QuicKey(pub [u8; 16]);

impl fmt::Debug for QuicKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("QuicKey")
    }
}

/// The text is no [`QuicKey`] or [`ServerId`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("hexadecimal digits, two for each byte")]
pub struct NotHex;

impl FromStr for QuicKey {
    type Err = NotHex;

    fn from_str(text: &str) -> Result<QuicKey, NotHex> {
        from_hex(text)?.try_into().map(QuicKey).map_err(|_| NotHex)
    }
}

/// A server's id, 1 to [`ServerId::BYTES_MAX`] bytes.
#[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct ServerId {
    bytes: [u8; 16],
    len: u8,
}

impl ServerId {
    /// Largest length: a nonce has at least 4 of the 19 bytes.
    pub const BYTES_MAX: usize = 15;

    /// Cut off after [`Self::BYTES_MAX`].
    pub(crate) fn of(from: &[u8]) -> ServerId {
        let len = from.len().min(ServerId::BYTES_MAX);
        let mut bytes = [0; 16];
        bytes[..len].copy_from_slice(&from[..len]);
        ServerId { bytes, len: len as u8 }
    }

    /// Its bytes.
    pub fn bytes(&self) -> &[u8] {
        &self.bytes[..usize::from(self.len)]
    }

    /// As in the program's table.
    pub(crate) fn padded(&self) -> [u8; 16] {
        self.bytes
    }
}

impl FromStr for ServerId {
    type Err = NotHex;

    fn from_str(text: &str) -> Result<ServerId, NotHex> {
        let bytes = from_hex(text)?;
        let fits = (1..=ServerId::BYTES_MAX).contains(&bytes.len());
        fits.then(|| ServerId::of(&bytes)).ok_or(NotHex)
    }
}

/// Two hexadecimal digits for each byte.
impl fmt::Display for ServerId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.bytes().iter().try_for_each(|byte| write!(f, "{byte:02x}"))
    }
}

impl fmt::Debug for ServerId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

fn from_hex(text: &str) -> Result<Vec<u8>, NotHex> {
    let (pairs, rest) = text.as_bytes().as_chunks::<2>();
    let digits = pairs.as_flattened().iter().all(u8::is_ascii_hexdigit) && rest.is_empty();
    let byte = |pair: &[u8; 2]| u8::from_str_radix(std::str::from_utf8(pair).ok()?, 16).ok();
    let bytes: Option<Vec<u8>> = pairs.iter().map(byte).collect();
    bytes.filter(|_| digits).ok_or(NotHex)
}

impl Quic {
    /// Adds the ids of backends that `keeps` names and that the new configuration does not: they
    /// have left the file, and keep their connections while they drain.
    pub(crate) fn keep_from(&mut self, earlier: &Quic, keeps: impl Fn(&BackendId) -> bool) {
        let same = |rotation: u8| {
            let of = |quic: &Quic| quic.configs.iter().find(|it| it.rotation == rotation).cloned();
            of(self).is_some_and(|now| of(earlier) == Some(now))
        };
        let kept: Vec<_> = earlier
            .servers
            .iter()
            .filter(|((rotation, backend), id)| {
                let has = |(of, server): (&(u8, BackendId), &ServerId)| {
                    of.0 == *rotation && (of.1 == *backend || server == *id)
                };
                keeps(backend) && same(*rotation) && !self.servers.iter().any(has)
            })
            .map(|(of, id)| (*of, *id))
            .collect();
        self.servers.extend(kept);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn config(server_id_bytes: u8, nonce_bytes: u8, key: Option<&str>) -> QuicConfig {
        let key = key.map(|key| key.parse().unwrap());
        QuicConfig { rotation: 2, server_id_bytes, nonce_bytes, key }
    }

    #[test]
    fn a_configuration_is_read_as_it_is_published() {
        let key = Some("8f95f09245765f80256934e50c66207f");
        for (server_id, nonce, key) in
            [(1, 4, None), (15, 4, None), (3, 13, key), (12, 4, key), (1, 18, key), (9, 10, key)]
        {
            let config = config(server_id, nonce, key);
            assert_eq!(QuicConfig::of_published(2, &config.published()), Some(config));
        }
        assert_eq!(QuicConfig::of_published(2, &abi::QuicConfig::default()), None);
    }

    #[test]
    fn halves_of_an_odd_length_share_the_middle_byte() {
        let key = Some("8f95f09245765f80256934e50c66207f");
        let odd = config(3, 4, key).published();
        assert_eq!(odd.half_masks, [[0xf0ff_ffff, 0], [0xffff_ff0f, 0]]);
        let even = config(10, 8, key).published();
        assert_eq!(even.half_masks, [[u64::MAX, 0xff], [u64::MAX, 0xff]]);
        assert_eq!([odd.last_pass, even.last_pass], [2, 1]);
    }

    #[test]
    fn a_server_id_is_read_as_it_is_shown() {
        for text in ["01", "ed793a51d49b8f5fab65ee080dbf48"] {
            assert_eq!(text.parse::<ServerId>().unwrap().to_string(), text);
        }
        for text in ["", "1", "0x01", "+1", "ed793a51d49b8f5fab65ee080dbf4800", "é"] {
            assert_eq!(text.parse::<ServerId>(), Err(NotHex), "{text}");
        }
    }

    #[test]
    fn derived_ids_differ_by_backend_and_key() {
        let backend = |last: u8| BackendId { address: [10, 0, 0, last].into(), port: None };
        let (open, sealed) =
            (config(8, 8, None), config(8, 8, Some("8f95f09245765f80256934e50c66207f")));
        let ids = [
            open.derived_id(&backend(1)),
            open.derived_id(&backend(2)),
            sealed.derived_id(&backend(1)),
        ];
        assert!(ids[0] != ids[1] && ids[0] != ids[2]);
        // Servers are configured with them: they may not change with a version.
        assert_eq!(ids.map(|id| id.bytes().len()), [8; 3]);
    }

    #[test]
    fn ids_of_backends_that_left_stay_with_their_configuration() {
        let backend = |last: u8| BackendId { address: [10, 0, 0, last].into(), port: None };
        let with = |configs: &[QuicConfig], servers: &[(u8, &str)]| Quic {
            configs: configs.to_vec(),
            servers: servers
                .iter()
                .map(|(last, id)| ((2, backend(*last)), id.parse().unwrap()))
                .collect(),
        };
        let open = config(1, 4, None);
        let before = with(std::slice::from_ref(&open), &[(1, "01"), (2, "02"), (3, "03")]);
        let mut after = with(std::slice::from_ref(&open), &[(1, "03")]);
        after.keep_from(&before, |it| *it != backend(4));
        assert_eq!(after, with(&[open], &[(1, "03"), (2, "02")]));
        let mut other = with(&[config(1, 5, None)], &[]);
        other.keep_from(&before, |_| true);
        assert!(other.servers.is_empty());
    }
}
