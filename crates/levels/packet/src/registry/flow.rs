//! A flow as the registry has it: a digest and one word.

use crate::abi::SLOT_BITS;
use crate::digest::Digest;

/// A flow known.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Flow {
    /// Which.
    pub digest: Digest,
    /// Number of its service.
    pub service: u16,
    /// Slot of its backend.
    pub slot: u16,
    /// How far it is.
    pub state: FlowState,
    /// Whether it is in the set of pins.
    pub pinned: bool,
    /// Whether an operator or application pinned it.
    pub registered: bool,
    /// Evidence that it is no forged packet.
    pub evidence: Evidence,
    /// Whether another balancer of the fleet had its last packet.
    pub remote: bool,
    /// Whether only connection ids lead to its backend. It needs no pin.
    pub by_id: bool,
    /// The last interval in which it was logged; wraps at 2^28.
    pub seen: u32,
}

/// Evidence that a flow is more than one packet from a forged address. The registry, if it is full,
/// and the set of pins prefer flows with more of it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Evidence {
    /// Packets in one interval only.
    #[default]
    None,
    /// A SYN, then another packet in time.
    Opened,
    /// Packets in two intervals, or a registered pin.
    Confirmed,
}

/// How far a flow is; decides when it is forgotten.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[repr(u8)]
pub enum FlowState {
    /// Its packets were seen.
    Open = 0,
    /// A FIN was seen last.
    Closing = 1,
    /// A RST was seen last.
    Reset = 2,
    /// Found in pending, not logged: perhaps a packet that was never answered.
    Recorded = 3,
}

impl FlowState {
    const ALL: [FlowState; 4] =
        [FlowState::Open, FlowState::Closing, FlowState::Reset, FlowState::Recorded];
}

const STATE_SHIFT: u32 = SLOT_BITS;
const PINNED: u64 = 1 << 14;
const REGISTERED: u64 = 1 << 15;
const CONFIRMED: u64 = 1 << 16;
const OPENED: u64 = 1 << 17;
const REMOTE: u64 = 1 << 18;
const BY_ID: u64 = 1 << 19;
const SERVICE_SHIFT: u32 = 20;
const SEEN_SHIFT: u32 = 36;
/// Bits of [`Flow::seen`].
pub(crate) const SEEN_MASK: u32 = (1 << (u64::BITS - SEEN_SHIFT)) - 1;

impl Flow {
    /// Just met.
    pub(crate) fn new(
        digest: Digest,
        service: u16,
        slot: u16,
        state: FlowState,
        seen: u32,
    ) -> Flow {
        let (pinned, registered, remote, by_id) = (false, false, false, false);
        let evidence = Evidence::None;
        Flow { digest, service, slot, state, pinned, registered, evidence, remote, by_id, seen }
    }

    #[inline(always)]
    pub(super) fn of(digest: Digest, word: u64) -> Flow {
        Flow {
            digest,
            service: (word >> SERVICE_SHIFT) as u16,
            slot: (word & ((1 << SLOT_BITS) - 1)) as u16,
            state: FlowState::ALL[(word >> STATE_SHIFT & 3) as usize],
            pinned: word & PINNED != 0,
            registered: word & REGISTERED != 0,
            evidence: match word & (CONFIRMED | OPENED) {
                0 => Evidence::None,
                OPENED => Evidence::Opened,
                _ => Evidence::Confirmed,
            },
            remote: word & REMOTE != 0,
            by_id: word & BY_ID != 0,
            seen: (word >> SEEN_SHIFT) as u32,
        }
    }

    #[inline(always)]
    pub(super) fn word(&self) -> u64 {
        let flag = |set, bit| if set { bit } else { 0 };
        u64::from(self.slot)
            | (self.state as u64) << STATE_SHIFT
            | flag(self.pinned, PINNED)
            | flag(self.registered, REGISTERED)
            | match self.evidence {
                Evidence::None => 0,
                Evidence::Opened => OPENED,
                Evidence::Confirmed => CONFIRMED,
            }
            | flag(self.remote, REMOTE)
            | flag(self.by_id, BY_ID)
            | u64::from(self.service) << SERVICE_SHIFT
            | u64::from(self.seen & SEEN_MASK) << SEEN_SHIFT
    }

    /// Intervals since it was logged, in interval `now`.
    #[inline(always)]
    pub fn idle(&self, now: u32) -> u32 {
        now.wrapping_sub(self.seen) & SEEN_MASK
    }

    /// LVS's active connections; the others are inactive.
    #[inline(always)]
    pub fn is_active(&self) -> bool {
        self.state == FlowState::Open
    }
}
