//! Reads a zone file, the source of all records except those of balanced names.
//!
//! The `domain` crate reads the data of most types. This module reads entries, directives, TTLs and
//! some types, because `domain` 0.12 does not read units of TTLs, `$GENERATE`, and a last line
//! without a newline. hickory-proto 0.26 has no `$GENERATE`, and its errors have no line number.
//!
//! # Source
//! RFC 1035, section 5; `$TTL` RFC 2308, section 4. Units, `$GENERATE` and the scope of directives
//! are those of BIND 9.

mod data;
mod entries;
mod error;
mod generate;
mod location;

use std::io;
use std::path::{Component, Path, PathBuf};

use domain::base::iana::{Class, Rtype};
use domain::base::name::UncertainName;

use crate::config::{Name, StaticRecord};
use entries::{Entries, Entry, Word};
pub use error::{Wrong, ZoneFileError};

/// Maximum number of records of a zone. Larger zones belong on another server.
pub const RECORDS_MAX: usize = 100_000;
/// Maximum size of a zone's text, bytes: all its files and everything that `$GENERATE` makes.
pub const BYTES_MAX: usize = 256 << 20;
/// Maximum number of files of a zone.
pub const FILES_MAX: usize = 1000;
/// Maximum depth of `$INCLUDE`.
pub const DEPTH_MAX: usize = 8;
/// Maximum TTL, seconds (RFC 2181, section 8).
pub const TTL_MAX: u32 = i32::MAX as u32;
/// TTL of a record without a TTL of its own or of a predecessor, seconds.
const TTL_DEFAULT: u32 = 3600;

/// Reads a file of a zone. Must not block forever.
pub type ReadFile<'r> = &'r dyn Fn(&Path) -> io::Result<String>;

/// Reads the records of a zone file and of the files that it includes. Relative names are below
/// `origin`, or below the current `$ORIGIN`.
///
/// # Errors
/// The first fault, with its file and line.
pub fn read(
    file: &Path,
    origin: &Name,
    read: ReadFile<'_>,
) -> Result<Vec<StaticRecord>, ZoneFileError> {
    let text = read(file).map_err(|error| ZoneFileError::Unreadable {
        file: file.to_owned(),
        cause: error.to_string(),
    })?;
    let mut reader = Reader {
        read,
        folder: file.parent().unwrap_or(Path::new("")),
        records: Vec::new(),
        soa: None,
        soa_is_repeated: false,
        ttl: None,
        ttl_last: TTL_DEFAULT,
        files: 1,
        bytes: 0,
    };
    let scope =
        Scope { file: file.to_owned(), origin: origin.clone(), owner: None, depth: 1, line: 1 };
    reader.file(&text, scope)?;
    Ok(reader.records)
}

/// State of reading a zone.
struct Reader<'r> {
    read: ReadFile<'r>,
    /// Folder of the zone's first file.
    folder: &'r Path,
    records: Vec<StaticRecord>,
    /// The SOA record, its file and its line.
    soa: Option<(StaticRecord, PathBuf, usize)>,
    /// Whether the SOA record was repeated.
    soa_is_repeated: bool,
    /// The current `$TTL`. As in BIND, an included file's `$TTL` stays in force in the file that
    /// includes it.
    ttl: Option<u32>,
    /// TTL of the last record.
    ttl_last: u32,
    files: usize,
    bytes: usize,
}

/// State of reading one file. As in RFC 1035, settings of an included file end with it.
struct Scope {
    file: PathBuf,
    origin: Name,
    /// Owner of the last record.
    owner: Option<Name>,
    depth: usize,
    /// Line of the current entry.
    line: usize,
}

/// The words between a record's name and its data.
struct Head {
    ttl: Option<u32>,
    rtype: Rtype,
    /// Index of the first word of the data.
    data_at: usize,
}

impl Scope {
    fn wrong(&self, wrong: Wrong) -> ZoneFileError {
        ZoneFileError::Line { file: self.file.clone(), line: self.line, wrong }
    }
}

