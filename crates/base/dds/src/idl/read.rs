//! Parses IDL: modules, structs, enums and typedefs. Constants are skipped.

use std::collections::BTreeMap;
use std::sync::Arc;

use super::lex::{Token, tokens, wrong};
use super::{Enum, IdlError, Member, Primitive, Struct, Type};

/// Greatest nesting of types. Samples are read by recursion.
const DEPTH_MAX: usize = 32;
/// Greatest number of elements of an array.
const ELEMENTS_MAX: u64 = 1 << 28;

/// Parses the struct `name` of an IDL text. A type name of ROS 2, `PACKAGE::msg::dds_::NAME_`, also
/// finds `PACKAGE::msg::NAME`.
///
/// # Errors
/// [`IdlError`]
pub fn parse(text: &str, name: &str) -> Result<Arc<Struct>, IdlError> {
    let mut reader =
        Reader { tokens: tokens(text)?, at: 0, scope: Vec::new(), known: BTreeMap::new() };
    reader.definitions(0)?;
    let plain = name.strip_suffix('_').map(|name| name.replacen("::dds_::", "::", 1));
    for name in [Some(name), plain.as_deref()].into_iter().flatten() {
        if let Some(Type::Struct(found)) = reader.known.get(name) {
            return Ok(found.clone());
        }
    }
    let structs = reader.known.into_iter().filter(|(_, of)| matches!(of, Type::Struct(_)));
    Err(IdlError::NoStruct { name: name.into(), known: structs.map(|(name, _)| name).collect() })
}

struct Reader<'t> {
    tokens: Vec<Token<'t>>,
    at: usize,
    scope: Vec<&'t str>,
    /// The declared types by their full names.
    known: BTreeMap<String, Type>,
}

/// The annotations of a declaration that this parser uses.
#[derive(Default)]
struct Annotations {
    key: bool,
    appendable: bool,
}

impl<'t> Reader<'t> {
    fn definitions(&mut self, depth: usize) -> Result<(), IdlError> {
        while self.peek().is_some_and(|text| text != "}") {
            let annotations = self.annotations()?;
            match self.next()? {
                ";" => {}
                "module" if depth < DEPTH_MAX => {
                    let name = self.name()?;
                    self.scope.push(name);
                    self.expect("{")?;
                    self.definitions(depth + 1)?;
                    self.expect("}")?;
                    self.scope.pop();
                }
                "struct" => self.structure(&annotations)?,
                "enum" => self.enumeration()?,
                "typedef" => self.alias()?,
                "const" => while self.next()? != ";" {},
                other => {
                    let what = format!(
                        "`{other}` is not read here; accepted: module, struct, enum, typedef, const"
                    );
                    return Err(self.wrong(what));
                }
            }
        }
        match self.peek() {
            Some(_) if depth == 0 => Err(self.wrong("`}` closes nothing")),
            _ => Ok(()),
        }
    }

    fn structure(&mut self, annotations: &Annotations) -> Result<(), IdlError> {
        let name = self.declared()?;
        match self.next()? {
            "{" => {}
            // A forward declaration; the definition follows.
            ";" => return Ok(()),
            other => {
                return Err(self.wrong(format!("`{other}`: `{name}` may inherit from nothing")));
            }
        }
        let mut members: Vec<Member> = Vec::new();
        while self.peek() != Some("}") {
            let key = self.annotations()?.key;
            let of = self.type_of(0)?;
            loop {
                let (member, of) = self.declarator(&of)?;
                if members.iter().any(|before| before.name == member) {
                    return Err(self.wrong(format!("`{name}` has `{member}` twice")));
                }
                members.push(Member { name: member.into(), of, key });
                match self.next()? {
                    "," => {}
                    ";" => break,
                    other => return Err(self.wrong(format!("`{other}` in the place of `;`"))),
                }
            }
        }
        self.expect("}")?;
        if members.is_empty() {
            return Err(self.wrong(format!("`{name}` has no member")));
        }
        let of = Struct { name: name.clone(), appendable: annotations.appendable, members };
        let of = Type::Struct(Arc::new(of));
        if depth(&of) > DEPTH_MAX {
            return Err(
                self.wrong(format!("`{name}` has more than {DEPTH_MAX} types within types"))
            );
        }
        self.known.insert(name, of);
        Ok(())
    }

