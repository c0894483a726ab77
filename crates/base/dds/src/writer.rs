//! Writers of serialized samples.

use std::ptr;
use std::time::Duration;

use cyclors::{
    dds_forwardcdr, dds_get_entity_sertype, dds_get_offered_incompatible_qos_status,
    dds_get_publication_matched_status, dds_time, dds_wait_for_acks, ddsi_serdata_from_ser_iov,
    ddsi_serdata_kind_SDK_DATA as SDK_DATA, ddsi_sertype, ddsrt_iovec_t,
};

use crate::endpoint::Guid;
use crate::entity::{Handle, duration};
use crate::error::{Error, check};
use crate::incompatible::Incompatible;
use crate::participant::{Topic, guid_of};

/// Writes samples of a topic.
#[derive(Debug)]
pub struct Writer {
    // Dropped in order: the writer, its publisher, its topic.
    handle: Handle,
    _publisher: Option<Handle>,
    sertype: *const ddsi_sertype,
    guid: Guid,
    topic: Topic,
}

// SAFETY: Cyclone's functions may be called from any thread. `sertype` is only read, and lives as
// long as the writer.
unsafe impl Send for Writer {}
// SAFETY: as for Send.
unsafe impl Sync for Writer {}

impl Writer {
    pub(crate) fn new(
        handle: Handle,
        publisher: Option<Handle>,
        topic: Topic,
    ) -> Result<Self, Error> {
        let mut sertype = ptr::null();
        // SAFETY: `sertype` is valid for writing. Its value lives as long as the writer.
        let code = unsafe { dds_get_entity_sertype(handle.raw(), &raw mut sertype) };
        check("get the writer's type", code)?;
        let guid = guid_of(handle.raw())?;
        Ok(Self { handle, _publisher: publisher, sertype, guid, topic })
    }

    /// The writer's topic.
    pub fn topic(&self) -> &Topic {
        &self.topic
    }

    /// The writer's GUID.
    pub fn guid(&self) -> Guid {
        self.guid
    }

    /// Writes a serialized sample with its header ([`crate::cdr`]), with the present time as source
    /// timestamp. Waits while readers do not keep up.
    ///
    /// # Errors
    /// [`Error::NotOfType`]; [`Error::Refused`] with [`crate::Cause::Timeout`] after the QoS's
    /// `blocking_max`.
    pub fn write(&self, cdr: &[u8]) -> Result<(), Error> {
        // SAFETY: it reads the clock.
        self.write_at(cdr, unsafe { dds_time() })
    }

    /// Writes a sample with this source timestamp, in nanoseconds since 1970, at least 0.
    ///
    /// # Errors
    /// As [`Self::write`].
    pub fn write_at(&self, cdr: &[u8], timestamp_ns: i64) -> Result<(), Error> {
        let bytes = ddsrt_iovec_t {
            // Cyclone copies the bytes and does not change them.
            iov_base: cdr.as_ptr().cast_mut().cast(),
            iov_len: cdr.len(),
        };
        // Cyclone asserts that the sample has a header.
        if cdr.len() < 4 {
            return Err(Error::NotOfType { bytes: cdr.len() });
        }
        // SAFETY: the type lives as long as the writer, the bytes across the call. The result is
        // null if the bytes are not of the type.
        let serdata = unsafe {
            ddsi_serdata_from_ser_iov(self.sertype, SDK_DATA, 1, &raw const bytes, cdr.len())
        };
        if serdata.is_null() {
            return Err(Error::NotOfType { bytes: cdr.len() });
        }
        // SAFETY: the sample is valid and ours alone until it is written; the call takes our
        // reference.
        let code = unsafe {
            (*serdata).statusinfo = 0;
            (*serdata).timestamp.v = timestamp_ns.max(0);
            dds_forwardcdr(self.handle.raw(), serdata)
        };
        check("write", code).map(|_| ())
    }

    /// Number of matched readers now.
    ///
    /// # Errors
    /// The error of Cyclone DDS.
    pub fn matched(&self) -> Result<u32, Error> {
        // SAFETY: zeros are a status.
        let mut status: cyclors::dds_publication_matched_status_t = unsafe { std::mem::zeroed() };
        // SAFETY: the status is valid for writing across the call.
        let code =
            unsafe { dds_get_publication_matched_status(self.handle.raw(), &raw mut status) };
        check("count the writer's readers", code)?;
        Ok(status.current_count)
    }

    /// Readers that the writer found and that are incompatible.
    ///
    /// # Errors
    /// The error of Cyclone DDS.
    pub fn incompatible(&self) -> Result<Incompatible, Error> {
        // SAFETY: zeros are a status.
        let mut status: cyclors::dds_offered_incompatible_qos_status_t =
            unsafe { std::mem::zeroed() };
        // SAFETY: the status is valid for writing across the call.
        let code =
            unsafe { dds_get_offered_incompatible_qos_status(self.handle.raw(), &raw mut status) };
        check("list incompatible readers", code)?;
        Ok(Incompatible::new(status.total_count, status.last_policy_id))
    }

    /// Waits until every reader has acknowledged all samples, at most `patience`.
    ///
    /// # Errors
    /// [`Error::Refused`] with [`crate::Cause::Timeout`].
    pub fn wait_for_acknowledgements(&self, patience: Duration) -> Result<(), Error> {
        // SAFETY: the handle is a number that Cyclone DDS looks up.
        let code = unsafe { dds_wait_for_acks(self.handle.raw(), duration(patience)) };
        check("wait for acknowledgements", code).map(|_| ())
    }
}
