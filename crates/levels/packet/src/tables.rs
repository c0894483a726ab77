//! The types of the published tables: a POG in fingerprint form over digests.

use equipoise_pog::publish::{Publisher, Reader, View};
use equipoise_pog::{Fingerprint, Pog, PogController};

use crate::abi::SLOT_BITS;
use crate::digest::{Digest, DigestHash};

/// Fingerprint above slot.
pub type PogCell = u16;
/// The image of the pinned flows.
pub type Pins = Pog<PogCell, DigestHash, Fingerprint>;
/// The pinned flows and their slots.
pub type PinController = PogController<Digest, PogCell, DigestHash, Fingerprint>;
/// Writes the program's tables.
pub type TablesPublisher = Publisher<PogCell, DigestHash, Fingerprint>;
/// Reads them.
pub type TablesReader = Reader<PogCell, DigestHash, Fingerprint>;
/// The copy in force.
pub type TablesView<'a> = View<'a, PogCell, DigestHash, Fingerprint>;

/// The form of the pins: slots below a fingerprint.
///
/// A value is taken for a pin if its fingerprint matches and its slot is one of the service's: an
/// unknown flow is falsely taken for pinned with probability `slots / 2^16`.
pub fn pin_form() -> Fingerprint {
    // 12 is below the 16 bits of a cell.
    Fingerprint::new::<PogCell>(SLOT_BITS)
        .unwrap_or_else(|| unreachable!("12 bits fit a cell of 16"))
}
