//! Participants, and topics of theirs.

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

/// One that takes part in a domain. Clones are the same one; it leaves when all and all that is made of it are gone.
#[derive(Debug, Clone)]
pub struct Participant(Arc<Inner>);

// Fields are dropped in order: the participant before its domain.
#[derive(Debug)]
struct Inner {
    handle: Handle,
    domain: Domain,
}

impl Participant {
    /// Takes part in `domain`; `user_data` is told to those who discover it.
    ///
    /// # Errors
    /// What Cyclone DDS says: without an address that its settings allow, for instance.
    pub fn new(domain: Domain, user_data: &[u8]) -> Result<Self, Error> {
        let mut policies = Policies::new();
        policies.user_data(user_data);
        // SAFETY: the policies live across the call, which copies them; no listener.
        let entity =
            unsafe { dds_create_participant(domain.number(), policies.as_ptr(), ptr::null()) };
        let handle = Handle::new(check("take part in the domain", entity)?);
        Ok(Self(Arc::new(Inner { handle, domain })))
    }

    /// What tells it from all others.
    ///
    /// # Errors
    /// What Cyclone DDS says.
    pub fn guid(&self) -> Result<Guid, Error> {
        guid_of(self.raw())
    }

    /// A topic of `of`'s type under `name`.
    ///
    /// # Errors
    /// What Cyclone DDS says: a topic of this name here with another type, for instance.
    pub fn topic(&self, name: &str, of: &StructType) -> Result<Topic, Error> {
        self.topic_of(name, &of.descriptor(self.raw())?)
    }

    /// The same, as peers have it that know no XTypes: the type's name alone says whether two fit. For tests of what such
    /// a peer may send.
    ///
    /// # Errors
    /// As [`Self::topic`].
    #[doc(hidden)]
    pub fn topic_by_name_alone(&self, name: &str, of: &StructType) -> Result<Topic, Error> {
        self.topic_of(name, &of.descriptor(self.raw())?.without_type_objects())
    }

    /// A topic of `of`'s type, which goes by `type_name`. One that ROS 2 made (`PACKAGE::msg::dds_::NAME_`) is as ROS 2 has
    /// them: it has no key, and nobody is told what it is made of, so that the name alone has to match.
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

    /// A topic of a type that is declared in IDL, under `type_name`; likewise. Keys are the members
    /// with `@key`.
    ///
    /// # Errors
    /// As [`Participant::topic`].
    pub fn topic_declared(&self, name: &str, of: &Struct, type_name: &str) -> Result<Topic, Error> {
        let is_ros2 = types::is_ros2(type_name);
        let descriptor = types::tree::described(self.raw(), of, type_name, !is_ros2)?;
        let descriptor = if is_ros2 { descriptor.without_type_objects() } else { descriptor };
        self.topic_of(name, &descriptor)
    }

    /// The writers of the topic `name`, of whatever type.
    ///
    /// # Errors
    /// What Cyclone DDS says.
    pub fn publications(&self, name: &str) -> Result<Publications, Error> {
        Publications::new(self.clone(), name)
    }

    pub(crate) fn topic_of(&self, name: &str, descriptor: &Descriptor) -> Result<Topic, Error> {
        let c_name = c_string("the topic's name", name)?;
        let (descriptor, name_ptr) = (descriptor.as_ptr(), c_name.as_ptr());
        // SAFETY: descriptor and name live across the call, which copies them.
        let entity =
            unsafe { dds_create_topic(self.raw(), descriptor, name_ptr, ptr::null(), ptr::null()) };
        let handle = Handle::new(check("make the topic", entity)?);
        let named = TopicInner { handle, name: name.to_string(), participant: self.clone() };
        Ok(Topic(Arc::new(named)))
    }

    /// Something to wait with for readers of this participant.
    ///
    /// # Errors
    /// What Cyclone DDS says.
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
    check("tell the GUID", unsafe { dds_get_guid(entity, &raw mut guid) })?;
    Ok(Guid(guid.v))
}

/// A topic. Clones are the same one.
#[derive(Debug, Clone)]
pub struct Topic(Arc<TopicInner>);

#[derive(Debug)]
struct TopicInner {
    handle: Handle,
    name: String,
    participant: Participant,
}

impl Topic {
    /// Its name.
    pub fn name(&self) -> &str {
        &self.0.name
    }

    /// Samples for readers of this topic that were no samples of its type, in this process: too short, or of another
    /// type with the same name. Cyclone DDS drops them.
    pub fn malformed(&self) -> u64 {
        log::malformed(self.0.participant.0.domain.number(), &self.0.name)
    }

    /// A reader.
    ///
    /// # Errors
    /// What Cyclone DDS says.
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
        let handle = Handle::new(check("make the reader", entity)?);
        Reader::new(handle, parent, self.clone())
    }

    /// A writer.
    ///
    /// # Errors
    /// What Cyclone DDS says.
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
        let handle = Handle::new(check("make the writer", entity)?);
        Writer::new(handle, parent, self.clone())
    }

    pub(crate) fn raw(&self) -> dds_entity_t {
        self.0.handle.raw()
    }
}

/// A publisher or subscriber, which partitions are a matter of. None for the default partition.
fn in_partition(
    qos: &Qos,
    create: impl FnOnce(&Policies) -> dds_entity_t,
) -> Result<Option<Handle>, Error> {
    let Some(partition) = &qos.partition else { return Ok(None) };
    let mut policies = Policies::new();
    policies.partition(partition)?;
    Ok(Some(Handle::new(check("enter the partition", create(&policies))?)))
}
