//! Types of topics, as in IDL, and their descriptors for Cyclone DDS.
//!
//! Descriptors contain XTypes type objects, so that peers of any vendor can check assignability.

pub(crate) mod tree;

use std::ffi::CString;
use std::ptr;

use cyclors::{
    DDS_DYNAMIC_MEMBER_ID_AUTO, DDS_DYNAMIC_MEMBER_INDEX_END, dds_create_topic_descriptor,
    dds_delete_topic_descriptor, dds_dynamic_member_descriptor_t, dds_dynamic_member_set_key,
    dds_dynamic_type_add_member, dds_dynamic_type_create, dds_dynamic_type_descriptor_t,
    dds_dynamic_type_kind_DDS_DYNAMIC_BYTE as BYTE,
    dds_dynamic_type_kind_DDS_DYNAMIC_INT32 as INT32,
    dds_dynamic_type_kind_DDS_DYNAMIC_INT64 as INT64,
    dds_dynamic_type_kind_DDS_DYNAMIC_SEQUENCE as SEQUENCE,
    dds_dynamic_type_kind_DDS_DYNAMIC_STRUCTURE as STRUCTURE,
    dds_dynamic_type_kind_DDS_DYNAMIC_UINT64 as UINT64, dds_dynamic_type_kind_t,
    dds_dynamic_type_register, dds_dynamic_type_spec__bindgen_ty_1,
    dds_dynamic_type_spec_kind_DDS_DYNAMIC_TYPE_KIND_DEFINITION as DEFINITION,
    dds_dynamic_type_spec_kind_DDS_DYNAMIC_TYPE_KIND_PRIMITIVE as PRIMITIVE,
    dds_dynamic_type_spec_t, dds_dynamic_type_t, dds_dynamic_type_unref, dds_entity_t,
    dds_find_scope_DDS_FIND_SCOPE_LOCAL_DOMAIN, dds_free_typeinfo, dds_topic_descriptor_t,
};

use crate::error::{Error, c_string, check};

/// A final struct of IDL.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct StructType {
    /// Name with modules: `module::Name`.
    pub name: &'static str,
    /// The members, in order.
    pub members: &'static [Member],
}

/// A member of a struct.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Member {
    /// The member's name.
    pub name: &'static str,
    /// The member's type.
    pub kind: Kind,
    /// True if it is part of the key.
    pub key: bool,
}

/// The type of a member.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Kind {
    /// `long`
    I32,
    /// `long long`
    I64,
    /// `unsigned long long`
    U64,
    /// `sequence<octet>`
    Octets,
}

/// A descriptor that Cyclone created, which is freed when this is dropped.
pub(crate) struct Descriptor(*mut dds_topic_descriptor_t);

impl Descriptor {
    pub(crate) fn as_ptr(&self) -> *const dds_topic_descriptor_t {
        self.0
    }

    /// Removes the type objects, as in a peer without XTypes. Then types match if their names
    /// match.
    pub(crate) fn without_type_objects(self) -> Self {
        // SAFETY: the descriptor is valid and ours alone. Freeing a null pointer does nothing.
        unsafe {
            cyclors::dds_free((*self.0).type_information.data as *mut _);
            cyclors::dds_free((*self.0).type_mapping.data as *mut _);
            (*self.0).type_information = std::mem::zeroed();
            (*self.0).type_mapping = std::mem::zeroed();
            (*self.0).m_flagset &= !cyclors::DDS_TOPIC_XTYPES_METADATA;
        }
        self
    }
}

impl Drop for Descriptor {
    fn drop(&mut self) {
        // SAFETY: `dds_create_topic_descriptor` returned it, and only this code frees it.
        unsafe { dds_delete_topic_descriptor(self.0) };
    }
}

/// A type under construction. Dropping it releases the reference, unless the type was given away.
struct Dynamic(dds_dynamic_type_t);

impl Dynamic {
    fn create(
        participant: dds_entity_t,
        descriptor: dds_dynamic_type_descriptor_t,
    ) -> Result<Self, Error> {
        // SAFETY: the descriptor's pointers live across the call, which copies what it keeps.
        let made = unsafe { dds_dynamic_type_create(participant, descriptor) };
        check("create a type", made.ret)?;
        Ok(Self(made))
    }

    fn into_spec(self) -> dds_dynamic_type_spec_t {
        let type_ = self.0;
        std::mem::forget(self);
        dds_dynamic_type_spec_t {
            kind: DEFINITION,
            type_: dds_dynamic_type_spec__bindgen_ty_1 { type_ },
        }
    }
}

impl Drop for Dynamic {
    fn drop(&mut self) {
        // SAFETY: the reference is ours; `into_spec` forgets types that are given away.
        unsafe { dds_dynamic_type_unref(&raw mut self.0) };
    }
}

