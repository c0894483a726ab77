//! Participants and their topics.

use std::ptr;
use std::sync::Arc;

use cyclors::{
    dds_create_participant, dds_create_publisher, dds_create_reader, dds_create_subscriber,
    dds_create_topic, dds_create_writer, dds_entity_t, dds_get_guid,
};

use crate::domain::Domain;
use crate::endpoint::Guid;
use crate::entity::Handle;
use crate::error::{Error, c_string, check};
use crate::idl::Struct;
use crate::log;
use crate::publications::Publications;
use crate::qos::{Policies, Qos};
use crate::reader::Reader;
use crate::types::{self, Descriptor, StructType};
use crate::wait::Waitset;
use crate::writer::Writer;

/// A participant of a domain. Clones refer to the same participant. It leaves the domain when all
/// clones and all objects created from them are dropped.
#[derive(Debug, Clone)]
pub struct Participant(Arc<Inner>);

// Fields are dropped in order: the participant before its domain.
#[derive(Debug)]
struct Inner {
    handle: Handle,
    domain: Domain,
}

impl Participant {
    /// Joins `domain`. Other participants receive `user_data` with the discovery of this one.
    ///
    /// # Errors
    /// The error of Cyclone DDS, for example if the settings allow no address.
    pub fn new(domain: Domain, user_data: &[u8]) -> Result<Self, Error> {
        let mut policies = Policies::new();
        policies.user_data(user_data);
        // SAFETY: the policies live across the call, which copies them; no listener.
        let entity =
            unsafe { dds_create_participant(domain.number(), policies.as_ptr(), ptr::null()) };
        let handle = Handle::new(check("join the domain", entity)?);
        Ok(Self(Arc::new(Inner { handle, domain })))
    }

    /// The participant's GUID.
    ///
    /// # Errors
    /// The error of Cyclone DDS.
    pub fn guid(&self) -> Result<Guid, Error> {
        guid_of(self.raw())
    }

    /// Creates the topic `name` with the type `of`.
    ///
    /// # Errors
    /// The error of Cyclone DDS, for example if the topic exists here with another type.
    pub fn topic(&self, name: &str, of: &StructType) -> Result<Topic, Error> {
        self.topic_of(name, &of.descriptor(self.raw())?)
    }

    /// Creates a topic as a peer without XTypes does: types match if their names match. For tests
    /// of such a peer's samples.
    ///
    /// # Errors
    /// As [`Self::topic`].
    #[doc(hidden)]
    pub fn topic_by_name_alone(&self, name: &str, of: &StructType) -> Result<Topic, Error> {
        self.topic_of(name, &of.descriptor(self.raw())?.without_type_objects())
    }

    /// Creates the topic `name` with the type `of` under `type_name`. A type name of ROS 2
    /// (`PACKAGE::msg::dds_::NAME_`) makes a topic as in ROS 2: without a key and without type
    /// information, so that only the names of types must match.
    ///
    /// # Errors
    /// As [`Participant::topic`].
    pub fn topic_named(
        &self,
        name: &str,
        of: &StructType,
        type_name: &str,
    ) -> Result<Topic, Error> {
        let is_ros2 = types::is_ros2(type_name);
        let descriptor = of.described(self.raw(), type_name, !is_ros2)?;
        let descriptor = if is_ros2 { descriptor.without_type_objects() } else { descriptor };
        self.topic_of(name, &descriptor)
    }

    /// Creates the topic `name` with a type declared in IDL, under `type_name`, as
    /// [`Participant::topic_named`]. Keys are the members with `@key`.
    ///
    /// # Errors
    /// As [`Participant::topic`].
    pub fn topic_declared(&self, name: &str, of: &Struct, type_name: &str) -> Result<Topic, Error> {
        let is_ros2 = types::is_ros2(type_name);
        let descriptor = types::tree::described(self.raw(), of, type_name, !is_ros2)?;
        let descriptor = if is_ros2 { descriptor.without_type_objects() } else { descriptor };
        self.topic_of(name, &descriptor)
    }

    /// The writers of the topic `name`, of any type.
    ///
    /// # Errors
    /// The error of Cyclone DDS.
    pub fn publications(&self, name: &str) -> Result<Publications, Error> {
        Publications::new(self.clone(), name)
    }

