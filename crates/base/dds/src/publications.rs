//! The writers of a domain by discovery, including those that match no reader of this process.

use std::collections::BTreeMap;
use std::ffi::{CStr, c_char, c_void};
use std::ptr;

use cyclors::{
    DDS_BUILTIN_TOPIC_DCPSPUBLICATION, dds_builtintopic_endpoint_t, dds_create_reader,
    dds_instance_state_DDS_IST_ALIVE as ALIVE, dds_qget_reliability, dds_qos_t,
    dds_reliability_kind_DDS_RELIABILITY_RELIABLE as RELIABLE, dds_return_loan, dds_sample_info_t,
    dds_take,
};

use crate::endpoint::Guid;
use crate::entity::Handle;
use crate::error::{Error, check};
use crate::participant::Participant;

/// Number of samples taken with one call.
const BATCH: usize = 64;
/// Greatest number of known writers of a topic. Any host may create some.
const WRITERS_MAX: usize = 4096;

/// A writer.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Publication {
    /// The writer's GUID.
    pub guid: Guid,
    /// The name of its type.
    pub type_name: String,
    /// True if its type has a key. Writers with a key and readers without do not match, and vice
    /// versa.
    pub keyed: bool,
    /// True if it retransmits lost samples.
    pub reliable: bool,
}

/// The writers of a topic, of any type and in any partition.
#[derive(Debug)]
pub struct Publications {
    // Dropped in order: the reader before its participant.
    handle: Handle,
    topic: String,
    known: BTreeMap<Guid, Publication>,
    _participant: Participant,
}

impl Publications {
    pub(crate) fn new(participant: Participant, topic: &str) -> Result<Self, Error> {
        // SAFETY: the builtin topic always exists; no QoS, no listener.
        let entity = unsafe {
            dds_create_reader(
                participant.raw(),
                DDS_BUILTIN_TOPIC_DCPSPUBLICATION,
                ptr::null(),
                ptr::null(),
            )
        };
        let handle = Handle::new(check("create the reader of writers", entity)?);
        let (topic, known) = (topic.to_string(), BTreeMap::new());
        Ok(Self { handle, topic, known, _participant: participant })
    }

    /// The writers that exist now.
    ///
    /// # Errors
    /// The error of Cyclone DDS.
    pub fn now(&mut self) -> Result<impl Iterator<Item = &Publication>, Error> {
        while self.take()? == BATCH {}
        Ok(self.known.values())
    }

    fn take(&mut self) -> Result<usize, Error> {
        let mut taken: [*mut c_void; BATCH] = [ptr::null_mut(); BATCH];
        // SAFETY: zeros are a sample info.
        let mut infos: [dds_sample_info_t; BATCH] = unsafe { std::mem::zeroed() };
        let (buffer, raw) = (taken.as_mut_ptr(), self.handle.raw());
        // SAFETY: both arrays have room for `BATCH` entries; null pointers request loans.
        let code = unsafe { dds_take(raw, buffer, infos.as_mut_ptr(), BATCH, BATCH as u32) };
        let count = check("list the topic's writers", code)? as usize;
        for (sample, info) in taken.iter().zip(&infos).take(count) {
            // SAFETY: Cyclone lent a sample of the builtin topic's type. Its key is valid in any
            // case.
            let Some(endpoint) = (unsafe { sample.cast::<dds_builtintopic_endpoint_t>().as_ref() })
            else {
                continue;
            };
            let guid = Guid(endpoint.key.v);
            if !info.valid_data || info.instance_state != ALIVE {
                self.known.remove(&guid);
                continue;
            }
            // SAFETY: a sample with data has names and a QoS that are valid or null.
            let (topic, type_name, reliable) = unsafe {
                (text(endpoint.topic_name), text(endpoint.type_name), is_reliable(endpoint.qos))
            };
            if topic == self.topic && self.known.len() < WRITERS_MAX {
                // DDSI-RTPS 2.5, table 9.1: the kind of a writer with a key.
                let keyed = guid.0[15] & 0x3f == 0x02;
                self.known.insert(guid, Publication { guid, type_name, keyed, reliable });
            }
        }
        if count > 0 {
            // SAFETY: these are the loans, and they are not used again.
            let code = unsafe { dds_return_loan(raw, buffer, code) };
            check("return the list of writers", code)?;
        }
        Ok(count)
    }
}

