//! What every DDS entity has: a handle, deleted with its last owner.

use std::time::Duration;

use cyclors::{dds_delete, dds_duration_t, dds_entity_t};

/// An entity of Cyclone DDS. Handles may be used from any thread at any time; one that is deleted is refused.
#[derive(Debug)]
pub(crate) struct Handle(dds_entity_t);

impl Handle {
    /// Takes over `entity`, which a `dds_create_...` returned.
    pub(crate) fn new(entity: dds_entity_t) -> Self {
        Self(entity)
    }

    pub(crate) fn raw(&self) -> dds_entity_t {
        self.0
    }
}

impl Drop for Handle {
    fn drop(&mut self) {
        // SAFETY: a handle is a number that Cyclone DDS looks up; one that is gone already is refused.
        unsafe { dds_delete(self.0) };
    }
}

/// A length of time for Cyclone DDS; what is too long is for ever.
pub(crate) fn duration(time: Duration) -> dds_duration_t {
    i64::try_from(time.as_nanos()).unwrap_or(i64::MAX)
}
