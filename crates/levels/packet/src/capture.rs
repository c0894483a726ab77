//! Captures of a VIP's packets for an operator: the question, the packets, and their file format.

mod pcapng;

use std::net::IpAddr;
use std::time::{Duration, SystemTime};

use thiserror::Error;

pub use pcapng::{end, packet, start};

use crate::abi::{CAPTURE_SNAP_MAX, How};
use crate::reason::Reason;
use crate::snapshot::{BackendId, VipId};

/// Packets to capture.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CaptureRequest {
    /// Packets of this VIP.
    pub vip: VipId,
    /// Only packets of this backend.
    pub backend: Option<BackendId>,
    /// Only packets of clients with these first bits of an address.
    pub client: Option<(IpAddr, u8)>,
    /// Largest number of packets.
    pub packets_max: u32,
    /// One of this many packets, by chance.
    pub every: u32,
    /// Bytes of each packet.
    pub snap_bytes: u32,
    /// Longest time.
    pub time_max: Duration,
}

impl CaptureRequest {
    /// Largest number of packets of a capture.
    pub const PACKETS_MAX: u32 = 1_000_000;
    /// Longest time of a capture.
    pub const TIME_MAX: Duration = Duration::from_secs(3600);
    /// Largest number of bytes of a packet.
    pub const SNAP_BYTES_MAX: u32 = CAPTURE_SNAP_MAX;
    /// Smallest number: addresses and ports.
    pub const SNAP_BYTES_MIN: u32 = 64;

    /// Checks the limits.
    pub(crate) fn check(&self) -> Result<(), CaptureError> {
        let range = |what, value: u32, least: u32, most: u32| {
            let accepted = || format!("{least} to {most}");
            let is_in = (least..=most).contains(&value);
            let error =
                || CaptureError::Range { what, value: value.to_string(), accepted: accepted() };
            if is_in { Ok(()) } else { Err(error()) }
        };
        range("count", self.packets_max, 1, Self::PACKETS_MAX)?;
        range("every", self.every, 1, 1 << 30)?;
        range("snap_bytes", self.snap_bytes, Self::SNAP_BYTES_MIN, Self::SNAP_BYTES_MAX)?;
        if self.time_max.is_zero() || self.time_max > Self::TIME_MAX {
            return Err(CaptureError::Range {
                what: "seconds",
                value: self.time_max.as_secs_f64().to_string(),
                accepted: format!("above 0, at most {}", Self::TIME_MAX.as_secs()),
            });
        }
        match self.client {
            Some((client, _)) if client.is_ipv4() != self.vip.address.is_ipv4() => {
                Err(CaptureError::Family { vip: self.vip, client })
            }
            _ => Ok(()),
        }
    }
}

/// A captured packet.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CapturedPacket {
    /// Time of its arrival.
    pub at: SystemTime,
    /// Bytes of the frame as received.
    pub frame_bytes: u32,
    /// The first of them.
    pub bytes: Vec<u8>,
    /// Its backend, if one was chosen and is still known.
    pub backend: Option<BackendId>,
    /// Reason why it went there.
    pub how: Option<How>,
    /// Reason why it was dropped.
    pub dropped: Option<Reason>,
}

/// Events of a capture.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum CaptureEvent {
    /// A packet.
    Packet(CapturedPacket),
    /// The capture has ended. The last event.
    End {
        /// Packets that were delivered.
        packets: u64,
        /// Packets that were lost because the reader was late.
        lost: u64,
    },
}

/// Receives the events of a capture, on the capture's thread. Returns `false` if there was no room.
pub type CaptureSink = Box<dyn FnMut(CaptureEvent) -> bool + Send>;

/// A capture cannot begin.
#[derive(Debug, Error)]
pub enum CaptureError {
    /// The VIP does not exist.
    #[error("there is no VIP {0}")]
    Vip(VipId),
    /// The backend does not exist.
    #[error("{vip} has no backend {backend}")]
    Backend {
        /// The VIP.
        vip: VipId,
        /// The backend.
        backend: BackendId,
    },
    /// A number is out of range.
    #[error("{what} is {value}; accepted: {accepted}")]
    Range {
        /// Name of the number.
        what: &'static str,
        /// Its value.
        value: String,
        /// Accepted values.
        accepted: String,
    },
    /// The client's prefix has the other IP family.
    #[error("{vip} and the client {client} are of different IP families")]
    Family {
        /// The VIP.
        vip: VipId,
        /// The prefix's address.
        client: IpAddr,
    },
    /// There is a capture already.
    #[error("another capture runs: wait for its end, or end it")]
    Busy,
    /// The kernel refuses.
    #[error("cannot capture: {0}")]
    Kernel(String),
}