impl Reader<'_> {
    fn file(&mut self, text: &str, mut scope: Scope) -> Result<(), ZoneFileError> {
        self.grow(text.len()).map_err(|wrong| scope.wrong(wrong))?;
        // Some Windows editors write a byte order mark.
        let text = text.strip_prefix('\u{feff}').unwrap_or(text);
        self.entries(text, &mut scope)
    }

    fn entries(&mut self, text: &str, scope: &mut Scope) -> Result<(), ZoneFileError> {
        let mut entries = Entries::new(text, scope.line);
        loop {
            let entry = entries.next_entry().map_err(|(line, wrong)| {
                scope.line = line;
                scope.wrong(wrong)
            })?;
            let Some(entry) = entry else { return Ok(()) };
            scope.line = entry.line;
            let first = entry.words[0];
            if !entry.indented && !first.quoted && first.text.starts_with('$') {
                self.directive(&entry, scope)?;
            } else {
                self.record(&entry, scope).map_err(|wrong| scope.wrong(wrong))?;
            }
        }
    }

    /// Adds to the size of the zone's text, and checks the limit.
    fn grow(&mut self, bytes: usize) -> Result<(), Wrong> {
        self.bytes = self.bytes.saturating_add(bytes);
        if self.bytes > BYTES_MAX { Err(Wrong::TooMany) } else { Ok(()) }
    }

    fn record(&mut self, entry: &Entry<'_>, scope: &mut Scope) -> Result<(), Wrong> {
        let (owner, rest) = match (entry.indented, &scope.owner) {
            (true, Some(owner)) => (owner.clone(), &entry.words[..]),
            (true, None) => return Err(Wrong::NoOwner),
            (false, _) => (name(&entry.words[0], &scope.origin)?, &entry.words[1..]),
        };
        scope.owner = Some(owner.clone());
        let Head { ttl, rtype, data_at } = head(&owner.fmt_with_dot().to_string(), rest)?;
        let body = data::read(rtype, &rest[data_at..], &scope.origin)?;
        // As in BIND, an SOA record without a TTL takes its own minimum as `$TTL`, if it comes
        // first.
        let is_first_soa = rtype == Rtype::SOA && self.records.is_empty();
        if let Some(minimum) = body.last_chunk().filter(|_| is_first_soa)
            && ttl.or(self.ttl).is_none()
        {
            self.ttl = Some(u32::from_be_bytes(*minimum).min(TTL_MAX));
        }
        self.ttl_last = ttl.unwrap_or(self.ttl_last);
        let ttl = ttl.or(self.ttl).unwrap_or(self.ttl_last);
        if self.records.len() == RECORDS_MAX {
            return Err(Wrong::TooMany);
        }
        let record = StaticRecord { owner, rtype, ttl, body };
        if rtype == Rtype::SOA {
            match &self.soa {
                None => self.soa = Some((record.clone(), scope.file.clone(), scope.line)),
                // A zone transfer ends with a repetition of its first record.
                Some((first, ..)) if *first == record && !self.soa_is_repeated => {
                    self.soa_is_repeated = true;
                    return Ok(());
                }
                Some((_, file, line)) => {
                    return Err(Wrong::SecondSoa { file: file.clone(), line: *line });
                }
            }
        }
        self.records.push(record);
        Ok(())
    }

    fn directive(&mut self, entry: &Entry<'_>, scope: &mut Scope) -> Result<(), ZoneFileError> {
        let words = &entry.words[..];
        let form = |directive, form| Err(scope.wrong(Wrong::Form { directive, form }));
        match (words[0].text.to_ascii_uppercase().as_str(), words) {
            ("$ORIGIN", [_, origin]) => {
                scope.origin = name(origin, &scope.origin).map_err(|wrong| scope.wrong(wrong))?;
                Ok(())
            }
            ("$ORIGIN", _) => form("$ORIGIN", "NAME"),
            ("$TTL", [_, ttl]) => {
                self.ttl = Some(seconds(ttl.text).map_err(|wrong| scope.wrong(wrong))?);
                Ok(())
            }
            ("$TTL", _) => form("$TTL", "TIME"),
            ("$INCLUDE", [_, path]) => self.include(path, scope.origin.clone(), scope),
            ("$INCLUDE", [_, path, origin]) => {
                let origin = name(origin, &scope.origin).map_err(|wrong| scope.wrong(wrong))?;
                self.include(path, origin, scope)
            }
            ("$INCLUDE", _) => form("$INCLUDE", "FILE [NAME]"),
            ("$GENERATE", words) => {
                for text in generate::lines(words).map_err(|wrong| scope.wrong(wrong))? {
                    let text = text.and_then(|text| self.grow(text.len()).map(|()| text));
                    self.generated(&text.map_err(|wrong| scope.wrong(wrong))?, scope)?;
                }
                Ok(())
            }
            _ => Err(scope.wrong(Wrong::Directive(words[0].text.to_owned()))),
        }
    }

    /// Reads a record that `$GENERATE` makes. Errors name the directive's line.
    fn generated(&mut self, text: &str, scope: &mut Scope) -> Result<(), ZoneFileError> {
        let line = scope.line;
        let entry = Entries::new(text, line).next_entry();
        let outcome = match entry {
            Ok(Some(entry)) => self.record(&entry, scope),
            Ok(None) => Ok(()),
            Err((_, wrong)) => Err(wrong),
        };
        outcome.map_err(|wrong| scope.wrong(wrong))
    }

    /// Reads an included file. Its path is relative to the folder of the file that includes it, and
    /// must be below the folder of the zone file: an author of records need not have the right to
    /// read all files that this process can read. Symbolic links are followed, because the zone
    /// file itself may be one.
    fn include(
        &mut self,
        path: &Word<'_>,
        origin: Name,
        scope: &Scope,
    ) -> Result<(), ZoneFileError> {
        let octets = path.octets().and_then(|octets| String::from_utf8(octets).ok());
        let text = octets.unwrap_or_else(|| path.text.to_owned());
        let file = scope.file.parent().unwrap_or(Path::new("")).join(&text);
        let stays = |rest: &Path| rest.components().all(|part| part != Component::ParentDir);
        if !file.strip_prefix(self.folder).is_ok_and(stays) {
            let wrong = Wrong::Outside { path: text, folder: self.folder.to_owned() };
            return Err(scope.wrong(wrong));
        }
        if scope.depth >= DEPTH_MAX || self.files >= FILES_MAX {
            return Err(scope.wrong(Wrong::Files));
        }
        self.files += 1;
        let text = (self.read)(&file).map_err(|error| {
            scope.wrong(Wrong::Included { file: file.clone(), cause: error.to_string() })
        })?;
        // As in BIND, its first record may use the previous owner.
        let owner = scope.owner.clone();
        self.file(&text, Scope { file, origin, owner, depth: scope.depth + 1, line: 1 })
    }
}

