//! Messages between balancers, and their bytes.
//!
//! All numbers are in network order. A text has its length before it, in two bytes.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use crate::control::FlowId;
use crate::digest::Digest;
use crate::ledger::{self, FlowText};
use crate::registry::{Evidence, FlowState};
use crate::snapshot::{BackendId, VipId};

/// Flows and pins that a balancer sends to a peer. Each is its present state, so a message may
/// arrive twice.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct FleetMessage {
    /// Number of the receiver's last [request](Ack::asks) for all flows that is completed with this
    /// message.
    pub swept: u64,
    /// VIPs and backends of the flows.
    pub places: Vec<(VipId, BackendId)>,
    /// Flows.
    pub flows: Vec<FlowPart>,
    /// Flows that an operator or application pinned.
    pub pins: Vec<PinPart>,
}

/// A flow.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct FlowPart {
    /// Its digest, the same on all balancers.
    pub digest: Digest,
    /// Index of its VIP and backend in [`FleetMessage::places`].
    pub place: u16,
    /// Progress of the flow.
    pub state: FlowState,
    /// Evidence that it is not a forged packet.
    pub evidence: Evidence,
    /// Whether the sender knows it from another balancer.
    pub remote: bool,
    /// Whether only connection ids lead to its backend.
    pub by_id: bool,
    /// Intervals since its last packet.
    pub idle: u16,
}

/// A flow that an operator or application pinned, or unpinned.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PinPart {
    /// Its VIP.
    pub vip: VipId,
    /// The flow.
    pub flow: FlowId,
    /// Its backend; `None`: the pin was removed.
    pub backend: Option<BackendId>,
    /// Number of the change; the highest one is in force.
    pub version: u64,
}

/// Answer to a [`FleetMessage`].
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Ack {
    /// Number of the last request for all flows; requests begin at 1.
    pub asks: u64,
    /// Flows without a place: the receiver does not have their VIP or backend.
    pub unplaced: u32,
    /// Flows and pins for which the receiver has no room.
    pub full: u32,
}

/// Bytes that are not a message of this version.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error(
    "the peer sent a message that cannot be read: run the same version of equipoise on all balancers"
)]
pub struct UnreadableMessage;

const EVIDENCES: [Evidence; 3] = [Evidence::None, Evidence::Opened, Evidence::Confirmed];
const STATES: [FlowState; 4] =
    [FlowState::Open, FlowState::Closing, FlowState::Reset, FlowState::Recorded];
/// Bits of a flow's flags: state, evidence, remote, by id.
const EVIDENCE_SHIFT: u8 = 2;
const REMOTE: u8 = 1 << 4;
const BY_ID: u8 = 1 << 5;

impl FleetMessage {
    /// Bytes of a flow, without its place.
    pub const FLOW_BYTES: usize = 13;

    /// Returns its bytes.
    pub fn encode(&self) -> Vec<u8> {
        let mut out = Vec::with_capacity(64 + self.flows.len() * FleetMessage::FLOW_BYTES);
        out.extend(self.swept.to_be_bytes());
        count(&mut out, self.places.len());
        for (vip, backend) in &self.places {
            text(&mut out, &vip.to_string());
            put_backend(&mut out, Some(backend));
        }
        count(&mut out, self.flows.len());
        for flow in &self.flows {
            let flags = flow.state as u8
                | (flow.evidence as u8) << EVIDENCE_SHIFT
                | if flow.remote { REMOTE } else { 0 }
                | if flow.by_id { BY_ID } else { 0 };
            out.extend(flow.digest.0.to_be_bytes());
            out.extend(flow.place.to_be_bytes());
            out.push(flags);
            out.extend(flow.idle.to_be_bytes());
        }
        count(&mut out, self.pins.len());
        for pin in &self.pins {
            text(&mut out, &pin.vip.to_string());
            text(&mut out, &FlowText(&pin.flow).to_string());
            put_backend(&mut out, pin.backend.as_ref());
            out.extend(pin.version.to_be_bytes());
        }
        out
    }

