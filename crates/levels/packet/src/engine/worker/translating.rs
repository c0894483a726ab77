//! Memory for the flows of nat, from the first VIP with nat on. It stays until the program ends.

use super::super::EngineError;
use super::super::place::Place;
use super::Worker;
use crate::abi::Forward;
use crate::control::ApplyError;
use crate::privileges;
use crate::program::{Program, TranslatedFlows};
use crate::snapshot::Snapshot;

fn lacks(program: &Program, snapshot: &Snapshot) -> bool {
    !program.translates() && snapshot.vips.iter().any(|vip| vip.forward == Forward::Nat)
}

/// Allocates the memory if the first snapshot needs it. Maps that are new are pinned later, all
/// together.
pub(super) fn translate_at_start(
    program: &mut Program,
    place: &Place,
    snapshot: &Snapshot,
    is_new: bool,
) -> Result<(), EngineError> {
    if !lacks(program, snapshot) {
        return Ok(());
    }
    let mut flows = TranslatedFlows::create(program.limits())?;
    if !is_new {
        place.pin_translated(&mut flows)?;
    }
    Ok(program.translate(flows)?)
}

impl Worker {
    /// Allocates the memory if a snapshot needs it first. It is pinned before the program has it,
    /// so that a process that takes over has the same.
    pub(super) fn translate(&mut self, snapshot: &Snapshot) -> Result<(), ApplyError> {
        if !lacks(&self.program, snapshot) {
            return Ok(());
        }
        let limits = self.limits;
        let bytes = u64::from(limits.translated_bytes());
        let failed = |error: &dyn std::error::Error| {
            let error = error.source().map_or_else(|| error.to_string(), ToString::to_string);
            ApplyError::NoTranslated { bytes, error }
        };
        // This thread has given up the right to create maps.
        let created = privileges::run(move || TranslatedFlows::create(&limits));
        let mut flows = created.map_err(|error| failed(&error))?;
        self.place.pin_translated(&mut flows).map_err(|error| failed(&error))?;
        self.program.translate(flows).map_err(|error| failed(&error))
    }
}
