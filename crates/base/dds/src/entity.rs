//! A handle of a DDS entity, which is deleted with its last owner.

use std::time::Duration;

use cyclors::{dds_delete, dds_duration_t, dds_entity_t};

/// An entity of Cyclone DDS. Handles may be used from any thread at any time. Cyclone refuses a
/// handle of a deleted entity.
#[derive(Debug)]
pub(crate) struct Handle(dds_entity_t);

impl Handle {
    /// Takes ownership of `entity`, which a `dds_create_...` function returned.
    pub(crate) fn new(entity: dds_entity_t) -> Self {
        Self(entity)
    }

    pub(crate) fn raw(&self) -> dds_entity_t {
        self.0
    }
}

impl Drop for Handle {
    fn drop(&mut self) {
        // SAFETY: a handle is a number that Cyclone DDS looks up. It refuses one that is already
        // deleted.
        unsafe { dds_delete(self.0) };
    }
}

/// A duration for Cyclone DDS. A duration that is too long becomes infinite.
pub(crate) fn duration(time: Duration) -> dds_duration_t {
    i64::try_from(time.as_nanos()).unwrap_or(i64::MAX)
}
