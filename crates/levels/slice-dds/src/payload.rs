//! An item's content, which the protocol passes by reference.

use std::fmt;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};

use equipoise_dds::Sample;
use serde::de::{Deserialize, Deserializer, Error, Visitor};
use serde::ser::{Serialize, Serializer};

/// An item as received from DDS or from another worker.
#[derive(Debug, Clone)]
pub enum Payload {
    /// In DDS's memory.
    Sample(Arc<Held>),
    /// As another worker sent it.
    Passed(Arc<[u8]>),
}

/// A sample. Its bytes are counted until the last reference is dropped: by a queue, a shadow, the
/// tail for a target, or a standby.
#[derive(Debug)]
pub struct Held {
    sample: Sample,
    bytes: Arc<AtomicUsize>,
}

impl Held {
    /// Adds its size to `bytes`.
    pub(crate) fn new(sample: Sample, bytes: &Arc<AtomicUsize>) -> Arc<Self> {
        bytes.fetch_add(sample.cdr().len(), Relaxed);
        Arc::new(Self { sample, bytes: bytes.clone() })
    }
}

impl Drop for Held {
    fn drop(&mut self) {
        self.bytes.fetch_sub(self.sample.cdr().len(), Relaxed);
    }
}

impl Payload {
    /// The serialized item, with its header.
    pub fn cdr(&self) -> &[u8] {
        match self {
            Self::Sample(held) => held.sample.cdr(),
            Self::Passed(cdr) => cdr,
        }
    }
}

impl Serialize for Payload {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_bytes(self.cdr())
    }
}

struct Bytes;

impl Visitor<'_> for Bytes {
    type Value = Payload;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a serialized item")
    }

    fn visit_bytes<E: Error>(self, bytes: &[u8]) -> Result<Payload, E> {
        Ok(Payload::Passed(bytes.into()))
    }
}

impl<'de> Deserialize<'de> for Payload {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_bytes(Bytes)
    }
}
