//! The frames on a worker's connection to a controller. Trust in both directions comes from DDS:
//! the controller announces its addresses with a nonce on the control topic, and only processes
//! that read this topic know the nonce.
//!
//! | bytes | content |
//! |---|---|
//! | 8 | `eqslice1` |
//! | 16 | nonce of the controller |
//! | 8 | the worker |
//! | 8 | its incarnation |
//! | 16 | its DDS participant |
//!
//! Numbers are little-endian. The controller sends nothing. A live worker never closes the
//! connection.

use std::net::SocketAddr;

use equipoise_dds::Guid;
use equipoise_slice::{Incarnation, WorkerId};
use serde::{Deserialize, Serialize};

/// Bytes of a frame.
pub const FRAME: usize = 56;
const MAGIC: &[u8; 8] = b"eqslice1";

/// Addresses at which a controller accepts workers' connections.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Listens {
    /// Belongs to one controller process.
    pub nonce: Nonce,
    /// The addresses.
    pub addresses: Vec<SocketAddr>,
}

/// Identifies a controller; its announcements contain it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub struct Nonce(pub [u8; 16]);

/// The frame that a worker sends when it opens the connection and when it begins a new incarnation.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Hello {
    /// The worker's incarnation.
    pub incarnation: Incarnation,
    /// Its DDS participant.
    pub participant: Guid,
}

/// Bytes that are not a frame for this controller.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("no frame of a worker that read this controller's announcement")]
pub struct Strange;

impl Hello {
    /// The frame for the controller with this nonce.
    pub fn encode(self, nonce: Nonce) -> [u8; FRAME] {
        let mut frame = [0; FRAME];
        frame[..8].copy_from_slice(MAGIC);
        frame[8..24].copy_from_slice(&nonce.0);
        frame[24..32].copy_from_slice(&self.incarnation.worker.0.to_le_bytes());
        frame[32..40].copy_from_slice(&self.incarnation.number.to_le_bytes());
        frame[40..].copy_from_slice(&self.participant.0);
        frame
    }

    /// Reads a frame for the controller with this nonce.
    ///
    /// # Errors
    /// It is no such frame.
    pub fn decode(frame: &[u8; FRAME], nonce: Nonce) -> Result<Self, Strange> {
        if frame[..8] != MAGIC[..] || frame[8..24] != nonce.0 {
            return Err(Strange);
        }
        let number = |at: usize| {
            let bytes = frame.get(at..at + 8).and_then(|bytes| bytes.try_into().ok());
            bytes.map(u64::from_le_bytes).ok_or(Strange)
        };
        let incarnation = Incarnation { worker: WorkerId(number(24)?), number: number(32)? };
        let guid = frame[40..].try_into().map_err(|_| Strange)?;
        Ok(Self { incarnation, participant: Guid(guid) })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_hello_comes_back_and_only_with_the_nonce_it_was_made_for() {
        let incarnation = Incarnation { worker: WorkerId(7), number: u64::MAX - 3 };
        let hello = Hello { incarnation, participant: Guid([9; 16]) };
        let (mine, other) = (Nonce([1; 16]), Nonce([2; 16]));
        let frame = hello.encode(mine);
        assert_eq!(Hello::decode(&frame, mine), Ok(hello));
        assert_eq!(Hello::decode(&frame, other), Err(Strange));
        let mut strange = frame;
        strange[7] = b'2';
        assert_eq!(Hello::decode(&strange, mine), Err(Strange));
        assert_eq!(Hello::decode(&[0; FRAME], Nonce([0; 16])), Err(Strange));
    }
}
