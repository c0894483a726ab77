//! Writers and readers, as discovery reports them.

use std::fmt;

use cyclors::{
    dds_builtintopic_endpoint_t, dds_builtintopic_free_endpoint, dds_free, dds_instance_handle_t,
    dds_qget_userdata,
};

/// Identifies a participant, writer or reader among all others.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Guid(pub [u8; 16]);

impl fmt::Debug for Guid {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.iter().try_for_each(|byte| write!(f, "{byte:02x}"))
    }
}

/// A writer, as a reader of this process identifies it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct WriterHandle(pub(crate) dds_instance_handle_t);

/// A reader as a writer of the same process knows it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct ReaderHandle(pub(crate) dds_instance_handle_t);

/// Properties of a writer or reader.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Endpoint {
    /// The GUID of the writer or reader.
    pub guid: Guid,
    /// Its participant's GUID.
    pub participant: Guid,
    /// The user data of its QoS.
    pub user_data: Vec<u8>,
}

impl Endpoint {
    /// Copies what Cyclone DDS allocated, and frees it.
    ///
    /// # Safety
    /// `from` was returned by `dds_get_matched_publication_data` or
    /// `dds_get_matched_subscription_data`, and is not used again. It may be null.
    pub(crate) unsafe fn take(from: *mut dds_builtintopic_endpoint_t) -> Option<Self> {
        // SAFETY: by the caller's promise it is null, or valid and ours.
        let endpoint = unsafe { from.as_ref()? };
        let mut bytes = std::ptr::null_mut();
        let mut size = 0;
        // SAFETY: the QoS is part of the endpoint. Cyclone allocates a copy of the bytes, which is
        // freed here.
        let user_data = unsafe {
            if endpoint.qos.is_null()
                || !dds_qget_userdata(endpoint.qos, &raw mut bytes, &raw mut size)
                || bytes.is_null()
            {
                Vec::new()
            } else {
                let copy = std::slice::from_raw_parts(bytes.cast::<u8>(), size).to_vec();
                dds_free(bytes);
                copy
            }
        };
        let (guid, participant) = (Guid(endpoint.key.v), Guid(endpoint.participant_key.v));
        // SAFETY: by the caller's promise it is not used again.
        unsafe { dds_builtintopic_free_endpoint(from) };
        Some(Self { guid, participant, user_data })
    }
}