    fn enumeration(&mut self) -> Result<(), IdlError> {
        let name = self.declared()?;
        self.expect("{")?;
        let (mut literals, mut next) = (Vec::new(), 0_i32);
        while self.peek() != Some("}") {
            next = self.enum_value(next)?;
            literals.push((self.name()?.to_string(), next));
            next = next.saturating_add(1);
            if self.peek() == Some(",") {
                self.at += 1;
            }
        }
        self.expect("}")?;
        if literals.is_empty() {
            return Err(self.wrong(format!("`{name}` has no value")));
        }
        self.known.insert(name.clone(), Type::Enum(Arc::new(Enum { name, literals })));
        Ok(())
    }

    /// `@value(N)`, or the next number.
    fn enum_value(&mut self, next: i32) -> Result<i32, IdlError> {
        let mut value = next;
        while self.peek() == Some("@") {
            self.at += 1;
            let what = self.name()?;
            let inside = self.parameters()?;
            if what == "value" {
                let number = inside.concat();
                value =
                    number.parse().map_err(|_| self.wrong(format!("`{number}` is no number")))?;
            }
        }
        Ok(value)
    }

    fn alias(&mut self) -> Result<(), IdlError> {
        self.annotations()?;
        let of = self.type_of(0)?;
        loop {
            let (name, of) = self.declarator(&of)?;
            self.known.insert(self.full(name), of);
            match self.next()? {
                "," => {}
                ";" => return Ok(()),
                other => return Err(self.wrong(format!("`{other}` in the place of `;`"))),
            }
        }
    }

    fn type_of(&mut self, depth: usize) -> Result<Type, IdlError> {
        if depth > DEPTH_MAX {
            return Err(self.wrong(format!("more than {DEPTH_MAX} types within types")));
        }
        let first = self.next()?;
        let primitive = match first {
            "boolean" => Primitive::Bool,
            "octet" => Primitive::Octet,
            "char" => Primitive::Char,
            "int8" => Primitive::I8,
            "uint8" => Primitive::U8,
            "short" | "int16" => Primitive::I16,
            "uint16" => Primitive::U16,
            "int32" => Primitive::I32,
            "uint32" => Primitive::U32,
            "int64" => Primitive::I64,
            "uint64" => Primitive::U64,
            "float" => Primitive::F32,
            "double" => Primitive::F64,
            "long" => self.long(false)?,
            "unsigned" => match self.next()? {
                "short" => Primitive::U16,
                "long" => self.long(true)?,
                other => return Err(self.wrong(format!("`unsigned {other}` is no type"))),
            },
            "string" => return Ok(Type::Text(self.bound()?)),
            "sequence" => return self.sequence(depth),
            "wstring" | "wchar" | "union" | "map" | "any" | "bitset" | "bitmask" | "Object" => {
                return Err(self.wrong(format!("`{first}` is not supported")));
            }
            _ => {
                self.at -= 1;
                return self.named();
            }
        };
        Ok(Type::Primitive(primitive))
    }

    /// Parses the rest of a type that begins with `long`.
    fn long(&mut self, unsigned: bool) -> Result<Primitive, IdlError> {
        let twice = self.peek() == Some("long");
        self.at += usize::from(twice);
        match (unsigned, twice, self.peek()) {
            (false, false, Some("double")) => Err(self.wrong("`long double` is not supported")),
            (false, false, _) => Ok(Primitive::I32),
            (true, false, _) => Ok(Primitive::U32),
            (false, true, _) => Ok(Primitive::I64),
            (true, true, _) => Ok(Primitive::U64),
        }
    }

    fn sequence(&mut self, depth: usize) -> Result<Type, IdlError> {
        self.expect("<")?;
        let of = self.type_of(depth + 1)?;
        let bound = match self.next()? {
            ">" => return Ok(Type::Sequence(Arc::new(of), 0)),
            "," => self.number()?,
            other => return Err(self.wrong(format!("`{other}` in the place of `>`"))),
        };
        self.expect(">")?;
        Ok(Type::Sequence(Arc::new(of), bound))
    }

    /// `<N>`, or nothing.
    fn bound(&mut self) -> Result<u32, IdlError> {
        if self.peek() != Some("<") {
            return Ok(0);
        }
        self.at += 1;
        let bound = self.number()?;
        self.expect(">")?;
        Ok(bound)
    }

    /// A type that was declared before, by its name in this scope or an enclosing one.
    fn named(&mut self) -> Result<Type, IdlError> {
        let absolute = self.peek() == Some("::");
        self.at += usize::from(absolute);
        let mut name = self.name()?.to_string();
        while self.peek() == Some("::") {
            self.at += 1;
            name = format!("{name}::{}", self.name()?);
        }
        let outermost = if absolute { 0 } else { self.scope.len() };
        for around in (0..=outermost).rev() {
            let full = [&self.scope[..around], &[name.as_str()]].concat().join("::");
            if let Some(found) = self.known.get(&full) {
                return Ok(found.clone());
            }
        }
        Err(self.wrong(format!(
            "there is no type `{name}`: declare or include each type before its first use"
        )))
    }