    pub(crate) fn topic_of(&self, name: &str, descriptor: &Descriptor) -> Result<Topic, Error> {
        let c_name = c_string("the topic's name", name)?;
        let (descriptor, name_ptr) = (descriptor.as_ptr(), c_name.as_ptr());
        // SAFETY: descriptor and name live across the call, which copies them.
        let entity =
            unsafe { dds_create_topic(self.raw(), descriptor, name_ptr, ptr::null(), ptr::null()) };
        let handle = Handle::new(check("create the topic", entity)?);
        let named = TopicInner { handle, name: name.to_string(), participant: self.clone() };
        Ok(Topic(Arc::new(named)))
    }

    /// A waitset for readers of this participant.
    ///
    /// # Errors
    /// The error of Cyclone DDS.
    pub fn waitset(&self) -> Result<Waitset, Error> {
        Waitset::new(self.clone())
    }

    pub(crate) fn raw(&self) -> dds_entity_t {
        self.0.handle.raw()
    }
}

pub(crate) fn guid_of(entity: dds_entity_t) -> Result<Guid, Error> {
    // SAFETY: zeros are a GUID.
    let mut guid: cyclors::dds_guid_t = unsafe { std::mem::zeroed() };
    // SAFETY: `guid` is valid for writing across the call.
    check("get the GUID", unsafe { dds_get_guid(entity, &raw mut guid) })?;
    Ok(Guid(guid.v))
}

/// A topic. Clones refer to the same topic.
#[derive(Debug, Clone)]
pub struct Topic(Arc<TopicInner>);

#[derive(Debug)]
struct TopicInner {
    handle: Handle,
    name: String,
    participant: Participant,
}

impl Topic {
    /// The topic's name.
    pub fn name(&self) -> &str {
        &self.0.name
    }

    /// Number of samples for readers of this topic in this process that did not match its type: too
    /// short, or of another type with the same name. Cyclone DDS dropped them.
    pub fn malformed(&self) -> u64 {
        log::malformed(self.0.participant.0.domain.number(), &self.0.name)
    }

    /// Creates a reader.
    ///
    /// # Errors
    /// The error of Cyclone DDS.
    pub fn reader(&self, qos: &Qos) -> Result<Reader, Error> {
        let participant = self.0.participant.raw();
        let parent = in_partition(qos, |policies| {
            // SAFETY: the policies live across the call, which copies them; no listener.
            unsafe { dds_create_subscriber(participant, policies.as_ptr(), ptr::null()) }
        })?;
        let policies = Policies::from(qos);
        let owner = parent.as_ref().map_or(participant, Handle::raw);
        // SAFETY: as above.
        let entity =
            unsafe { dds_create_reader(owner, self.raw(), policies.as_ptr(), ptr::null()) };
        let handle = Handle::new(check("create the reader", entity)?);
        Reader::new(handle, parent, self.clone())
    }

    /// Creates a writer.
    ///
    /// # Errors
    /// The error of Cyclone DDS.
    pub fn writer(&self, qos: &Qos) -> Result<Writer, Error> {
        let participant = self.0.participant.raw();
        let parent = in_partition(qos, |policies| {
            // SAFETY: as for readers.
            unsafe { dds_create_publisher(participant, policies.as_ptr(), ptr::null()) }
        })?;
        let policies = Policies::from(qos);
        let owner = parent.as_ref().map_or(participant, Handle::raw);
        // SAFETY: as for readers.
        let entity =
            unsafe { dds_create_writer(owner, self.raw(), policies.as_ptr(), ptr::null()) };
        let handle = Handle::new(check("create the writer", entity)?);
        Writer::new(handle, parent, self.clone())
    }

    pub(crate) fn raw(&self) -> dds_entity_t {
        self.0.handle.raw()
    }
}

/// Creates the publisher or subscriber that sets the partition. `None` for the default partition.
fn in_partition(
    qos: &Qos,
    create: impl FnOnce(&Policies) -> dds_entity_t,
) -> Result<Option<Handle>, Error> {
    let Some(partition) = &qos.partition else { return Ok(None) };
    let mut policies = Policies::new();
    policies.partition(partition)?;
    Ok(Some(Handle::new(check("enter the partition", create(&policies))?)))
}
