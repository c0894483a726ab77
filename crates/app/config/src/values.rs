//! The values of a table, by option name.

use std::collections::BTreeMap;
use std::time::Duration;

/// A table after reading. A wrong or absent option has its default value, if it has one.
#[derive(Debug)]
pub(super) struct Values {
    /// Path for messages: `pool.web`.
    pub(super) path: String,
    /// Offset of the table in the file, in bytes.
    pub(super) at: usize,
    pub(super) entries: BTreeMap<&'static str, Entry>,
}

/// The value of one option.
#[derive(Debug)]
pub(super) struct Entry {
    /// Offset of the value in the file, in bytes.
    pub(super) at: usize,
    /// Whether the file states the value; otherwise it is the default.
    pub(super) given: bool,
    pub(super) value: Value,
}

/// A value of the right type, within bounds.
#[derive(Debug)]
pub(super) enum Value {
    Flag(bool),
    Number(u64),
    Share(f64),
    Duration(Duration),
    Text(String),
    Texts(Vec<String>),
    Table(Values),
    Tables(Vec<Values>),
}

/// The path of an option, by the path of its table.
pub(super) fn join(path: &str, name: &str) -> String {
    if path.is_empty() { name.to_string() } else { format!("{path}.{name}") }
}