    /// A member's name, with the dimensions of an array.
    fn declarator(&mut self, of: &Type) -> Result<(&'t str, Type), IdlError> {
        let name = self.name()?;
        let mut dimensions = Vec::new();
        while self.peek() == Some("[") {
            self.at += 1;
            dimensions.push(self.number()?);
            self.expect("]")?;
        }
        let elements =
            dimensions.iter().try_fold(1_u64, |all, one| all.checked_mul(u64::from(*one)));
        match elements {
            _ if dimensions.is_empty() => Ok((name, of.clone())),
            Some(1..=ELEMENTS_MAX) => Ok((name, Type::Array(Arc::new(of.clone()), dimensions))),
            _ => Err(self.wrong(format!("`{name}` has no element, or more than {ELEMENTS_MAX}"))),
        }
    }

    fn annotations(&mut self) -> Result<Annotations, IdlError> {
        let mut found = Annotations::default();
        while self.peek() == Some("@") {
            self.at += 1;
            self.at += usize::from(self.peek() == Some("::"));
            let name = self.name()?;
            let inside = self.parameters()?;
            match name {
                "key" => found.key = inside.is_empty() || inside == ["TRUE"],
                "appendable" => found.appendable = true,
                "extensibility" if inside == ["APPENDABLE"] => found.appendable = true,
                "mutable" | "optional" | "bit_bound" | "external" | "shared" => {
                    return Err(self.wrong(format!("`@{name}` is not supported")));
                }
                "extensibility" if inside != ["FINAL"] => {
                    return Err(self.wrong("accepted: @final, @appendable"));
                }
                _ => {}
            }
        }
        Ok(found)
    }

    /// The tokens in the parentheses of an annotation.
    fn parameters(&mut self) -> Result<Vec<&'t str>, IdlError> {
        let mut inside = Vec::new();
        if self.peek() != Some("(") {
            return Ok(inside);
        }
        self.at += 1;
        let mut open = 1;
        loop {
            let text = self.next()?;
            match text {
                "(" => open += 1,
                ")" => open -= 1,
                _ => {}
            }
            if open == 0 {
                return Ok(inside);
            }
            inside.push(text);
        }
    }

    /// The full name of the declaration that follows.
    fn declared(&mut self) -> Result<String, IdlError> {
        let name = self.name()?;
        Ok(self.full(name))
    }

    fn full(&self, name: &str) -> String {
        [&self.scope[..], &[name]].concat().join("::")
    }

    fn name(&mut self) -> Result<&'t str, IdlError> {
        let text = self.next()?;
        let fits = text.starts_with(|c: char| c.is_ascii_alphabetic() || c == '_')
            && text.bytes().all(|byte| byte.is_ascii_alphanumeric() || byte == b'_');
        if fits { Ok(text) } else { Err(self.wrong(format!("`{text}` in the place of a name"))) }
    }

    fn number(&mut self) -> Result<u32, IdlError> {
        let text = self.next()?;
        text.parse().map_err(|_| self.wrong(format!("`{text}` in the place of a number")))
    }

    fn expect(&mut self, wanted: &str) -> Result<(), IdlError> {
        let text = self.next()?;
        if text == wanted {
            return Ok(());
        }
        Err(self.wrong(format!("`{text}` in the place of `{wanted}`")))
    }

    fn peek(&self) -> Option<&'t str> {
        self.tokens.get(self.at).map(|token| token.text)
    }

    fn next(&mut self) -> Result<&'t str, IdlError> {
        let token = self.peek().ok_or_else(|| self.wrong("the text ends too early"))?;
        self.at += 1;
        Ok(token)
    }

    /// An error at the token that was read last.
    fn wrong(&self, what: impl Into<String>) -> IdlError {
        let last = self.tokens.get(self.at.saturating_sub(1)).or(self.tokens.last());
        wrong(last.map_or(1, |token| token.line), what)
    }
}

/// Depth of nested types, this one included.
fn depth(of: &Type) -> usize {
    match of {
        Type::Primitive(_) | Type::Text(_) | Type::Enum(_) => 1,
        Type::Sequence(of, _) | Type::Array(of, _) => 1 + depth(of),
        Type::Struct(of) => {
            1 + of.members.iter().map(|member| depth(&member.of)).max().unwrap_or(0)
        }
    }
}
