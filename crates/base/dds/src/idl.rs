//! Types of clients, declared in IDL: structs of numbers, strings, enums, sequences and arrays.
//!
//! [`parse`] reads the text into a [`Struct`], from which topics are created.
//! - [`KeyField`] finds one field in a serialized sample without decoding the rest.
//!
//! # Source
//! OMG IDL 4.2, sections 7.4.1 to 7.4.3 and 7.4.15 (annotations); the `.idl` files of ROS 2's
//! rosidl. Unions, maps, bitmasks, wide strings, optional members and mutable types are refused.

mod key;
mod lex;
mod read;

#[cfg(test)]
mod tests;

use std::sync::Arc;

pub use key::{KeyField, KeyValue};
pub use read::parse;

/// A fault of a type's declaration.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum IdlError {
    /// The text is not valid.
    #[error("line {line} of the IDL: {what}")]
    Text {
        /// The line, counted from 1.
        line: usize,
        /// The problem.
        what: String,
    },
    /// The text has no struct of this name.
    #[error("the IDL declares no struct `{name}`; it has {}", list(.known))]
    NoStruct {
        /// The requested name.
        name: String,
        /// The declared structs.
        known: Vec<String>,
    },
    /// A struct has no field of this name.
    #[error("`{of}` has no field `{field}`; it has {}", list(.known))]
    NoField {
        /// The name of the struct.
        of: String,
        /// The requested field.
        field: String,
        /// The fields of the struct.
        known: Vec<String>,
    },
    /// The field cannot be a key.
    #[error(
        "`{0}` is neither a number nor a string: a key is one field, and a path such as `header.frame_id` leads into a struct"
    )]
    NotAKey(String),
    /// A type of replies has key members. The key of a reply is its client, not a member.
    #[error("`{0}` is a type of replies and must not have members with `@key`")]
    KeyedReply(String),
}

fn list(names: &[String]) -> String {
    if names.is_empty() { "none".into() } else { names.join(", ") }
}

/// A type.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Type {
    /// A type of fixed size.
    Primitive(Primitive),
    /// `string`, with a maximum length; 0: unbounded.
    Text(u32),
    /// `sequence`, with a maximum number of elements; 0: unbounded.
    Sequence(Arc<Type>, u32),
    /// An array, with its dimensions.
    Array(Arc<Type>, Vec<u32>),
    /// A struct.
    Struct(Arc<Struct>),
    /// An enumeration.
    Enum(Arc<Enum>),
}

/// A type of fixed size.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[expect(missing_docs, reason = "the names say it")]
pub enum Primitive {
    Bool,
    Octet,
    Char,
    I8,
    U8,
    I16,
    U16,
    I32,
    U32,
    I64,
    U64,
    F32,
    F64,
}

impl Primitive {
    /// Size in bytes, which is also the alignment.
    pub fn bytes(self) -> usize {
        match self {
            Self::Bool | Self::Octet | Self::Char | Self::I8 | Self::U8 => 1,
            Self::I16 | Self::U16 => 2,
            Self::I32 | Self::U32 | Self::F32 => 4,
            Self::I64 | Self::U64 | Self::F64 => 8,
        }
    }
}

/// A struct.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Struct {
    /// Name with modules: `module::Name`.
    pub name: String,
    /// `@appendable`; otherwise the struct is final.
    pub appendable: bool,
    /// At least one member, in order.
    pub members: Vec<Member>,
}

/// A member of a struct.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Member {
    /// Its name.
    pub name: String,
    /// Its type.
    pub of: Type,
    /// `@key`
    pub key: bool,
}

/// An enumeration, serialized in four bytes.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Enum {
    /// Name with modules.
    pub name: String,
    /// Names and values, in order.
    pub literals: Vec<(String, i32)>,
}