/// Parses `[TTL] [CLASS] TYPE` or `[CLASS] [TTL] TYPE` at the start of `words`.
fn head(owner: &str, words: &[Word<'_>]) -> Result<Head, Wrong> {
    let (mut ttl, mut class) = (None, None);
    for (place, word) in words.iter().enumerate() {
        let text = word.text;
        if ttl.is_none() && text.starts_with(|first: char| first.is_ascii_digit()) {
            ttl = Some(seconds(text)?);
        } else if let Ok(rtype) = text.parse::<Rtype>() {
            return Ok(Head { ttl, rtype, data_at: place + 1 });
        } else if let (None, Ok(of)) = (class, text.parse::<Class>()) {
            if of != Class::IN {
                return Err(Wrong::Class { owner: owner.to_owned(), class: of.to_string() });
            }
            class = Some(of);
        } else {
            return Err(Wrong::Type(text.to_owned()));
        }
    }
    Err(Wrong::NoType)
}

/// Parses a time in seconds, or with BIND's units in either case: `1h30m`.
fn seconds(text: &str) -> Result<u32, Wrong> {
    let wrong = || Wrong::Ttl(text.to_owned());
    let within = |seconds: u64| u32::try_from(seconds).ok().filter(|seconds| *seconds <= TTL_MAX);
    if text.bytes().all(|byte| byte.is_ascii_digit()) {
        return text.parse().ok().and_then(within).ok_or_else(wrong);
    }
    let (mut sum, mut number) = (0u64, None::<u64>);
    for byte in text.bytes() {
        if byte.is_ascii_digit() {
            number = Some(number.unwrap_or(0) * 10 + u64::from(byte - b'0'));
            // Prevents overflow: below, a unit of at most a week multiplies the number.
            number.filter(|number| *number <= u64::from(TTL_MAX)).ok_or_else(wrong)?;
            continue;
        }
        let unit = match byte.to_ascii_lowercase() {
            b'w' => 604_800,
            b'd' => 86_400,
            b'h' => 3600,
            b'm' => 60,
            b's' => 1,
            _ => return Err(wrong()),
        };
        sum = sum.saturating_add(number.take().ok_or_else(wrong)? * unit);
    }
    if number.is_some() { Err(wrong()) } else { within(sum).ok_or_else(wrong) }
}

/// Parses a name and returns it in lower case; `@` is `origin`.
fn name(word: &Word<'_>, origin: &Name) -> Result<Name, Wrong> {
    let wrong = |cause: String| Wrong::Name { text: word.text.to_owned(), cause };
    let mut name = match word.text {
        "@" => origin.clone(),
        "." => Name::root_vec(),
        _ => match UncertainName::<Vec<u8>>::from_chars(word.ascii().chars()) {
            Ok(UncertainName::Absolute(name)) => name,
            Ok(UncertainName::Relative(name)) => {
                let chained = name.chain(origin).map_err(|error| wrong(error.to_string()))?;
                domain::base::name::ToName::to_vec(&chained)
            }
            Err(error) => return Err(wrong(error.to_string())),
        },
    };
    name.make_canonical();
    Ok(name)
}

#[cfg(test)]
mod tests;
