//! Writers of serialized samples.

use std::ptr;
use std::time::Duration;

use cyclors::{
    dds_entity_t, dds_forwardcdr, dds_get_entity_sertype, dds_get_matched_subscription_data,
    dds_get_matched_subscriptions, dds_get_offered_incompatible_qos_status,
    dds_get_publication_matched_status, dds_instance_handle_t, dds_time, dds_wait_for_acks,
    ddsi_serdata, ddsi_serdata_from_ser_iov, ddsi_serdata_kind_SDK_DATA as SDK_DATA,
    ddsi_serdata_ref_as_type, ddsi_serdata_unref, ddsi_sertype, ddsrt_iovec_t,
};

use crate::endpoint::{Endpoint, Guid, ReaderHandle};
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

    pub(crate) fn raw(&self) -> dds_entity_t {
        self.handle.raw()
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
        self.forward(self.serdata(cdr, timestamp_ns)?)
    }

    /// Copies a sample, serialized with its header, into memory of Cyclone DDS. See
    /// [`Writer::write_again`].
    ///
    /// # Errors
    /// [`Error::NotOfType`]
    pub fn serialized(&self, cdr: &[u8], timestamp_ns: i64) -> Result<Serialized, Error> {
        let serdata = self.serdata(cdr, timestamp_ns)?;
        Ok(Serialized { serdata, _topic: self.topic.clone() })
    }

    /// Writes a sample of this topic, which may have been written before, without a copy.
    ///
    /// # Errors
    /// As [`Self::write`].
    pub fn write_again(&self, sample: &Serialized) -> Result<(), Error> {
        // SAFETY: `sample` keeps the sample valid. The call returns one more reference to it, or
        // another sample if this writer's type is another object.
        let serdata = unsafe { ddsi_serdata_ref_as_type(self.sertype, sample.serdata) };
        if serdata.is_null() {
            return Err(Error::NotOfType { bytes: 0 });
        }
        self.forward(serdata)
    }

    /// Copies a sample into memory of Cyclone DDS. The caller owns the reference.
    fn serdata(&self, cdr: &[u8], timestamp_ns: i64) -> Result<*mut ddsi_serdata, Error> {
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
        // SAFETY: the sample is valid and ours alone.
        unsafe {
            (*serdata).statusinfo = 0;
            (*serdata).timestamp.v = timestamp_ns.max(0);
        }
        Ok(serdata)
    }

    /// Writes a sample, and gives up a reference to it.
    fn forward(&self, serdata: *mut ddsi_serdata) -> Result<(), Error> {
        // SAFETY: the sample is valid, and the call takes the reference.
        let code = unsafe { dds_forwardcdr(self.handle.raw(), serdata) };
        check("write", code).map(|_| ())
    }

    /// Number of matched readers now.
    ///
    /// # Errors
    /// The error of Cyclone DDS.
    pub fn matched(&self) -> Result<u32, Error> {
        self.matched_ever().map(|(now, _)| now)
    }

    /// Number of readers that it writes to now, and of all that it ever wrote to. While neither
    /// changes, the readers are the same.
    ///
    /// # Errors
    /// The error of Cyclone DDS.
    pub fn matched_ever(&self) -> Result<(u32, u32), Error> {
        // SAFETY: zeros are a status.
        let mut status: cyclors::dds_publication_matched_status_t = unsafe { std::mem::zeroed() };
        // SAFETY: the status is valid for writing across the call.
        let code =
            unsafe { dds_get_publication_matched_status(self.handle.raw(), &raw mut status) };
        check("count the writer's readers", code)?;
        Ok((status.current_count, status.total_count))
    }

    /// The readers that it writes to now.
    ///
    /// # Errors
    /// The error of Cyclone DDS.
    pub fn readers(&self) -> Result<Vec<ReaderHandle>, Error> {
        let mut handles: Vec<dds_instance_handle_t> = vec![0; 64];
        loop {
            // SAFETY: the vector has room for as many as its length.
            let code = unsafe {
                dds_get_matched_subscriptions(
                    self.handle.raw(),
                    handles.as_mut_ptr(),
                    handles.len(),
                )
            };
            let matched = check("list the writer's readers", code)? as usize;
            let room = handles.len();
            handles.resize(matched, 0);
            if matched <= room {
                return Ok(handles.into_iter().map(ReaderHandle).collect());
            }
        }
    }

    /// Properties of a reader; `None` if it is not matched any more.
    pub fn reader(&self, reader: ReaderHandle) -> Option<Endpoint> {
        // SAFETY: Cyclone looks the numbers up, and allocates what it returns, for us.
        unsafe { Endpoint::take(dds_get_matched_subscription_data(self.handle.raw(), reader.0)) }
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

/// A serialized sample in memory of Cyclone DDS. A writer that has to retransmit it keeps the same
/// memory.
#[derive(Debug)]
pub struct Serialized {
    serdata: *mut ddsi_serdata,
    /// The sample's type belongs to the topic.
    _topic: Topic,
}

// SAFETY: Cyclone counts references to a sample atomically. A write sets fields of the sample, so
// that threads may not share it (no `Sync`).
unsafe impl Send for Serialized {}

impl Drop for Serialized {
    fn drop(&mut self) {
        // SAFETY: the reference is ours, and is given up once.
        unsafe { ddsi_serdata_unref(self.serdata) };
    }
}
