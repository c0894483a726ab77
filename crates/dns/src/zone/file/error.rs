//! Faults of zone files.

use std::path::PathBuf;

use super::entries::ENTRY_BYTES_MAX;
use super::{BYTES_MAX, DEPTH_MAX, FILES_MAX, RECORDS_MAX, TTL_MAX};

/// Why a zone file cannot be used.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ZoneFileError {
    /// The zone's first file cannot be read.
    #[error("\"{}\" cannot be read: {cause}; accepted: a zone file", .file.display())]
    Unreadable {
        /// The file.
        file: PathBuf,
        /// Why.
        cause: String,
    },
    /// A line is wrong.
    #[error("\"{}\" line {line}: {wrong}", .file.display())]
    Line {
        /// The file, which may be one that another includes.
        file: PathBuf,
        /// Number of the line, from 1.
        line: usize,
        /// The fault.
        wrong: Wrong,
    },
}

/// What is wrong with a line of a zone file.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Wrong {
    /// A text without an end.
    #[error("a quotation mark that is not closed; accepted: a second `\"` behind the text")]
    Quote,
    /// A `(` without its `)`.
    #[error("`(` that is not closed; accepted: a `)` behind the record's last word")]
    Unclosed,
    /// A `)` without its `(`.
    #[error("`)` that closes nothing; accepted: a `(` before it")]
    Unopened,
    /// An entry that is longer than any record.
    #[error(
        "a record of more than {ENTRY_BYTES_MAX} bytes; accepted: a shorter one (is a `)` missing?)"
    )]
    LongEntry,
    /// A directive that does not exist.
    #[error("`{0}` is not a directive; accepted: $ORIGIN, $TTL, $INCLUDE, $GENERATE")]
    Directive(String),
    /// A directive with too few or too many words, or a wrong one.
    #[error("{directive} is incomplete or has a wrong word; accepted: `{directive} {form}`")]
    Form {
        /// The directive.
        directive: &'static str,
        /// Its words.
        form: &'static str,
    },
    /// No TTL.
    #[error(
        "`{0}` is not a time; accepted: 0 to {TTL_MAX} seconds (RFC 2181, 8), also with units (w, d, h, m, s), such as \
         `1h30m`"
    )]
    Ttl(String),
    /// No name.
    #[error(
        "`{text}` is not a name: {cause}; accepted: labels of 1 to 63 bytes with dots between them, 255 bytes in all"
    )]
    Name {
        /// The word.
        text: String,
        /// The fault.
        cause: String,
    },
    /// A record without a name, and none before it.
    #[error("a record without a name; accepted: a name at the start of the file's first record")]
    NoOwner,
    /// A record without a type.
    #[error(
        "a record without a type; accepted: `NAME [TTL] [IN] TYPE DATA`, such as `www 300 IN A 192.0.2.1`"
    )]
    NoType,
    /// No type.
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
    /// Data that is none of its type.
    #[error("data of the {rtype} record: {cause}; accepted: {form}")]
    Data {
        /// The record's type.
        rtype: String,
        /// The fault.
        cause: String,
        /// What its data looks like.
        form: &'static str,
    },
    /// Two SOA records that differ.
    #[error("a second SOA record, the first is in \"{}\" line {line}; accepted: one", .file.display())]
    SecondSoa {
        /// The first one's file.
        file: PathBuf,
        /// Its line.
        line: usize,
    },
    /// `$GENERATE` cannot make a record.
    #[error(
        "$GENERATE makes no number of `{0}`; accepted: `$`, or `${{OFFSET,WIDTH,BASE}}` with a width up to 255 and base d, o, x, X, n or N"
    )]
    Generate(String),
    /// A file beside or above the zone file's folder.
    #[error("$INCLUDE \"{path}\" is not below the zone file's folder; accepted: files below \"{}\", without `..`", .folder.display())]
    Outside {
        /// The path as the line has it.
        path: String,
        /// The zone file's folder.
        folder: PathBuf,
    },
    /// A file that another names cannot be read.
    #[error("$INCLUDE \"{}\" cannot be read: {cause}; accepted: a zone file", .file.display())]
    Included {
        /// The file.
        file: PathBuf,
        /// Why.
        cause: String,
    },
    /// Files that name each other, or many files.
    #[error(
        "$INCLUDE goes deeper than {DEPTH_MAX} files, or names more than {FILES_MAX}; accepted: fewer files (does one include itself?)"
    )]
    Files,
    /// Too much of everything.
    #[error(
        "the zone has more than {RECORDS_MAX} records or {} MiB of text; accepted: at most that many",
        BYTES_MAX >> 20
    )]
    TooMany,
}
