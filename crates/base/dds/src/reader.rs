//! Readers, which take serialized samples.

use std::mem::MaybeUninit;
use std::ptr;

use cyclors::{
    DDS_ANY_STATE, dds_entity_t, dds_get_matched_publication_data, dds_get_matched_publications,
    dds_get_requested_incompatible_qos_status, dds_get_subscription_matched_status,
    dds_instance_handle_t, dds_sample_info_t, dds_takecdr, ddsi_serdata, ddsi_serdata_size,
    ddsi_serdata_to_ser_ref, ddsi_serdata_to_ser_unref, ddsi_serdata_unref, ddsrt_iovec_t,
};

use crate::endpoint::{Endpoint, WriterHandle};
use crate::entity::Handle;
use crate::error::{Error, check};
use crate::incompatible::Incompatible;
use crate::participant::Topic;

/// Number of samples taken with one call.
const BATCH: usize = 256;

/// Takes samples of a topic.
#[derive(Debug)]
pub struct Reader {
    // Dropped in order: the reader, its subscriber, its topic.
    handle: Handle,
    _subscriber: Option<Handle>,
    topic: Topic,
}

impl Reader {
    pub(crate) fn new(
        handle: Handle,
        subscriber: Option<Handle>,
        topic: Topic,
    ) -> Result<Self, Error> {
        Ok(Self { handle, _subscriber: subscriber, topic })
    }

    /// The reader's topic.
    pub fn topic(&self) -> &Topic {
        &self.topic
    }

    /// Takes all samples that have arrived and adds them to `samples`, ordered by writer and then
    /// by timestamp. If a writer's timestamps grow, its samples come in its order, also over
    /// several calls. (Cyclone DDS itself returns them by instance, and in order only within an
    /// instance.)
    ///
    /// # Errors
    /// The error of Cyclone DDS.
    pub fn take(&self, samples: &mut Vec<Sample>) -> Result<(), Error> {
        let before = samples.len();
        // Only the call that finds no more has seen every instance at one moment.
        while self.take_batch(samples)? == BATCH {}
        samples[before..].sort_by_key(|sample| (sample.writer, sample.timestamp_ns));
        Ok(())
    }

    fn take_batch(&self, samples: &mut Vec<Sample>) -> Result<usize, Error> {
        // 24 KiB, left uninitialized because most calls find one or two samples.
        let mut taken = [const { MaybeUninit::<*mut ddsi_serdata>::uninit() }; BATCH];
        let mut infos = [const { MaybeUninit::<dds_sample_info_t>::uninit() }; BATCH];
        let (taken_ptr, infos_ptr) = (taken.as_mut_ptr().cast(), infos.as_mut_ptr().cast());
        // SAFETY: both arrays have room for `BATCH` entries; Cyclone only writes them.
        let code = unsafe {
            dds_takecdr(self.handle.raw(), taken_ptr, BATCH as u32, infos_ptr, DDS_ANY_STATE)
        };
        let count = check("take", code)? as usize;
        for (serdata, info) in taken.iter().zip(&infos).take(count) {
            // SAFETY: Cyclone has set the first `count` entries.
            let (serdata, info) = unsafe { (serdata.assume_init(), info.assume_init_ref()) };
            // SAFETY: Cyclone gave us this reference, and each is made into one sample.
            let sample = unsafe { Sample::adopt(serdata, info, &self.topic) };
            // Without data it only reports a change of an instance.
            if info.valid_data {
                samples.push(sample);
            }
        }
        Ok(count)
    }

    /// The number of matched writers now, and the number that ever matched. If neither changes, the
    /// writers are the same.
    ///
    /// # Errors
    /// The error of Cyclone DDS.
    pub fn matched(&self) -> Result<(u32, u32), Error> {
        // SAFETY: zeros are a status.
        let mut status: cyclors::dds_subscription_matched_status_t = unsafe { std::mem::zeroed() };
        // SAFETY: the status is valid for writing across the call.
        let code =
            unsafe { dds_get_subscription_matched_status(self.handle.raw(), &raw mut status) };
        check("list the reader's writers", code)?;
        Ok((status.current_count, status.total_count))
    }

