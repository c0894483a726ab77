//! Errors of zone files.

use std::path::PathBuf;

use super::entries::ENTRY_BYTES_MAX;
use super::{BYTES_MAX, DEPTH_MAX, FILES_MAX, RECORDS_MAX, TTL_MAX};

/// Reason why a zone file cannot be used.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ZoneFileError {
    /// The zone's first file cannot be read.
    #[error("\"{}\" cannot be read: {cause}; accepted: a zone file", .file.display())]
    Unreadable {
        /// The file.
        file: PathBuf,
        /// Cause of the error.
        cause: String,
    },
    /// A line is invalid.
    #[error("\"{}\" line {line}: {wrong}", .file.display())]
    Line {
        /// The file, which another file may include.
        file: PathBuf,
        /// Number of the line, from 1.
        line: usize,
        /// The fault.
        wrong: Wrong,
    },
}

/// Error in a line of a zone file.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Wrong {
    /// A quoted text is not closed.
    #[error("a quotation mark that is not closed; accepted: a second `\"` behind the text")]
    Quote,
    /// A `(` without its `)`.
    #[error("`(` that is not closed; accepted: a `)` behind the record's last word")]
    Unclosed,
    /// A `)` without its `(`.
    #[error("`)` that closes nothing; accepted: a `(` before it")]
    Unopened,
    /// An entry is longer than any record.
    #[error(
        "a record of more than {ENTRY_BYTES_MAX} bytes; accepted: a shorter one (is a `)` missing?)"
    )]
    LongEntry,
    /// The directive does not exist.
    #[error("`{0}` is not a directive; accepted: $ORIGIN, $TTL, $INCLUDE, $GENERATE")]
    Directive(String),
    /// A directive has too few or too many words, or an invalid one.
    #[error("{directive} is incomplete or has a wrong word; accepted: `{directive} {form}`")]
    Form {
        /// The directive.
        directive: &'static str,
        /// The expected words.
        form: &'static str,
    },
    /// A TTL is invalid.
    #[error(
        "`{0}` is not a time; accepted: 0 to {TTL_MAX} seconds (RFC 2181, 8), also with units (w, d, h, m, s), such as \
         `1h30m`"
    )]
    Ttl(String),
    /// A name is invalid.
    #[error(
        "`{text}` is not a name: {cause}; accepted: labels of 1 to 63 bytes with dots between them, 255 bytes in all"
    )]
    Name {
        /// The word.
        text: String,
        /// The fault.
        cause: String,
    },
    /// A record without a name has no predecessor.
    #[error("a record without a name; accepted: a name at the start of the file's first record")]
    NoOwner,
    /// A record has no type.
    #[error(
        "a record without a type; accepted: `NAME [TTL] [IN] TYPE DATA`, such as `www 300 IN A 192.0.2.1`"
    )]
    NoType,
    /// A record type is invalid.
    #[error(
        "`{0}` is not a type; accepted: one such as A or TXT, or TYPE and its number (RFC 3597)"
    )]
    Type(String),
    /// A class other than IN.
    #[error("`{owner}` has class {class}; accepted: IN")]
    Class {
        /// Owner of the record.
        owner: String,
        /// Its class.
        class: String,
    },
    /// The data is invalid for its type.
    #[error("data of the {rtype} record: {cause}; accepted: {form}")]
    Data {
        /// The record's type.
        rtype: String,
        /// The fault.
        cause: String,
        /// The expected format.
        form: &'static str,
    },
    /// The zone has two different SOA records.
    #[error("a second SOA record, the first is in \"{}\" line {line}; accepted: one", .file.display())]
    SecondSoa {
        /// File of the first SOA record.
        file: PathBuf,
        /// Line of the first SOA record.
        line: usize,
    },
    /// `$GENERATE` cannot make a record.
    #[error(
        "$GENERATE makes no number of `{0}`; accepted: `$`, or `${{OFFSET,WIDTH,BASE}}` with a width up to 255 and base d, o, x, X, n or N"
    )]
    Generate(String),
    /// `$INCLUDE` names a file outside the zone file's folder.
    #[error("$INCLUDE \"{path}\" is not below the zone file's folder; accepted: files below \"{}\", without `..`", .folder.display())]
    Outside {
        /// The path as written in the line.
        path: String,
        /// The zone file's folder.
        folder: PathBuf,
    },
    /// An included file cannot be read.
    #[error("$INCLUDE \"{}\" cannot be read: {cause}; accepted: a zone file", .file.display())]
    Included {
        /// The file.
        file: PathBuf,
        /// Cause of the error.
        cause: String,
    },
    /// Files include each other, or there are too many files.
    #[error(
        "$INCLUDE goes deeper than {DEPTH_MAX} files, or names more than {FILES_MAX}; accepted: fewer files (does one include itself?)"
    )]
    Files,
    /// The zone has too many records or too much text.
    #[error(
        "the zone has more than {RECORDS_MAX} records or {} MiB of text; accepted: at most that many",
        BYTES_MAX >> 20
    )]
    TooMany,
}