/// # Safety
/// `from` is a C string that lives across the call, or null.
unsafe fn text(from: *const c_char) -> String {
    if from.is_null() {
        return String::new();
    }
    // SAFETY: the caller's promise.
    unsafe { CStr::from_ptr(from) }.to_string_lossy().into_owned()
}

/// # Safety
/// `qos` is a QoS object that lives across the call, or null.
unsafe fn is_reliable(qos: *const dds_qos_t) -> bool {
    let (mut kind, mut blocking) = (0, 0);
    // SAFETY: the caller's promise; both results have room.
    !qos.is_null()
        && unsafe { dds_qget_reliability(qos, &raw mut kind, &raw mut blocking) }
        && kind == RELIABLE
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::items::{DATA_ITEM, DataItem};
    use crate::{Domain, Qos, Settings, Topic};

    const ROS: &str = "equipoise_msgs::msg::dds_::DataItem_";

    fn participant(domain: u32) -> Participant {
        let settings = Settings { interfaces: vec!["lo".into()], ..Settings::default() };
        Participant::new(Domain::open(domain, &settings).unwrap(), &[]).unwrap()
    }

    fn eventually(what: &str, holds: impl FnMut() -> bool) {
        assert!(equipoise_testkit::eventually(holds), "{what}");
    }

    #[test]
    fn each_writer_of_a_topic_is_listed_with_type_until_deletion() {
        let (here, there) = (participant(119), participant(119));
        let mut seen = here.publications("items").unwrap();
        let writer = |participant: &Participant, qos: &Qos, type_name: &str| {
            let topic = participant.topic_named("items", &DATA_ITEM, type_name).unwrap();
            topic.writer(qos).unwrap()
        };
        let usual = writer(&here, &Qos::default(), DATA_ITEM.name);
        let ros = writer(&there, &Qos { reliable: false, ..Qos::default() }, ROS);
        let other = there.topic("other", &DATA_ITEM).unwrap().writer(&Qos::default()).unwrap();
        eventually("both are seen", || seen.now().unwrap().count() == 2);
        let told: Vec<_> = seen.now().unwrap().cloned().collect();
        let of = |guid| told.iter().find(|it| it.guid == guid).expect("it is told of").clone();
        let expected = Publication {
            guid: usual.guid(),
            type_name: DATA_ITEM.name.into(),
            keyed: true,
            reliable: true,
        };
        assert_eq!(of(usual.guid()), expected);
        let expected =
            Publication { guid: ros.guid(), type_name: ROS.into(), keyed: false, reliable: false };
        assert_eq!(of(ros.guid()), expected);
        drop((ros, other));
        eventually("one is gone", || seen.now().unwrap().count() == 1);
    }

    #[test]
    fn ros_2_types_match_by_name_and_without_a_key() {
        let (here, there) = (participant(120), participant(120));
        let named = |participant: &Participant, name: &str| -> Topic {
            participant.topic_named("rt/items", &DATA_ITEM, name).unwrap()
        };
        let reader = named(&here, ROS).reader(&Qos::default()).unwrap();
        let writer = named(&there, ROS).writer(&Qos::default()).unwrap();
        eventually("they meet", || writer.matched().unwrap() == 1);
        let mut cdr = Vec::new();
        DataItem { slice_id: 3, id: 4, sender_id: 5, timestamp: 6, message: b"m" }.encode(&mut cdr);
        writer.write(&cdr).unwrap();
        let mut samples = Vec::new();
        eventually("the item comes", || {
            reader.take(&mut samples).unwrap();
            samples.len() == 1
        });
        assert_eq!(samples[0].cdr(), cdr);
    }
}