    /// Writers that the reader found and that are incompatible.
    ///
    /// # Errors
    /// The error of Cyclone DDS.
    pub fn incompatible(&self) -> Result<Incompatible, Error> {
        // SAFETY: zeros are a status.
        let mut status: cyclors::dds_requested_incompatible_qos_status_t =
            unsafe { std::mem::zeroed() };
        // SAFETY: the status is valid for writing across the call.
        let code = unsafe {
            dds_get_requested_incompatible_qos_status(self.handle.raw(), &raw mut status)
        };
        check("list incompatible writers", code)?;
        Ok(Incompatible::new(status.total_count, status.last_policy_id))
    }

    /// The matched writers.
    ///
    /// # Errors
    /// The error of Cyclone DDS.
    pub fn writers(&self) -> Result<Vec<WriterHandle>, Error> {
        let mut handles: Vec<dds_instance_handle_t> = vec![0; 64];
        loop {
            // SAFETY: the vector has room for as many entries as its length.
            let code = unsafe {
                dds_get_matched_publications(self.handle.raw(), handles.as_mut_ptr(), handles.len())
            };
            let matched = check("list the reader's writers", code)? as usize;
            let room = handles.len();
            handles.resize(matched, 0);
            if matched <= room {
                return Ok(handles.into_iter().map(WriterHandle).collect());
            }
        }
    }

    /// The properties of a matched writer; `None` if it is gone.
    pub fn writer(&self, writer: WriterHandle) -> Option<Endpoint> {
        // SAFETY: Cyclone looks the numbers up, and allocates the result for us.
        unsafe { Endpoint::take(dds_get_matched_publication_data(self.handle.raw(), writer.0)) }
    }

    pub(crate) fn raw(&self) -> dds_entity_t {
        self.handle.raw()
    }
}

/// A serialized sample.
#[derive(Debug)]
pub struct Sample {
    serdata: *mut ddsi_serdata,
    bytes: ddsrt_iovec_t,
    writer: WriterHandle,
    timestamp_ns: i64,
    /// The topic owns the sample's type.
    _topic: Topic,
}

// SAFETY: a serialized sample does not change, and its references are counted atomically.
unsafe impl Send for Sample {}
// SAFETY: as for Send.
unsafe impl Sync for Sample {}

impl Sample {
    /// # Safety
    /// `serdata` is a reference that we own, to a sample of a type that `topic` keeps alive.
    unsafe fn adopt(serdata: *mut ddsi_serdata, info: &dds_sample_info_t, topic: &Topic) -> Self {
        let mut bytes = ddsrt_iovec_t { iov_base: ptr::null_mut(), iov_len: 0 };
        // SAFETY: the caller's promise. The second reference keeps the bytes; the first is
        // released.
        let serdata = unsafe {
            let size = ddsi_serdata_size(serdata) as usize;
            let held = ddsi_serdata_to_ser_ref(serdata, 0, size, &raw mut bytes);
            ddsi_serdata_unref(serdata);
            held
        };
        Self {
            serdata,
            bytes,
            writer: WriterHandle(info.publication_handle),
            timestamp_ns: info.source_timestamp,
            _topic: topic.clone(),
        }
    }

    /// The serialized sample with its header ([`crate::cdr`]).
    pub fn cdr(&self) -> &[u8] {
        // SAFETY: the bytes live as long as our reference, and do not change.
        unsafe { std::slice::from_raw_parts(self.bytes.iov_base.cast::<u8>(), self.bytes.iov_len) }
    }

    /// The writer of the sample.
    pub fn writer(&self) -> WriterHandle {
        self.writer
    }

    /// The source timestamp by the writer's clock, in nanoseconds since 1970.
    pub fn timestamp_ns(&self) -> i64 {
        self.timestamp_ns
    }
}

impl Drop for Sample {
    fn drop(&mut self) {
        // SAFETY: the reference is ours, and is released once.
        unsafe { ddsi_serdata_to_ser_unref(self.serdata, &raw const self.bytes) };
    }
}
