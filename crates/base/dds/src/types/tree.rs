//! Topic descriptors of types that are declared in IDL.

use std::ffi::CString;

use cyclors::{
    DDS_DYNAMIC_MEMBER_ID_AUTO, DDS_DYNAMIC_MEMBER_INDEX_END, dds_dynamic_enum_literal_value_t,
    dds_dynamic_member_descriptor_t, dds_dynamic_member_set_key, dds_dynamic_type_add_enum_literal,
    dds_dynamic_type_add_member, dds_dynamic_type_descriptor_t,
    dds_dynamic_type_enum_value_kind_DDS_DYNAMIC_ENUM_LITERAL_VALUE_EXPLICIT as EXPLICIT,
    dds_dynamic_type_extensibility_DDS_DYNAMIC_TYPE_EXT_APPENDABLE as APPENDABLE,
    dds_dynamic_type_kind_DDS_DYNAMIC_ARRAY as ARRAY,
    dds_dynamic_type_kind_DDS_DYNAMIC_BOOLEAN as BOOLEAN,
    dds_dynamic_type_kind_DDS_DYNAMIC_BYTE as BYTE,
    dds_dynamic_type_kind_DDS_DYNAMIC_CHAR8 as CHAR8,
    dds_dynamic_type_kind_DDS_DYNAMIC_ENUMERATION as ENUMERATION,
    dds_dynamic_type_kind_DDS_DYNAMIC_FLOAT32 as FLOAT32,
    dds_dynamic_type_kind_DDS_DYNAMIC_FLOAT64 as FLOAT64,
    dds_dynamic_type_kind_DDS_DYNAMIC_INT8 as INT8,
    dds_dynamic_type_kind_DDS_DYNAMIC_INT16 as INT16,
    dds_dynamic_type_kind_DDS_DYNAMIC_INT32 as INT32,
    dds_dynamic_type_kind_DDS_DYNAMIC_INT64 as INT64,
    dds_dynamic_type_kind_DDS_DYNAMIC_SEQUENCE as SEQUENCE,
    dds_dynamic_type_kind_DDS_DYNAMIC_STRING8 as STRING8,
    dds_dynamic_type_kind_DDS_DYNAMIC_STRUCTURE as STRUCTURE,
    dds_dynamic_type_kind_DDS_DYNAMIC_UINT8 as UINT8,
    dds_dynamic_type_kind_DDS_DYNAMIC_UINT16 as UINT16,
    dds_dynamic_type_kind_DDS_DYNAMIC_UINT32 as UINT32,
    dds_dynamic_type_kind_DDS_DYNAMIC_UINT64 as UINT64, dds_dynamic_type_kind_t,
    dds_dynamic_type_set_extensibility, dds_dynamic_type_spec_t, dds_entity_t,
};

use super::{Descriptor, Dynamic, primitive, register};
use crate::error::{Error, c_string, check};
use crate::idl::{Enum, Primitive, Struct, Type};

/// The descriptor of `of` under `name`. `keyed`: members with `@key` are the key.
pub(crate) fn described(
    participant: dds_entity_t,
    of: &Struct,
    name: &str,
    keyed: bool,
) -> Result<Descriptor, Error> {
    register(participant, structure(participant, of, name, keyed)?)
}

