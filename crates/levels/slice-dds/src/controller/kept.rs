//! What a stream's controller keeps in the store, and the next one goes on from.

use std::collections::{BTreeMap, BTreeSet};

use equipoise_slice::controller::Stored;
use equipoise_slice::{Numbering, SliceId};
use serde::{Deserialize, Serialize};

/// Of the encoding; the first byte of what is stored.
const VERSION: u8 = 3;
/// The version before: without [`Kept::resized`].
const VERSION_BEFORE: u8 = 2;

/// Everything.
#[derive(Debug, Clone, PartialEq, Default)]
pub(super) struct Kept {
    /// The protocol's.
    pub(super) stored: Stored,
    pub(super) wishes: Wishes,
    pub(super) resized: Resized,
}

/// The part of the record that resizes need.
#[derive(Debug, Clone, Copy, PartialEq, Default, Serialize, Deserialize)]
pub(super) struct Resized {
    /// [`Stored::numbering`].
    numbering: Option<Numbering>,
    /// By which numbers slices are pinned.
    pub(super) pins: Option<Numbering>,
    /// How many slices an operator wants, until there are so many.
    pub(super) wanted: Option<u32>,
}

/// What operators want, until they want something else: it outlives controllers and workers.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize)]
pub(super) struct Wishes {
    /// Slices that stay on a worker, by its name, while that lives.
    pub(super) pins: BTreeMap<SliceId, String>,
    /// Workers that are to be left without slices.
    pub(super) leaving: BTreeSet<String>,
}

/// Why what the store holds is not used.
#[derive(Debug, thiserror::Error)]
pub(super) enum KeptError {
    #[error(
        "the stream's record in the store is of version {0}, and this equipoise knows {VERSION}: start the one that wrote it"
    )]
    Version(u8),
    #[error("the stream's record in the store is empty")]
    Empty,
    #[error("the stream's record in the store cannot be read")]
    Encoding(#[from] postcard::Error),
}

impl Kept {
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
    fn what_is_kept_comes_back_and_what_is_strange_is_refused() {
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