    /// Reads a message.
    ///
    /// # Errors
    /// [`UnreadableMessage`]
    pub fn decode(bytes: &[u8]) -> Result<FleetMessage, UnreadableMessage> {
        FleetMessage::read(&mut Reader(bytes)).ok_or(UnreadableMessage)
    }

    fn read(reader: &mut Reader<'_>) -> Option<FleetMessage> {
        let swept = reader.u64()?;
        let places = reader.list(|it| Some((it.vip()?, it.backend()??)))?;
        let flows = reader.list(|it| it.flow(places.len()))?;
        let pins = reader.list(|it| {
            let (vip, flow) = (it.vip()?, it.flow_id()?);
            Some(PinPart { vip, flow, backend: it.backend()?, version: it.u64()? })
        })?;
        reader.0.is_empty().then_some(FleetMessage { swept, places, flows, pins })
    }
}

impl Ack {
    /// Returns its bytes.
    pub fn encode(&self) -> Vec<u8> {
        let Ack { asks, unplaced, full } = self;
        [&asks.to_be_bytes()[..], &unplaced.to_be_bytes(), &full.to_be_bytes()].concat()
    }

    /// Reads an answer.
    ///
    /// # Errors
    /// [`UnreadableMessage`]
    pub fn decode(bytes: &[u8]) -> Result<Ack, UnreadableMessage> {
        let mut reader = Reader(bytes);
        let mut read = || {
            Some(Ack {
                asks: reader.u64()?,
                unplaced: reader.number().map(u32::from_be_bytes)?,
                full: reader.number().map(u32::from_be_bytes)?,
            })
        };
        let ack = read().ok_or(UnreadableMessage)?;
        if reader.0.is_empty() { Ok(ack) } else { Err(UnreadableMessage) }
    }
}

/// Writes a number of elements; messages are bounded far below its limit.
fn count(out: &mut Vec<u8>, elements: usize) {
    out.extend(u16::try_from(elements).unwrap_or(u16::MAX).to_be_bytes());
}

fn text(out: &mut Vec<u8>, text: &str) {
    count(out, text.len());
    out.extend(text.as_bytes());
}

fn put_backend(out: &mut Vec<u8>, backend: Option<&BackendId>) {
    match backend.map(|it| it.address) {
        None => out.push(0),
        Some(IpAddr::V4(address)) => {
            out.push(4);
            out.extend(address.octets());
        }
        Some(IpAddr::V6(address)) => {
            out.push(6);
            out.extend(address.octets());
        }
    }
    if let Some(backend) = backend {
        out.extend(backend.port.unwrap_or(0).to_be_bytes());
    }
}

/// The bytes that are not read yet.
struct Reader<'a>(&'a [u8]);

