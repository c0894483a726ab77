//! Quality of service of readers and writers: as much of it as a stream of items needs.

use std::ffi::c_void;
use std::time::Duration;

use cyclors::{
    dds_create_qos, dds_delete_qos, dds_durability_kind_DDS_DURABILITY_TRANSIENT_LOCAL,
    dds_durability_kind_DDS_DURABILITY_VOLATILE, dds_history_kind_DDS_HISTORY_KEEP_ALL,
    dds_history_kind_DDS_HISTORY_KEEP_LAST, dds_qos_t, dds_qset_durability, dds_qset_history,
    dds_qset_partition1, dds_qset_reliability, dds_qset_userdata, dds_qset_writer_data_lifecycle,
    dds_reliability_kind_DDS_RELIABILITY_BEST_EFFORT,
    dds_reliability_kind_DDS_RELIABILITY_RELIABLE,
};

use crate::entity::duration;
use crate::error::{Error, c_string};

/// How samples are carried. The default loses none: reliable, all kept, not repeated to late readers.
///
/// Readers have no bound in DDS: one that has makes its writers wait, and with them everybody who reads. Whoever takes
/// samples bounds what it keeps.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Qos {
    /// Whether what is lost on the way is sent again.
    pub reliable: bool,
    /// A reliable writer whose readers do not keep up waits at most this long.
    pub blocking_max: Duration,
    /// Samples kept of each instance. None: all.
    pub keep_last: Option<u16>,
    /// Whether a reader that comes later gets what its writers have kept.
    pub transient_local: bool,
    /// Only writers and readers of one partition meet. None: the default one.
    pub partition: Option<String>,
    /// Told to whoever discovers the writer or reader.
    pub user_data: Vec<u8>,
}

impl Default for Qos {
    fn default() -> Self {
        Self {
            reliable: true,
            blocking_max: Duration::from_secs(10),
            keep_last: None,
            transient_local: false,
            partition: None,
            user_data: Vec::new(),
        }
    }
}

/// A QoS object of Cyclone DDS.
pub(crate) struct Policies(*mut dds_qos_t);

impl Policies {
    pub(crate) fn as_ptr(&self) -> *const dds_qos_t {
        self.0
    }

    /// None set.
    pub(crate) fn new() -> Self {
        // SAFETY: it allocates, and aborts when it cannot.
        Self(unsafe { dds_create_qos() })
    }

    pub(crate) fn user_data(&mut self, bytes: &[u8]) {
        // SAFETY: the bytes live across the call, which copies them.
        unsafe { dds_qset_userdata(self.0, bytes.as_ptr().cast::<c_void>(), bytes.len()) };
    }

    /// For a publisher or subscriber.
    pub(crate) fn partition(&mut self, name: &str) -> Result<(), Error> {
        let name = c_string("the partition", name)?;
        // SAFETY: the name lives across the call, which copies it.
        unsafe { dds_qset_partition1(self.0, name.as_ptr()) };
        Ok(())
    }
}

impl From<&Qos> for Policies {
    fn from(qos: &Qos) -> Self {
        let mut policies = Self::new();
        let reliability = match qos.reliable {
            true => dds_reliability_kind_DDS_RELIABILITY_RELIABLE,
            false => dds_reliability_kind_DDS_RELIABILITY_BEST_EFFORT,
        };
        let (history, depth) = match qos.keep_last {
            None => (dds_history_kind_DDS_HISTORY_KEEP_ALL, 0),
            Some(last) => (dds_history_kind_DDS_HISTORY_KEEP_LAST, i32::from(last.max(1))),
        };
        let durability = match qos.transient_local {
            true => dds_durability_kind_DDS_DURABILITY_TRANSIENT_LOCAL,
            false => dds_durability_kind_DDS_DURABILITY_VOLATILE,
        };
        // SAFETY: the object is ours and valid. What is set for the other kind of endpoint is ignored.
        unsafe {
            dds_qset_reliability(policies.0, reliability, duration(qos.blocking_max));
            dds_qset_history(policies.0, history, depth);
            dds_qset_durability(policies.0, durability);
            // A writer that ends has not taken back what it wrote.
            dds_qset_writer_data_lifecycle(policies.0, false);
        }
        if !qos.user_data.is_empty() {
            policies.user_data(&qos.user_data);
        }
        policies
    }
}

impl Drop for Policies {
    fn drop(&mut self) {
        // SAFETY: it came of `dds_create_qos`, and nobody else frees it.
        unsafe { dds_delete_qos(self.0) };
    }
}