fn structure(
    participant: dds_entity_t,
    of: &Struct,
    name: &str,
    keyed: bool,
) -> Result<Dynamic, Error> {
    let mut made = new(participant, STRUCTURE, name, &[], None)?;
    if of.appendable {
        // SAFETY: `made` is a struct under construction without members.
        let code = unsafe { dds_dynamic_type_set_extensibility(&raw mut made.0, APPENDABLE) };
        check("make a type appendable", code)?;
    }
    for (id, member) in (0..).zip(&of.members) {
        let name: CString = c_string("a member's name", &member.name)?;
        let type_ = spec(participant, &member.of, keyed)?;
        // SAFETY: zeros are an empty descriptor; its pointers are null.
        let mut described: dds_dynamic_member_descriptor_t = unsafe { std::mem::zeroed() };
        described.name = name.as_ptr();
        described.id = DDS_DYNAMIC_MEMBER_ID_AUTO;
        described.index = DDS_DYNAMIC_MEMBER_INDEX_END;
        described.type_ = type_;
        // SAFETY: `made` is a struct, and the name lives across the call, which takes the member's
        // type.
        let code = unsafe { dds_dynamic_type_add_member(&raw mut made.0, described) };
        check("add a member to a type", code)?;
        if member.key && keyed {
            // SAFETY: `made` has this member; ids count from 0.
            let code = unsafe { dds_dynamic_member_set_key(&raw mut made.0, id, true) };
            check("make a member a key", code)?;
        }
    }
    Ok(made)
}

fn spec(
    participant: dds_entity_t,
    of: &Type,
    keyed: bool,
) -> Result<dds_dynamic_type_spec_t, Error> {
    let bounded = |bound: u32| if bound > 0 { vec![bound] } else { Vec::new() };
    let made = match of {
        Type::Primitive(of) => return Ok(primitive(kind(*of))),
        Type::Struct(of) => structure(participant, of, &of.name, keyed)?,
        Type::Enum(of) => enumeration(participant, of)?,
        Type::Text(bound) => new(participant, STRING8, "text", &bounded(*bound), None)?,
        Type::Sequence(element, bound) => {
            let element = spec(participant, element, keyed)?;
            new(participant, SEQUENCE, "sequence", &bounded(*bound), Some(element))?
        }
        Type::Array(element, dimensions) => {
            let element = spec(participant, element, keyed)?;
            new(participant, ARRAY, "array", dimensions, Some(element))?
        }
    };
    Ok(made.into_spec())
}

fn enumeration(participant: dds_entity_t, of: &Enum) -> Result<Dynamic, Error> {
    let mut made = new(participant, ENUMERATION, &of.name, &[], None)?;
    for (name, value) in &of.literals {
        let name = c_string("a value's name", name)?;
        let value = dds_dynamic_enum_literal_value_t { value_kind: EXPLICIT, value: *value };
        // SAFETY: `made` is an enumeration, and the name lives across the call, which copies it.
        let code = unsafe {
            dds_dynamic_type_add_enum_literal(&raw mut made.0, name.as_ptr(), value, false)
        };
        check("add a value to an enumeration", code)?;
    }
    Ok(made)
}

fn new(
    participant: dds_entity_t,
    kind: dds_dynamic_type_kind_t,
    name: &str,
    bounds: &[u32],
    element: Option<dds_dynamic_type_spec_t>,
) -> Result<Dynamic, Error> {
    let name = c_string("the type's name", name)?;
    // SAFETY: zeros are an empty descriptor; its pointers are null.
    let mut described: dds_dynamic_type_descriptor_t = unsafe { std::mem::zeroed() };
    described.kind = kind;
    described.name = name.as_ptr();
    (described.num_bounds, described.bounds) = (bounds.len() as u32, bounds.as_ptr());
    if let Some(element) = element {
        described.element_type = element;
    }
    Dynamic::create(participant, described)
}

fn kind(of: Primitive) -> dds_dynamic_type_kind_t {
    match of {
        Primitive::Bool => BOOLEAN,
        Primitive::Octet => BYTE,
        Primitive::Char => CHAR8,
        Primitive::I8 => INT8,
        Primitive::U8 => UINT8,
        Primitive::I16 => INT16,
        Primitive::U16 => UINT16,
        Primitive::I32 => INT32,
        Primitive::U32 => UINT32,
        Primitive::I64 => INT64,
        Primitive::U64 => UINT64,
        Primitive::F32 => FLOAT32,
        Primitive::F64 => FLOAT64,
    }
}
