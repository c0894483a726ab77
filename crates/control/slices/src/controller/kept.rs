//! The record of a stream in the store, from which the next controller continues.

use std::collections::{BTreeMap, BTreeSet};
use std::time::{SystemTime, UNIX_EPOCH};

use equipoise_slice::controller::Stored;
use equipoise_slice::{HandoverId, Numbering, SliceId};
use serde::{Deserialize, Serialize};

/// Version of the encoding, the first byte of the record.
const VERSION: u8 = 3;
/// The previous version, without [`Kept::resized`].
const VERSION_BEFORE: u8 = 2;

/// The stream's record in the store.
#[derive(Debug, Clone, PartialEq, Default)]
pub(super) struct Kept {
    /// State of the protocol.
    pub(super) stored: Stored,
    pub(super) wishes: Wishes,
    pub(super) resized: Resized,
}

/// The part of the record that resizes need.
#[derive(Debug, Clone, Copy, PartialEq, Default, Serialize, Deserialize)]
pub(super) struct Resized {
    /// [`Stored::numbering`].
    numbering: Option<Numbering>,
    /// The numbering of [`Wishes::pins`].
    pub(super) pins: Option<Numbering>,
    /// Number of slices that an operator requested, until the stream has that number.
    pub(super) wanted: Option<u32>,
}

/// Settings of operators, until they change them. They outlive controllers and workers.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize)]
pub(super) struct Wishes {
    /// The worker of each pinned slice, by name. The slice stays there while the worker is alive.
    pub(super) pins: BTreeMap<SliceId, String>,
    /// Drained workers, by name.
    pub(super) leaving: BTreeSet<String>,
}

/// Why the record in the store is not used.
#[derive(Debug, thiserror::Error)]
pub(super) enum KeptError {
    #[error(
        "the stream's record in the store has version {0}, but this equipoise reads versions {VERSION_BEFORE} and {VERSION}: start the equipoise that wrote it"
    )]
    Version(u8),
    #[error("the stream's record in the store is empty")]
    Empty,
    #[error("the stream's record in the store cannot be decoded")]
    Encoding(#[from] postcard::Error),
}

impl Kept {
    /// The first record of a stream with a folder of checkpoints. The folder may have some of
    /// earlier records, which were lost, so handovers get larger numbers: those after the time in
    /// milliseconds, since no stream has a thousand handovers a second for ever.
    pub(super) fn after_others() -> Self {
        let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
        let last = HandoverId(u64::try_from(now.as_millis()).unwrap_or_default());
        Self { stored: Stored { last, ..Stored::default() }, ..Self::default() }
    }

    pub(super) fn encode(&self) -> Result<Vec<u8>, KeptError> {
        let resized = Resized { numbering: self.stored.numbering, ..self.resized };
        Ok(postcard::to_extend(&(&self.stored, &self.wishes, resized), vec![VERSION])?)
    }

    pub(super) fn decode(bytes: &[u8]) -> Result<Self, KeptError> {
        match bytes.split_first() {
            None => Err(KeptError::Empty),
            Some((&VERSION_BEFORE, body)) => {
                let (stored, wishes) = postcard::from_bytes(body)?;
                Ok(Self { stored, wishes, resized: Resized::default() })
            }
            Some((&VERSION, body)) => {
                let (stored, wishes, resized): (Stored, Wishes, Resized) =
                    postcard::from_bytes(body)?;
                let stored = Stored { numbering: resized.numbering, ..stored };
                Ok(Self { stored, wishes, resized })
            }
            Some((version, _)) => Err(KeptError::Version(*version)),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_record_of_either_version_decodes_and_invalid_bytes_are_refused() {
        let mut kept = Kept::default();
        kept.wishes.pins.insert(SliceId(7), "one".into());
        kept.wishes.leaving.insert("two".into());
        let before = postcard::to_extend(&(&kept.stored, &kept.wishes), vec![VERSION_BEFORE]);
        assert_eq!(Kept::decode(&before.unwrap()).unwrap(), kept);
        let eight = Numbering::new(4).resized(8, equipoise_slice::HandoverId(3));
        kept.stored.numbering = Some(eight);
        kept.resized = Resized { numbering: Some(eight), pins: Some(eight), wanted: Some(16) };
        let bytes = kept.encode().unwrap();
        assert_eq!(Kept::decode(&bytes).unwrap(), kept);
        assert!(matches!(Kept::decode(&[]), Err(KeptError::Empty)));
        assert!(matches!(Kept::decode(&[9, 1, 2]), Err(KeptError::Version(9))));
        for length in 1..bytes.len() {
            assert!(Kept::decode(&bytes[..length]).is_err(), "{length} bytes of it");
        }
    }
}
