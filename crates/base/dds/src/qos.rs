//! Quality of service of readers and writers, as far as streams of items need it.

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

/// Delivery of samples. The default loses none: reliable, keeps all samples, and sends late readers
/// none of the earlier ones.
///
/// Readers have no limit in DDS, because a full reader makes its writers wait, and so delays all
/// their readers. The code that takes samples limits its own memory.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Qos {
    /// True if lost samples are retransmitted.
    pub reliable: bool,
    /// Longest time for which a reliable writer waits for slow readers.
    pub blocking_max: Duration,
    /// Number of samples kept of each instance; `None`: all.
    pub keep_last: Option<u32>,
    /// True if a late reader receives the samples that its writers have kept.
    pub transient_local: bool,
    /// Writers and readers match only within a partition. `None`: the default partition.
    pub partition: Option<String>,
    /// Data that discovery sends with the writer or reader.
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

    /// An empty set of policies.
    pub(crate) fn new() -> Self {
        // SAFETY: it allocates, and aborts if it cannot.
        Self(unsafe { dds_create_qos() })
    }

    pub(crate) fn user_data(&mut self, bytes: &[u8]) {
        // SAFETY: the bytes live across the call, which copies them.
        unsafe { dds_qset_userdata(self.0, bytes.as_ptr().cast::<c_void>(), bytes.len()) };
    }

    /// Sets the partition of a publisher or subscriber.
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
            Some(last) => (
                dds_history_kind_DDS_HISTORY_KEEP_LAST,
                i32::try_from(last.max(1)).unwrap_or(i32::MAX),
            ),
        };
        let durability = match qos.transient_local {
            true => dds_durability_kind_DDS_DURABILITY_TRANSIENT_LOCAL,
            false => dds_durability_kind_DDS_DURABILITY_VOLATILE,
        };
        // SAFETY: the object is ours and valid. Policies of the other kind of endpoint are ignored.
        unsafe {
            dds_qset_reliability(policies.0, reliability, duration(qos.blocking_max));
            dds_qset_history(policies.0, history, depth);
            dds_qset_durability(policies.0, durability);
            // The end of a writer does not dispose of its instances.
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
        // SAFETY: `dds_create_qos` returned it, and only this code frees it.
        unsafe { dds_delete_qos(self.0) };
    }
}
