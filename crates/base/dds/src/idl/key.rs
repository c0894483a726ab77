//! Finds one field of a serialized sample without decoding the rest.

use std::sync::Arc;

use super::{IdlError, Primitive, Struct, Type};
use crate::cdr::{Decoder, Malformed};

/// A field of a type, or of a struct within it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct KeyField {
    root: Arc<Struct>,
    /// Index of the member in the root, then in that member's struct, and so on.
    path: Vec<usize>,
}

/// The value of a key field.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum KeyValue<'a> {
    /// A string, without its terminating zero.
    Text(&'a [u8]),
    /// A number as 64 bits, sign-extended; of a floating-point number its bits.
    Number(u64),
}

impl KeyField {
    /// The field at `path`: member names, separated by `.`.
    ///
    /// # Errors
    /// [`IdlError::NoField`] and [`IdlError::NotAKey`]
    pub fn new(root: &Arc<Struct>, path: &str) -> Result<Self, IdlError> {
        let not_a_key = || IdlError::NotAKey(path.to_string());
        let (mut of, mut found, mut names) = (root.clone(), Vec::new(), path.split('.').peekable());
        while let Some(name) = names.next() {
            let at = of.members.iter().position(|member| member.name == name);
            let at = at.ok_or_else(|| IdlError::NoField {
                of: of.name.clone(),
                field: name.to_string(),
                known: of.members.iter().map(|member| member.name.clone()).collect(),
            })?;
            found.push(at);
            let member = of.members[at].of.clone();
            match (member, names.peek().is_some()) {
                (Type::Struct(inner), true) => of = inner,
                (Type::Primitive(_) | Type::Text(_) | Type::Enum(_), false) => {}
                _ => return Err(not_a_key()),
            }
        }
        Ok(Self { root: root.clone(), path: found })
    }

    /// The field's value in a serialized sample of the type.
    ///
    /// # Errors
    /// [`Malformed`]
    pub fn peek<'a>(&self, cdr: &'a [u8]) -> Result<KeyValue<'a>, Malformed> {
        let mut decoder = Decoder::of_any(cdr)?;
        let mut of = &*self.root;
        for at in &self.path {
            if is_delimited(of, &decoder) {
                decoder.u32()?;
            }
            for member in &of.members[..*at] {
                skip(&mut decoder, &member.of)?;
            }
            match &of.members[*at].of {
                Type::Struct(inner) => of = inner,
                scalar => return value(&mut decoder, scalar),
            }
        }
        // Not reached: `new` accepts only paths that end with a scalar.
        Err(Malformed::Short)
    }
}

fn value<'a>(decoder: &mut Decoder<'a>, of: &Type) -> Result<KeyValue<'a>, Malformed> {
    let number = match of {
        Type::Text(_) => {
            let text = decoder.octets()?;
            return Ok(KeyValue::Text(text.strip_suffix(&[0]).unwrap_or(text)));
        }
        Type::Primitive(Primitive::I8) => i64::from(decoder.u8()? as i8) as u64,
        Type::Primitive(Primitive::I16) => i64::from(decoder.u16()? as i16) as u64,
        Type::Primitive(Primitive::I32) | Type::Enum(_) => i64::from(decoder.i32()?) as u64,
        Type::Primitive(of) => match of.bytes() {
            1 => decoder.u8()?.into(),
            2 => decoder.u16()?.into(),
            4 => decoder.u32()?.into(),
            _ => decoder.u64()?,
        },
        Type::Sequence(..) | Type::Array(..) | Type::Struct(_) => return Err(Malformed::Short),
    };
    Ok(KeyValue::Number(number))
}

/// True if the struct's length precedes it.
fn is_delimited(of: &Struct, decoder: &Decoder<'_>) -> bool {
    of.appendable && decoder.is_version_2()
}

fn skip(decoder: &mut Decoder<'_>, of: &Type) -> Result<(), Malformed> {
    match of {
        Type::Primitive(of) => decoder.skip(of.bytes(), of.bytes()),
        Type::Enum(_) => decoder.skip(4, 4),
        Type::Text(_) => decoder.octets().map(|_| ()),
        Type::Struct(of) if is_delimited(of, decoder) => decoder.octets().map(|_| ()),
        Type::Struct(of) => of.members.iter().try_for_each(|member| skip(decoder, &member.of)),
        // XCDR2 puts the length before collections of non-primitive elements.
        Type::Sequence(element, _) | Type::Array(element, _)
            if decoder.is_version_2() && !matches!(**element, Type::Primitive(_)) =>
        {
            decoder.octets().map(|_| ())
        }
        Type::Sequence(element, _) => {
            let count = decoder.u32()?;
            skip_all(decoder, element, u64::from(count))
        }
        Type::Array(element, dimensions) => {
            let count = dimensions.iter().map(|one| u64::from(*one)).product();
            skip_all(decoder, element, count)
        }
    }
}

/// Skips `count` elements. Each has at least one byte, so the sample's end limits the loop.
fn skip_all(decoder: &mut Decoder<'_>, of: &Type, count: u64) -> Result<(), Malformed> {
    match of {
        // An empty collection has no padding for alignment.
        _ if count == 0 => Ok(()),
        Type::Primitive(of) => {
            let count = usize::try_from(count).map_err(|_| Malformed::Short)?;
            let bytes = count.checked_mul(of.bytes()).ok_or(Malformed::Short)?;
            decoder.skip(bytes, of.bytes())
        }
        _ => (0..count).try_for_each(|_| skip(decoder, of)),
    }
}
