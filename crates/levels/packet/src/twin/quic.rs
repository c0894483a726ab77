//! The server in a QUIC packet's connection id: the program's `quic.h`.

use aws_lc_rs::cipher::{AES_128, DecryptingKey, EncryptingKey, UnboundCipherKey};

use super::tables::{ServiceAt, Tables};
use crate::abi::{QUIC_CONFIGS, QuicConfig, quic_form};
use crate::packet::Parsed;
use crate::quic::published_key;
use crate::reason::Reason;

const LONG: u8 = 0x80;
const ID_AT_SHORT: usize = 1;
const ID_AT_LONG: usize = 6;
const ID_BYTES_MAX: usize = 20;
/// Bytes that a datagram has at least, from its connection id on.
const READ: usize = 26;

/// Returns the slot of the backend that the connection id names.
///
/// # Errors
/// The reason why it names none.
pub(super) fn slot(parsed: &Parsed, at: &ServiceAt, tables: &Tables<'_>) -> Result<u16, Reason> {
    let data = &parsed.datagram;
    let is_long = data[0] & LONG != 0;
    let (start, bytes) = match is_long {
        true => (ID_AT_LONG, usize::from(data[ID_AT_LONG - 1])),
        false => (ID_AT_SHORT, ID_BYTES_MAX),
    };
    let needed = start + if is_long { READ.max(bytes) } else { READ };
    if parsed.datagram_bytes < needed {
        return Err(Reason::QuicIdShort);
    }
    let others = |reason| if is_long { Reason::QuicClientId } else { reason };
    let place = at.index * QUIC_CONFIGS as u32 + u32::from(data[start] >> 5);
    let config = tables.quic_config(place);
    if config.form == quic_form::FREE {
        return Err(others(Reason::QuicConfigUnknown));
    }
    if bytes < 1 + usize::from(config.bytes) {
        return Err(others(Reason::QuicIdShort));
    }
    let id = decoded(&config, &data[start + 1..][..usize::from(config.bytes)]);
    let slot = tables.quic_server(place, &id).filter(|slot| tables.is_live(&at.service, *slot));
    slot.ok_or(others(Reason::QuicServerUnknown))
}

/// Returns the server id of the bytes behind the first octet, as in the table.
fn decoded(config: &QuicConfig, bytes: &[u8]) -> [u8; 16] {
    let key = published_key(config).flatten();
    let plain = match (key, config.form) {
        (Some(key), quic_form::SINGLE_PASS) => decrypted(&key, bytes),
        (Some(key), _) => four_pass(&key, bytes),
        (None, _) => bytes.to_vec(),
    };
    let mask = config.server_mask.map(u64::to_le_bytes);
    let mut id = [0; 16];
    for ((to, from), mask) in id.iter_mut().zip(plain).zip(mask.as_flattened()) {
        *to = from & mask;
    }
    id
}

fn cipher(key: &[u8; 16]) -> UnboundCipherKey {
    UnboundCipherKey::new(&AES_128, key).expect("a key of AES-128 has 16 bytes")
}

fn decrypted(key: &[u8; 16], block: &[u8]) -> Vec<u8> {
    let mut block = block.to_vec();
    let cipher = DecryptingKey::ecb(cipher(key)).expect("AES has this mode");
    let context = aws_lc_rs::cipher::DecryptionContext::None;
    cipher.decrypt(&mut block, context).expect("a whole block").to_vec()
}

/// The draft's description (section "Load Balancer Actions"), with all four passes.
fn four_pass(key: &[u8; 16], bytes: &[u8]) -> Vec<u8> {
    let (half, is_odd) = (bytes.len().div_ceil(2), bytes.len() % 2 == 1);
    let clear_last = |left: &mut [u8]| left[half - 1] &= if is_odd { 0xf0 } else { 0xff };
    let clear_first = |right: &mut [u8]| right[0] &= if is_odd { 0x0f } else { 0xff };
    let (mut left, mut right) = (bytes[..half].to_vec(), bytes[bytes.len() - half..].to_vec());
    clear_last(&mut left);
    clear_first(&mut right);
    let cipher = EncryptingKey::ecb(cipher(key)).expect("AES has this mode");
    for pass in [4, 3, 2, 1] {
        let (to, from) = if pass % 2 == 0 { (&mut left, &right) } else { (&mut right, &left) };
        let mut block = [0; 16];
        block[..half].copy_from_slice(from);
        block[14..].copy_from_slice(&[bytes.len() as u8, pass]);
        cipher.encrypt(&mut block).expect("a whole block");
        to.iter_mut().zip(block).for_each(|(to, add)| *to ^= add);
        if pass % 2 == 0 { clear_last(&mut left) } else { clear_first(&mut right) }
    }
    if is_odd {
        let shared = left.pop().unwrap_or(0);
        right[0] |= shared;
    }
    left.extend(right);
    left
}
