//! State that a control side needs from its predecessor, besides the flow registry: the meaning of
//! the registry's numbers, and the registered pins. It is a text with a checksum at its end, for a
//! file beside the registry.
//!
//! The tables have the former, too, but they may be lost, or have another size or version, while
//! the registry is intact.

use std::fmt::{self, Write as _};
use std::net::IpAddr;

use equipoise_pog::{KeyHash, Seed, SipHash13};
use thiserror::Error;

use crate::abi::{FlowKey, SLOTS_MAX};
use crate::control::FlowId;
use crate::snapshot::{BackendId, VipId};

/// First line; the last word is the version.
const HEAD: &str = "equipoise ledger 1";

/// Contents of the ledger.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Ledger {
    /// Identifies the fleet that made the flows' digests.
    pub fleet: u64,
    /// In the order of their numbers.
    pub services: Vec<Seats>,
    /// In the order of VIPs and flows.
    pub pins: Vec<LedgerPin>,
}

/// A service number and its slots.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Seats {
    /// The number.
    pub number: u16,
    /// VIP of the service.
    pub vip: VipId,
    /// Fields that identify its flows.
    pub key: FlowKey,
    /// Slots that a backend has, in their order.
    pub slots: Vec<(u16, BackendId)>,
}

/// A flow that an operator or application pinned.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LedgerPin {
    /// Of which VIP.
    pub vip: VipId,
    /// Which.
    pub flow: FlowId,
    /// Where it belongs.
    pub backend: BackendId,
}

/// A text is no ledger.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
pub enum LedgerError {
    /// Another version's, or nothing of the kind.
    #[error("another version of equipoise wrote it")]
    Version,
    /// It was cut off or altered.
    #[error("it is damaged")]
    Check,
    /// A line that is none.
    #[error("line {0} of it is wrong")]
    Line(usize),
}

/// Tells a fleet from others, and does not give its secret away.
pub(crate) fn fleet_of(seed: Seed) -> u64 {
    SipHash13::with_seed(seed).hash("equipoise ledger")
}

fn check_of(text: &str) -> u64 {
    SipHash13::with_seed(Seed::default()).hash(text)
}

/// As [`Ledger::read`] reads it.
impl fmt::Display for Ledger {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut text = format!("{HEAD}\nfleet {:016x}\n", self.fleet);
        for Seats { number, vip, key, slots } in &self.services {
            writeln!(text, "vip {number} {} {vip}", number_of(*key))?;
            for (slot, backend) in slots {
                writeln!(text, "slot {slot} {}", Backend(backend))?;
            }
        }
        for LedgerPin { vip, flow, backend } in &self.pins {
            writeln!(text, "pin {vip} {} {}", FlowText(flow), Backend(backend))?;
        }
        writeln!(f, "{text}check {:016x}", check_of(&text))
    }
}

struct Backend<'a>(&'a BackendId);

impl fmt::Display for Backend<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} {}", self.0.address, self.0.port.unwrap_or(0))
    }
}

pub(crate) struct FlowText<'a>(pub(crate) &'a FlowId);

impl fmt::Display for FlowText<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.0 {
            FlowId::FiveTuple(from, to) => write!(f, "tuple {from} {to}"),
            FlowId::SourceAddress(address) => write!(f, "source {address}"),
            FlowId::SourcePrefix(address, bits) => write!(f, "prefix {address} {bits}"),
            FlowId::SourceMac(mac) => {
                let bits = mac.iter().fold(0_u64, |bits, byte| bits << 8 | u64::from(*byte));
                write!(f, "mac {bits:012x}")
            }
        }
    }
}

impl Ledger {
    /// Parses a ledger.
    ///
    /// # Errors
    /// [`LedgerError`]
    pub fn read(text: &str) -> Result<Ledger, LedgerError> {
        if text.lines().next() != Some(HEAD) {
            return Err(LedgerError::Version);
        }
        let (body, check) = text.rsplit_once("check ").ok_or(LedgerError::Check)?;
        if check.strip_suffix('\n').and_then(hex) != Some(check_of(body)) {
            return Err(LedgerError::Check);
        }
        let mut ledger = Ledger::default();
        for (at, line) in body.lines().enumerate().skip(1) {
            ledger.take(&mut line.split(' ')).ok_or(LedgerError::Line(at + 1))?;
        }
        Ok(ledger)
    }

    fn take<'a>(&mut self, words: &mut impl Iterator<Item = &'a str>) -> Option<()> {
        match words.next()? {
            "fleet" => self.fleet = hex(words.next()?)?,
            "vip" => {
                let number = words.next()?.parse().ok()?;
                let key = words.next()?.parse().ok().and_then(key_of)?;
                let vip = words.next()?.parse().ok()?;
                self.services.push(Seats { number, vip, key, slots: Vec::new() });
            }
            "slot" => {
                let slot = words.next()?.parse().ok().filter(|slot| *slot < SLOTS_MAX as u16)?;
                self.services.last_mut()?.slots.push((slot, backend(words)?));
            }
            "pin" => {
                let vip = words.next()?.parse().ok()?;
                let flow = flow(words)?;
                self.pins.push(LedgerPin { vip, flow, backend: backend(words)? });
            }
            _ => return None,
        }
        words.next().is_none().then_some(())
    }
}

