//! The writers that a reader receives from, and the positions of their items. No I/O.
//!
//! Every worker that receives an item must derive the same writer and position for it. Our own
//! clients send both. For any other publisher they are the writer's GUID and the source timestamp.
//! If a timestamp repeats or goes back, the position is the last one plus 1. Two workers that
//! discovered the publisher at different times may then count differently. If a slice moves at that
//! moment, such items may be lost or executed twice; the worker counts them.

use std::collections::{HashMap, HashSet};

use equipoise_dds::{Endpoint, WriterHandle};
use equipoise_slice::{Group, Writer};

use crate::stream::{Numbering, fnv1a};

/// The writers of one group's reader.
#[derive(Debug)]
pub(crate) struct Sources {
    group: Group,
    known: HashMap<WriterHandle, Source>,
}

#[derive(Debug, Clone, Copy)]
struct Source {
    writer: Writer,
    numbering: Numbering,
    last: u64,
}

/// The identity of an item.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Origin {
    pub(crate) writer: Writer,
    pub(crate) position: u64,
    pub(crate) again: bool,
    /// Its publisher keeps no copy: if the worker refuses the item, it is lost.
    pub(crate) plain: bool,
    /// Its timestamp did not grow, so its position was counted. Another worker may have counted
    /// differently.
    pub(crate) is_counted: bool,
}

impl Sources {
    pub(crate) fn new(group: Group) -> Self {
        Self { group, known: HashMap::new() }
    }

    pub(crate) fn knows(&self, handle: WriterHandle) -> bool {
        self.known.contains_key(&handle)
    }

    pub(crate) fn learn(&mut self, handle: WriterHandle, endpoint: &Endpoint) {
        let numbering = Numbering::of(&endpoint.user_data);
        let id = match numbering {
            Numbering::Plain => fnv1a(&endpoint.guid.0),
            Numbering::First(id) | Numbering::Again(id) => id,
        };
        let writer = Writer { group: self.group, id };
        self.known.insert(handle, Source { writer, numbering, last: 0 });
    }

    /// `None`: the writer is unknown.
    pub(crate) fn origin(&mut self, handle: WriterHandle, timestamp_ns: i64) -> Option<Origin> {
        let source = self.known.get_mut(&handle)?;
        let time = u64::try_from(timestamp_ns).unwrap_or(0);
        let (writer, again) = (source.writer, matches!(source.numbering, Numbering::Again(_)));
        let plain = source.numbering == Numbering::Plain;
        let position = if plain { time.max(source.last + 1) } else { time.max(1) };
        let is_counted = position != time;
        source.last = position;
        Some(Origin { writer, position, again, plain, is_counted })
    }

    /// Forgets writers that are not among `present`. Returns those that will send no more items.
    pub(crate) fn retain(&mut self, present: &HashSet<WriterHandle>) -> Vec<Writer> {
        let mut gone = Vec::new();
        self.known.retain(|handle, source| {
            let here = present.contains(handle);
            if !here && !matches!(source.numbering, Numbering::Again(_)) {
                gone.push(source.writer);
            }
            here
        });
        // A writer that was lost and rediscovered within a moment has two handles.
        let back = |writer: &Writer| self.known.values().any(|source| source.writer == *writer);
        gone.retain(|writer| !back(writer));
        gone
    }
}
