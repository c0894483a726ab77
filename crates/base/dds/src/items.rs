//! The types of the slice level's topics.
//!
//! ```idl
//! module dpslb {
//!   @final struct DataItem {       // what clients publish
//!     long sliceId;                // the key; or id, as in the paper
//!     long long id;
//!     long senderId;
//!     long long timestamp;
//!     sequence<octet> message;
//!   };
//!   @final struct Reply {          // what workers answer
//!     @key long long id;
//!     long long timestamp;
//!     long senderId;
//!     sequence<octet> message;
//!   };
//! };
//! ```
//!
//! # Source
//! Vasconcelos, DPSLB (PUC-Rio), the evaluation's topics. Deviates: items are keyed by their slice,
//! because a key per item would leave an instance in every reader's memory for each item.
//! [`DATA_ITEM_BY_ID`] is the paper's type.

use crate::cdr::{Decoder, Encoder, Malformed};
use crate::types::{Kind, Member, StructType};

const fn member(name: &'static str, kind: Kind) -> Member {
    Member { name, kind, key: false }
}

const fn key(name: &'static str, kind: Kind) -> Member {
    Member { name, kind, key: true }
}

/// Items, keyed by slice.
pub const DATA_ITEM: StructType = StructType {
    name: "dpslb::DataItem",
    members: &[
        key("sliceId", Kind::I32),
        member("id", Kind::I64),
        member("senderId", Kind::I32),
        member("timestamp", Kind::I64),
        member("message", Kind::Octets),
    ],
};

/// Items, keyed by id, as in the paper.
pub const DATA_ITEM_BY_ID: StructType = StructType {
    name: "dpslb::DataItem",
    members: &[
        member("sliceId", Kind::I32),
        key("id", Kind::I64),
        member("senderId", Kind::I32),
        member("timestamp", Kind::I64),
        member("message", Kind::Octets),
    ],
};

/// Replies.
pub const REPLY: StructType = StructType {
    name: "dpslb::Reply",
    members: &[
        key("id", Kind::I64),
        member("timestamp", Kind::I64),
        member("senderId", Kind::I32),
        member("message", Kind::Octets),
    ],
};

/// An item, which a client publishes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct DataItem<'a> {
    /// The slice, by the client's assignment function.
    pub slice_id: i32,
    /// The item's id.
    pub id: i64,
    /// The client that publishes it.
    pub sender_id: i32,
    /// Time of publication by the client's clock.
    pub timestamp: i64,
    /// The content.
    pub message: &'a [u8],
}

impl<'a> DataItem<'a> {
    /// Greatest length of a serialized item without its message, in bytes.
    pub const HEAD_MAX: usize = 48;

    /// Decodes a serialized sample.
    ///
    /// # Errors
    /// [`Malformed`]
    pub fn decode(cdr: &'a [u8]) -> Result<Self, Malformed> {
        let mut decoder = Decoder::new(cdr)?;
        Ok(Self {
            slice_id: decoder.i32()?,
            id: decoder.i64()?,
            sender_id: decoder.i32()?,
            timestamp: decoder.i64()?,
            message: decoder.octets()?,
        })
    }

    /// Decodes the slice alone, because this is called for every sample of a group.
    ///
    /// # Errors
    /// [`Malformed`]
    #[inline]
    pub fn peek_slice(cdr: &[u8]) -> Result<i32, Malformed> {
        Decoder::new(cdr)?.i32()
    }

    /// Serializes the item into `buffer`, which is cleared first.
    pub fn encode(&self, buffer: &mut Vec<u8>) {
        let mut encoder = Encoder::new(buffer);
        encoder.i32(self.slice_id);
        encoder.i64(self.id);
        encoder.i32(self.sender_id);
        encoder.i64(self.timestamp);
        encoder.octets(self.message);
        encoder.finish();
    }
}

/// A reply, which a worker publishes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Reply<'a> {
    /// The item's id.
    pub id: i64,
    /// The item's timestamp.
    pub timestamp: i64,
    /// The item's client.
    pub sender_id: i32,
    /// The content.
    pub message: &'a [u8],
}

impl<'a> Reply<'a> {
    /// Decodes a serialized sample.
    ///
    /// # Errors
    /// [`Malformed`]
    pub fn decode(cdr: &'a [u8]) -> Result<Self, Malformed> {
        let mut decoder = Decoder::new(cdr)?;
        Ok(Self {
            id: decoder.i64()?,
            timestamp: decoder.i64()?,
            sender_id: decoder.i32()?,
            message: decoder.octets()?,
        })
    }

    /// Serializes the reply into `buffer`, which is cleared first.
    pub fn encode(&self, buffer: &mut Vec<u8>) {
        let mut encoder = Encoder::new(buffer);
        encoder.i64(self.id);
        encoder.i64(self.timestamp);
        encoder.i32(self.sender_id);
        encoder.octets(self.message);
        encoder.finish();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn items_and_replies_come_back_as_they_were() {
        let mut buffer = Vec::new();
        for length in 0..9 {
            let message = &[5; 9][..length];
            let item =
                DataItem { slice_id: -1, id: i64::MAX, sender_id: 3, timestamp: -4, message };
            item.encode(&mut buffer);
            assert_eq!(DataItem::decode(&buffer), Ok(item));
            assert!(buffer.len() <= length + DataItem::HEAD_MAX);
            assert_eq!(DataItem::peek_slice(&buffer), Ok(-1));
            let reply = Reply { id: 2, timestamp: 3, sender_id: i32::MIN, message };
            reply.encode(&mut buffer);
            assert_eq!(Reply::decode(&buffer), Ok(reply));
        }
    }

    #[test]
    fn no_bytes_make_decoding_panic() {
        let mut bytes = vec![0; 64];
        let mut state: u32 = 1;
        for _ in 0..20_000 {
            for byte in &mut bytes {
                state = state.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
                *byte = (state >> 24) as u8;
            }
            bytes[0] = 0;
            bytes[1] %= 8;
            let length = state as usize % bytes.len();
            let _ = DataItem::decode(&bytes[..length]);
            let _ = Reply::decode(&bytes[..length]);
        }
    }
}