/// A flow key as one number: the length of a prefix is above the key's number.
fn number_of(key: FlowKey) -> u16 {
    u16::from_le_bytes([key.number(), key.bits()])
}

fn key_of(number: u16) -> Option<FlowKey> {
    let [number, bits] = number.to_le_bytes();
    FlowKey::from_numbers(number, bits)
}

fn hex(word: &str) -> Option<u64> {
    u64::from_str_radix(word, 16).ok()
}

fn backend<'a>(words: &mut impl Iterator<Item = &'a str>) -> Option<BackendId> {
    let address: IpAddr = words.next()?.parse().ok()?;
    let port: u16 = words.next()?.parse().ok()?;
    Some(BackendId { address, port: (port > 0).then_some(port) })
}

pub(crate) fn flow<'a>(words: &mut impl Iterator<Item = &'a str>) -> Option<FlowId> {
    Some(match words.next()? {
        "tuple" => FlowId::FiveTuple(words.next()?.parse().ok()?, words.next()?.parse().ok()?),
        "source" => FlowId::SourceAddress(words.next()?.parse().ok()?),
        "prefix" => FlowId::prefix(words.next()?.parse().ok()?, words.next()?.parse().ok()?),
        "mac" => {
            let [0, 0, mac @ ..] = hex(words.next()?)?.to_be_bytes() else { return None };
            FlowId::SourceMac(mac)
        }
        _ => return None,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn ledger() -> Ledger {
        let backend = |last: u8, port| BackendId { address: [10, 0, 0, last].into(), port };
        let six = BackendId { address: "2001:db8::7".parse().unwrap(), port: None };
        let tuple =
            |from: &str, to: &str| FlowId::FiveTuple(from.parse().unwrap(), to.parse().unwrap());
        let vip = |text: &str| text.parse::<VipId>().unwrap();
        let seats = |number, text, key, slots: &[_]| Seats {
            number,
            vip: vip(text),
            key,
            slots: slots.to_vec(),
        };
        let pin = |text, flow, backend| LedgerPin { vip: vip(text), flow, backend };
        Ledger {
            fleet: 0xfeed,
            services: vec![
                seats(
                    0,
                    "192.0.2.1:80/tcp",
                    FlowKey::FiveTuple,
                    &[(0, backend(1, Some(8080))), (4094, six)],
                ),
                seats(3, "[2001:db8::1]:8000-8099/udp", FlowKey::SourceAddress, &[]),
                seats(5, "192.0.2.1:80/udp", FlowKey::SourcePrefix(128), &[]),
                seats(4, "192.0.2.1:*/udp", FlowKey::SourceMac, &[(1, backend(2, None))]),
            ],
            pins: vec![
                pin(
                    "192.0.2.1:80/tcp",
                    tuple("198.51.100.7:4000", "192.0.2.1:80"),
                    backend(1, Some(8080)),
                ),
                pin("[2001:db8::1]:*/tcp", tuple("[::1]:4000", "[2001:db8::1]:80"), six),
                pin(
                    "192.0.2.9:80/udp",
                    FlowId::SourceAddress([1, 2, 3, 4].into()),
                    backend(2, None),
                ),
                pin("192.0.2.1:80/udp", FlowId::prefix([1, 2, 3, 4].into(), 24), backend(2, None)),
                pin("192.0.2.1:*/udp", FlowId::SourceMac([0, 1, 2, 3, 4, 0xff]), backend(2, None)),
            ],
        }
    }

    #[test]
    fn a_written_ledger_reads_back_equal() {
        for ledger in [ledger(), Ledger::default()] {
            assert_eq!(Ledger::read(&ledger.to_string()), Ok(ledger));
        }
    }

    #[test]
    fn a_truncated_or_altered_ledger_is_rejected() {
        let text = ledger().to_string();
        for end in 0..text.len() {
            assert!(Ledger::read(&text[..end]).is_err(), "{end}");
        }
        for at in 0..text.len() {
            let mut bytes = text.clone().into_bytes();
            bytes[at] = if bytes[at] == b'7' { b'8' } else { b'7' };
            let read = Ledger::read(&String::from_utf8(bytes).unwrap());
            assert!(read.is_err(), "{at}");
        }
    }

    #[test]
    fn a_ledger_of_another_version_is_distinguished_from_wrong_lines() {
        let next = ledger().to_string().replace("ledger 1", "ledger 2");
        assert_eq!(Ledger::read(&next), Err(LedgerError::Version));
        for line in ["slot 1 10.0.0.1 0", "vip 1 9 192.0.2.1:80/tcp", "pin", "", "fleet 1 2"] {
            let body = format!("{HEAD}\n{line}\n");
            let text = format!("{body}check {:016x}\n", check_of(&body));
            assert_eq!(Ledger::read(&text), Err(LedgerError::Line(2)), "{line}");
        }
    }
}