impl<'a> Reader<'a> {
    fn take(&mut self, bytes: usize) -> Option<&'a [u8]> {
        let (taken, rest) = self.0.split_at_checked(bytes)?;
        self.0 = rest;
        Some(taken)
    }

    fn number<const N: usize>(&mut self) -> Option<[u8; N]> {
        self.take(N)?.first_chunk().copied()
    }

    fn u16(&mut self) -> Option<u16> {
        self.number().map(u16::from_be_bytes)
    }

    fn u64(&mut self) -> Option<u64> {
        self.number().map(u64::from_be_bytes)
    }

    fn list<T>(&mut self, mut read: impl FnMut(&mut Self) -> Option<T>) -> Option<Vec<T>> {
        let elements = self.u16()?;
        (0..elements).map(|_| read(self)).collect()
    }

    fn text(&mut self) -> Option<&'a str> {
        let bytes = self.u16()?;
        std::str::from_utf8(self.take(bytes.into())?).ok()
    }

    fn vip(&mut self) -> Option<VipId> {
        self.text()?.parse().ok()
    }

    fn flow_id(&mut self) -> Option<FlowId> {
        let mut words = self.text()?.split(' ');
        ledger::flow(&mut words).filter(|_| words.next().is_none())
    }

    fn backend(&mut self) -> Option<Option<BackendId>> {
        let address: IpAddr = match self.number()? {
            [0] => return Some(None),
            [4] => Ipv4Addr::from(self.number::<4>()?).into(),
            [6] => Ipv6Addr::from(self.number::<16>()?).into(),
            _ => return None,
        };
        let port = self.u16()?;
        Some(Some(BackendId { address, port: (port > 0).then_some(port) }))
    }

    fn flow(&mut self, places: usize) -> Option<FlowPart> {
        let (digest, place) = (Digest(self.u64()?), self.u16()?);
        let [flags] = self.number()?;
        let idle = self.u16()?;
        let is_known = flags < 2 * BY_ID && usize::from(place) < places;
        is_known.then_some(FlowPart {
            digest,
            place,
            state: STATES[usize::from(flags & 3)],
            evidence: *EVIDENCES.get(usize::from(flags >> EVIDENCE_SHIFT & 3))?,
            remote: flags & REMOTE != 0,
            by_id: flags & BY_ID != 0,
            idle,
        })
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn message() -> FleetMessage {
        let vip: VipId = "192.0.2.1:80/tcp".parse().unwrap();
        let wide: VipId = "[2001:db8::1]:8000-8099/udp".parse().unwrap();
        let four = BackendId { address: [10, 0, 0, 1].into(), port: Some(8080) };
        let six = BackendId { address: "2001:db8::7".parse().unwrap(), port: None };
        let tuple = FlowId::FiveTuple(
            "198.51.100.7:4000".parse().unwrap(),
            "192.0.2.1:80".parse().unwrap(),
        );
        let flow = |digest, place, state, evidence, remote, idle| FlowPart {
            digest: Digest(digest),
            place,
            state,
            evidence,
            remote,
            by_id: remote,
            idle,
        };
        FleetMessage {
            swept: 3,
            places: vec![(vip, four), (wide, six)],
            flows: vec![
                flow(1, 0, FlowState::Open, Evidence::None, true, 0),
                flow(u64::MAX, 1, FlowState::Closing, Evidence::Confirmed, false, u16::MAX),
                flow(5, 1, FlowState::Reset, Evidence::Opened, false, 7),
            ],
            pins: vec![
                PinPart { vip, flow: tuple, backend: Some(four), version: 9 },
                PinPart { vip, flow: FlowId::SourceMac([1; 6]), backend: None, version: 1 },
                PinPart {
                    vip: wide,
                    flow: FlowId::SourceAddress([1, 2, 3, 4].into()),
                    backend: Some(six),
                    version: 2,
                },
            ],
        }
    }

    #[test]
    fn an_encoded_message_or_ack_decodes_equal() {
        for message in [message(), FleetMessage::default()] {
            assert_eq!(FleetMessage::decode(&message.encode()), Ok(message));
        }
        let ack = Ack { asks: 1, unplaced: 2, full: 3 };
        assert_eq!(Ack::decode(&ack.encode()), Ok(ack));
    }

    #[test]
    fn a_truncated_or_extended_message_is_refused() {
        let bytes = message().encode();
        for end in 0..bytes.len() {
            assert_eq!(FleetMessage::decode(&bytes[..end]), Err(UnreadableMessage), "{end}");
        }
        assert_eq!(FleetMessage::decode(&[&bytes[..], &[0]].concat()), Err(UnreadableMessage));
        assert_eq!(Ack::decode(&[0; 17]), Err(UnreadableMessage));
    }

    #[test]
    fn an_encoded_flow_has_the_declared_size() {
        let (mut one, empty) = (message(), message());
        one.flows.push(one.flows[0]);
        assert_eq!(one.encode().len() - empty.encode().len(), FleetMessage::FLOW_BYTES);
    }

    proptest! {
        #[test]
        fn altered_bytes_are_refused_or_decode_consistently(at in 0..200_usize, to: u8, tail: Vec<u8>) {
            let mut bytes = message().encode();
            let at = at % bytes.len();
            bytes[at] = to;
            bytes.extend(tail);
            if let Ok(read) = FleetMessage::decode(&bytes) {
                prop_assert_eq!(FleetMessage::decode(&read.encode()), Ok(read));
            }
        }
    }
}