impl StructType {
    /// The descriptor for topics of `participant`.
    pub(crate) fn descriptor(&self, participant: dds_entity_t) -> Result<Descriptor, Error> {
        self.described(participant, self.name, true)
    }

    /// The descriptor under another name, with or without the key.
    pub(crate) fn described(
        &self,
        participant: dds_entity_t,
        name: &str,
        keyed: bool,
    ) -> Result<Descriptor, Error> {
        let name = c_string("the type's name", name)?;
        // SAFETY: zeros are an empty descriptor; its pointers are null.
        let mut of_struct: dds_dynamic_type_descriptor_t = unsafe { std::mem::zeroed() };
        of_struct.kind = STRUCTURE;
        of_struct.name = name.as_ptr();
        let mut made = Dynamic::create(participant, of_struct)?;
        for (id, member) in (0..).zip(self.members) {
            let key = member.key && keyed;
            add_member(participant, &mut made, id, &Member { key, ..*member })?;
        }
        register(participant, made)
    }
}

/// Registers a complete type, and creates its descriptor.
fn register(participant: dds_entity_t, mut made: Dynamic) -> Result<Descriptor, Error> {
    let mut typeinfo = ptr::null_mut();
    // SAFETY: `made` is a type. On success the call sets `typeinfo`, which is then ours.
    let code = unsafe { dds_dynamic_type_register(&raw mut made.0, &raw mut typeinfo) };
    check("register a type", code)?;
    let mut descriptor = ptr::null_mut();
    // SAFETY: `typeinfo` is valid until it is freed here, once; `descriptor` is set on success.
    let code = unsafe {
        let scope = dds_find_scope_DDS_FIND_SCOPE_LOCAL_DOMAIN;
        let code =
            dds_create_topic_descriptor(scope, participant, typeinfo, 0, &raw mut descriptor);
        dds_free_typeinfo(typeinfo);
        code
    };
    check("describe a type", code)?;
    Ok(Descriptor(descriptor))
}

/// True for type names of the form that ROS 2 gives its messages: `PACKAGE::msg::dds_::NAME_`.
///
/// # Source
/// ROS 2 design, "Topic and Service name mapping to DDS", and rosidl's type names.
pub fn is_ros2(type_name: &str) -> bool {
    let parts: Vec<_> = type_name.split("::").collect();
    matches!(parts[..], [_, "msg" | "srv" | "action", "dds_", name] if name.ends_with('_'))
}

fn add_member(
    participant: dds_entity_t,
    to: &mut Dynamic,
    id: u32,
    member: &Member,
) -> Result<(), Error> {
    let name: CString = c_string("a member's name", member.name)?;
    // SAFETY: zeros are an empty descriptor; its pointers are null.
    let mut of_member: dds_dynamic_member_descriptor_t = unsafe { std::mem::zeroed() };
    of_member.name = name.as_ptr();
    of_member.id = DDS_DYNAMIC_MEMBER_ID_AUTO;
    of_member.index = DDS_DYNAMIC_MEMBER_INDEX_END;
    of_member.type_ = match member.kind {
        Kind::I32 => primitive(INT32),
        Kind::I64 => primitive(INT64),
        Kind::U64 => primitive(UINT64),
        Kind::Octets => {
            // SAFETY: as above.
            let mut octets: dds_dynamic_type_descriptor_t = unsafe { std::mem::zeroed() };
            octets.kind = SEQUENCE;
            octets.name = c"octets".as_ptr();
            octets.element_type = primitive(BYTE);
            Dynamic::create(participant, octets)?.into_spec()
        }
    };
    // SAFETY: `to` is a type, and the descriptor's name lives across the call.
    check("add a member to a type", unsafe {
        dds_dynamic_type_add_member(&raw mut to.0, of_member)
    })?;
    if member.key {
        // SAFETY: `to` has this member; ids count from 0.
        let code = unsafe { dds_dynamic_member_set_key(&raw mut to.0, id, true) };
        check("make a member a key", code)?;
    }
    Ok(())
}

fn primitive(kind: dds_dynamic_type_kind_t) -> dds_dynamic_type_spec_t {
    dds_dynamic_type_spec_t {
        kind: PRIMITIVE,
        type_: dds_dynamic_type_spec__bindgen_ty_1 { primitive: kind },
    }
}

#[cfg(test)]
mod tests {
    use super::is_ros2;

    #[test]
    fn names_that_ros_2_made_are_known() {
        for name in ["equipoise_msgs::msg::dds_::DataItem_", "a::srv::dds_::B_Request_"] {
            assert!(is_ros2(name), "{name}");
        }
        for name in ["dpslb::DataItem", "a::msg::DataItem", "a::msg::dds_::DataItem", "dds_::A_"] {
            assert!(!is_ros2(name), "{name}");
        }
    }
}
