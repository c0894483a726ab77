//! An item's content, which the protocol hands around by reference.

use std::fmt;
use std::sync::Arc;

use equipoise_dds::Sample;
use equipoise_dds::cdr::Malformed;
use equipoise_dds::items::DataItem;
use serde::de::{Deserialize, Deserializer, Error, Visitor};
use serde::ser::{Serialize, Serializer};

/// An item as it came: of DDS, or of another worker that passed it on.
#[derive(Debug, Clone)]
pub enum Payload {
    /// As DDS holds it.
    Sample(Arc<Sample>),
    /// As another worker sent it.
    Passed(Arc<[u8]>),
}

impl Payload {
    /// Serialized, with its header.
    pub fn cdr(&self) -> &[u8] {
        match self {
            Self::Sample(sample) => sample.cdr(),
            Self::Passed(cdr) => cdr,
        }
    }

    /// The item.
    ///
    /// # Errors
    /// [`Malformed`], which nothing is that was admitted.
    pub fn item(&self) -> Result<DataItem<'_>, Malformed> {
        DataItem::decode(self.cdr())
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
