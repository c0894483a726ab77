//! Loads the program, with the maps and flows of an earlier process where they fit.

use std::time::Instant;

use super::super::EngineError;
use super::super::notice::Notice;
use super::super::place::Place;
use crate::control::{Begun, Control, ControlError, Settings};
use crate::ledger::Ledger;
use crate::limits::{Capacity, Limits};
use crate::program::Program;
use crate::registry::Registry;

/// A loaded program with its control side.
pub(super) struct Loaded {
    pub(super) program: Program,
    pub(super) control: Control,
    /// Whether its maps are not pinned yet.
    pub(super) is_new: bool,
}

/// Loads a program with its control side, with the maps of an earlier process if they fit.
pub(super) fn load(
    place: &Place,
    capacity: &Capacity,
    settings: &Settings,
    now: Instant,
) -> Result<Loaded, EngineError> {
    let limits = Limits::new(capacity);
    let ledger = place.ledger();
    let registry = || Registry::open(&place.registry(), capacity.flows, settings.fleet_seed);
    let control = |program: &Program| -> Result<Result<Control, ControlError>, EngineError> {
        let (memories, known) = (vec![program.memory().clone()], ledger.as_ref().ok());
        Ok(Control::resume(memories, *capacity, registry()?, known, settings.clone(), now))
    };
    let why = match place.adoptable(&limits) {
        Ok(false) => None,
        Err(why) => Some(why.to_string()),
        Ok(true) => match Program::load_over(&limits, place.pins()) {
            Err(error) => Some(format!("for {error}")),
            Ok(program) => match control(&program)? {
                Ok(control) => {
                    let why = Some("nothing was published in them".to_owned());
                    tell_begun(control.begun(), why, place, &ledger);
                    return Ok(Loaded { program, control, is_new: false });
                }
                Err(error) => Some(format!("for {error}")),
            },
        },
    };
    let program = Program::load(&limits)?;
    let control = control(&program)??;
    tell_begun(control.begun(), why, place, &ledger);
    Ok(Loaded { program, control, is_new: true })
}

/// Logs the result of taking over from an earlier process. `why` its maps are unusable, if there
/// are some.
fn tell_begun(begun: Begun, why: Option<String>, place: &Place, ledger: &Result<Ledger, String>) {
    let Begun { is_anew, flows, forgotten, left_out, nameless } = begun;
    let unknown = || ledger.as_ref().err().cloned();
    let left = flows + forgotten + left_out > 0;
    if !is_anew {
        Notice::Adopted { flows }.log();
    } else if let Some(why) = why.or(left.then(|| place.where_maps_went().to_owned())) {
        Notice::NotAdopted { why }.log();
        if flows > 0 {
            Notice::Known { flows }.log();
        }
    }
    if left_out > 0 {
        let why = "there is room for fewer than before: raise [flows] max".to_owned();
        Notice::Forgotten { flows: left_out, why }.log();
    }
    if is_anew && forgotten > 0 {
        let no_place = || "their VIPs and backends have no place in tables of this size".to_owned();
        let why = unknown().map(|why| format!("what is known of them has no meaning, {why}"));
        Notice::Forgotten { flows: forgotten, why: why.unwrap_or_else(no_place) }.log();
    }
    if nameless > 0 {
        let why = unknown().unwrap_or_default();
        Notice::Nameless { flows: nameless, why }.log();
    }
}
