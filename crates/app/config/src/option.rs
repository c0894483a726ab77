//! The types with which `tables` describes the options of the configuration file.

use std::marker::PhantomData;
use std::str::FromStr;
use std::time::Duration;

use super::text::{listed, show_duration, show_size};

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
#[derive(Clone, Copy, Debug)]
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
#[derive(Clone, Copy, Debug)]
pub(super) enum Absent {
    /// The option must be given.
    Required,
    /// Same as this value.
    Default(Usual),
    /// A description of the meaning, for options without a default value.
    Means(&'static str),
}

/// The default value of an option.
#[derive(Clone, Copy, Debug)]
pub(super) enum Usual {
    Flag(bool),
    Count(u64),
    Fraction(f64),
    Duration(Duration),
    /// In bytes.
    Size(u64),
    Word(&'static dyn Word),
    Text(&'static str),
    Texts(&'static [&'static str]),
    /// A table without options.
    Table,
}

/// The accepted values of an option.
#[derive(Clone, Copy, Debug)]
pub(super) enum Kind {
    /// `true` or `false`.
    Flag,
    /// A whole number within bounds.
    Count(u64, u64),
    /// A whole number within bounds, or one of several words.
    CountOr(u64, u64, &'static dyn Words),
    /// A number from 0.0 to 1.0.
    Share,
    /// A number within bounds.
    Number(f64, f64),
    /// A number and a unit of time, within bounds.
    Duration(Duration, Duration),
    /// A number and a unit of size, within bounds in bytes.
    Size(u64, u64),
    /// One of several words.
    Choice(&'static dyn Words),
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

/// A type of values that have words in the file.
pub(super) trait Choice: Copy + PartialEq + std::fmt::Debug + 'static {
    const CHOICES: &'static Choices<Self>;
}

/// A type of values of which some have words, and the others are numbers.
pub(super) trait Numbered: Choice {
    /// The value that the number stands for; a number out of bounds stands for none.
    fn numbered(number: u64) -> Option<Self>;
}

/// A value that has a word in the file.
pub(super) trait Word: std::fmt::Debug {
    fn word(&self) -> &'static str;
}

impl<E: Choice> Word for E {
    fn word(&self) -> &'static str {
        E::CHOICES.word(*self)
    }
}

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

/// The form of strings that stand for an `X`.
pub(super) struct TypedForm<X> {
    pub(super) form: Form,
    typed: PhantomData<fn() -> X>,
}

impl<X: FromStr> TypedForm<X> {
    /// Every string that parses as an `X`.
    pub(super) const fn new(noun: &'static str, accepted: &'static str) -> TypedForm<X> {
        TypedForm::some(noun, accepted, reads_as::<X>)
    }

    /// The strings that `fits` accepts, which all parse as an `X`.
    pub(super) const fn some(
        noun: &'static str,
        accepted: &'static str,
        fits: fn(&str) -> bool,
    ) -> TypedForm<X> {
        TypedForm { form: Form { noun, accepted, fits }, typed: PhantomData }
    }
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

impl Table {
    /// The option of that name.
    pub(super) fn option(&self, name: &str) -> Option<&'static Opt> {
        self.options.iter().find(|option| option.name == name)
    }

    /// Whether the table has options of all these names.
    pub(super) const fn has_all(&self, mut names: &[&str]) -> bool {
        while let [name, rest @ ..] = names {
            let mut options = self.options;
            while let [option, others @ ..] = options
                && !equal(option.name.as_bytes(), name.as_bytes())
            {
                options = others;
            }
            if options.is_empty() {
                return false;
            }
            names = rest;
        }
        true
    }
}

/// Compares bytes when the program is compiled, which `==` cannot.
const fn equal(mut one: &[u8], mut other: &[u8]) -> bool {
    while let ([a, one_rest @ ..], [b, other_rest @ ..]) = (one, other) {
        if *a != *b {
            return false;
        }
        (one, other) = (one_rest, other_rest);
    }
    one.is_empty() && other.is_empty()
}

impl Usual {
    /// The value in TOML.
    pub(super) fn toml(&self) -> String {
        let quoted = |text: &str| format!("\"{text}\"");
        match *self {
            Usual::Flag(flag) => flag.to_string(),
            Usual::Count(count) => count.to_string(),
            Usual::Fraction(number) => format!("{number:?}"),
            Usual::Duration(time) => quoted(&show_duration(time)),
            Usual::Size(bytes) => quoted(&show_size(bytes)),
            Usual::Word(value) => quoted(value.word()),
            Usual::Text(text) => quoted(text),
            Usual::Texts(texts) => {
                let texts: Vec<String> = texts.iter().map(|text| quoted(text)).collect();
                format!("[{}]", texts.join(", "))
            }
            Usual::Table => "{}".into(),
        }
    }
}

impl Kind {
    /// Whether a count or size is within the bounds.
    pub(super) const fn admits_number(&self, number: u64) -> bool {
        matches!(self, Kind::Count(min, max) | Kind::Size(min, max) if *min <= number && number <= *max)
    }

    /// Whether a share or another number is within the bounds.
    pub(super) const fn admits_fraction(&self, number: f64) -> bool {
        match self {
            Kind::Share => 0.0 <= number && number <= 1.0,
            Kind::Number(min, max) => *min <= number && number <= *max,
            _ => false,
        }
    }

    /// Whether a duration is within the bounds.
    pub(super) const fn admits_duration(&self, time: Duration) -> bool {
        let time = time.as_nanos();
        matches!(self, Kind::Duration(min, max) if min.as_nanos() <= time && time <= max.as_nanos())
    }

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
    let words: Vec<String> = words.iter().map(|(word, _)| format!("\"{word}\"")).collect();
    listed(&words, "or")
}
