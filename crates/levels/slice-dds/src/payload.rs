//! An item's content, which the protocol hands around by reference.

use std::fmt;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};

use equipoise_dds::Sample;
use serde::de::{Deserialize, Deserializer, Error, Visitor};
use serde::ser::{Serialize, Serializer};

/// An item as it came: of DDS, or of another worker that passed it on.
#[derive(Debug, Clone)]
pub enum Payload {
    /// As DDS holds it.
    Sample(Arc<Held>),
    /// As another worker sent it.
    Passed(Arc<[u8]>),
}

/// A sample, counted as long as anything here holds it: a queue, a shadow, what is kept for a taker or as a standby.
#[derive(Debug)]
pub struct Held {
    sample: Sample,
    bytes: Arc<AtomicUsize>,
}

impl Held {
    /// Counts it in `bytes`.
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
    /// Serialized, with its header.
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
