//! The types with which `tables` describes the options of the configuration file.

use std::fmt::Write as _;
use std::str::FromStr;
use std::time::Duration;

use super::text::{show_duration, show_size};

/// A TOML table and its options.
#[derive(Debug)]
pub(super) struct Table {
    /// Title as written in a file: `[api]`, `[[pool]]`.
    pub(super) title: &'static str,
    /// Its purpose.
    pub(super) help: &'static str,
    /// Options that the table may have.
    pub(super) options: &'static [Opt],
}

/// One option: name, type, default and help. Reader, schema and reference page are derived from it.
#[derive(Debug)]
pub(super) struct Opt {
    /// The key.
    pub(super) name: &'static str,
    /// Its accepted values.
    pub(super) kind: Kind,
    /// Its value when it is absent.
    pub(super) absent: Absent,
    /// Its effect.
    pub(super) help: &'static str,
    /// The option affects only front doors that speak HTTP, and pools behind them.
    pub(super) http_only: bool,
}

/// The meaning of an absent option.
#[derive(Debug)]
pub(super) enum Absent {
    /// The option must be given.
    Required,
    /// Same as this value, in TOML.
    Default(&'static str),
    /// A description of the meaning, for options without a default value.
    Means(&'static str),
}

/// The accepted values of an option.
#[derive(Debug)]
pub(super) enum Kind {
    /// `true` or `false`.
    Flag,
    /// A whole number within bounds.
    Count(u64, u64),
    /// A whole number within bounds, or one of several words.
    CountOr(u64, u64, &'static (dyn Words + Sync)),
    /// A number from 0.0 to 1.0.
    Share,
    /// A number within bounds.
    Number(f64, f64),
    /// A number and a unit of time, within bounds.
    Duration(Duration, Duration),
    /// A number and a unit of size, within bounds in bytes.
    Size(u64, u64),
    /// One of several words.
    Choice(&'static (dyn Words + Sync)),
    /// A string of a certain form.
    Text(&'static Form),
    /// One or more strings of a certain form.
    Texts(&'static Form),
    /// A table.
    Table(&'static Table),
    /// A list of tables.
    Tables(&'static Table),
    /// A list of tables, where a string stands for the table with only that option.
    Briefs(&'static Table, &'static str),
}

/// The words of a choice, each with its meaning and the value that it stands for.
#[derive(Debug)]
pub(super) struct Choices<T: 'static>(pub(super) &'static [(&'static str, T, &'static str)]);

/// The words of a choice, without the type of their values.
pub(super) trait Words: std::fmt::Debug {
    /// Each word and its meaning.
    fn words(&self) -> Vec<(&'static str, &'static str)>;
}

impl<T: std::fmt::Debug> Words for Choices<T> {
    fn words(&self) -> Vec<(&'static str, &'static str)> {
        self.0.iter().map(|(word, _, help)| (*word, *help)).collect()
    }
}

impl<T: Copy + PartialEq> Choices<T> {
    /// The word for a value. Each value has one.
    pub(super) fn word(&self, value: T) -> &'static str {
        self.0.iter().find(|(_, of, _)| *of == value).map_or("", |(word, ..)| word)
    }
}

impl<T: Copy> Choices<T> {
    /// The value of a word.
    pub(super) fn get(&self, word: &str) -> Option<T> {
        self.0.iter().find(|(name, ..)| *name == word).map(|(_, value, _)| *value)
    }
}

/// The form of a string.
#[derive(Debug)]
pub(super) struct Form {
    /// Noun for messages: "is not a ...".
    pub(super) noun: &'static str,
    /// Description for messages: "accepted: ...".
    pub(super) accepted: &'static str,
    /// Whether a string has the form.
    pub(super) fits: fn(&str) -> bool,
}

#[cfg(feature = "slice")]
impl Form {
    /// Returns the string if it has the form, otherwise a description of the accepted form.
    pub(super) fn read(&self, text: &str) -> Result<String, String> {
        match (self.fits)(text) {
            true => Ok(text.to_string()),
            false => Err(format!("not {}; accepted: {}", self.noun, self.accepted)),
        }
    }
}

/// Whether a string parses as a `T`.
pub(super) fn reads_as<T: FromStr>(text: &str) -> bool {
    text.parse::<T>().is_ok()
}

impl Opt {
    /// An option that must be given.
    pub(super) const fn required(name: &'static str, kind: Kind, help: &'static str) -> Opt {
        Opt { name, kind, absent: Absent::Required, help, http_only: false }
    }

    /// An option with a default, in TOML.
    pub(super) const fn default(
        name: &'static str,
        kind: Kind,
        toml: &'static str,
        help: &'static str,
    ) -> Opt {
        Opt { name, kind, absent: Absent::Default(toml), help, http_only: false }
    }

    /// An option without a default value; `absent` describes the meaning of its absence.
    pub(super) const fn optional(
        name: &'static str,
        kind: Kind,
        absent: &'static str,
        help: &'static str,
    ) -> Opt {
        Opt { name, kind, absent: Absent::Means(absent), help, http_only: false }
    }

    /// Marks the option as having no effect without HTTP.
    pub(super) const fn http_only(self) -> Opt {
        Opt { http_only: true, ..self }
    }
}

impl Table {
    /// The option of that name.
    pub(super) fn option(&self, name: &str) -> Option<&'static Opt> {
        self.options.iter().find(|option| option.name == name)
    }
}

impl Kind {
    /// The accepted values, for error messages and the reference page.
    pub(super) fn accepted(&self) -> String {
        match self {
            Kind::Flag => "true or false".into(),
            Kind::Count(min, max) => format!("a whole number, {min} to {max}"),
            Kind::Share => "a number from 0.0 to 1.0".into(),
            Kind::Number(min, max) => format!("a number from {min} to {max}"),
            Kind::Duration(min, max) => format!(
                "a number and a unit (ms, s, m, h, d), {} to {}",
                show_duration(*min),
                show_duration(*max)
            ),
            Kind::Size(min, max) => format!(
                "a number and a unit (B, KB, KiB, MB, MiB, GB, GiB, TB, TiB), {} to {}",
                show_size(*min),
                show_size(*max)
            ),
            Kind::Choice(choices) => one_of(*choices),
            Kind::CountOr(min, max, words) => {
                format!("a whole number, {min} to {max}, or {}", one_of(*words))
            }
            Kind::Text(form) => form.accepted.into(),
            Kind::Texts(form) => format!("{}; or a list of such", form.accepted),
            Kind::Table(table) => format!("a table, {}", table.title),
            Kind::Tables(table) => format!("tables: {} above each", table.title),
            Kind::Briefs(_, brief) => format!("a list of `{brief}` strings or of tables"),
        }
    }
}

/// The words, quoted.
fn one_of(choices: &dyn Words) -> String {
    let words = choices.words();
    let mut text = String::new();
    for (place, (word, _)) in words.iter().enumerate() {
        let joint = match place {
            0 => "",
            _ if place + 1 == words.len() => " or ",
            _ => ", ",
        };
        // Writing to a string cannot fail.
        let _ = write!(text, "{joint}\"{word}\"");
    }
    text
}
