//! The values of a table, by option name.

use std::collections::BTreeMap;
use std::net::IpAddr;
use std::str::FromStr;
use std::time::Duration;

use super::key::Options;
use super::option::{Choice, Numbered, Table};
use super::text::AddressPrefix;
use super::view::View;

/// A table after reading. A wrong or absent option has its default value, if it has one.
#[derive(Debug)]
pub(super) struct Values {
    pub(super) spec: &'static Table,
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

/// Getters panic if the caller and the option table disagree on a name or type. The test that
/// changes every option would fail then.
impl Values {
    /// The table as one with the options of `T`, which readers name by keys.
    pub(super) fn typed<T: Options>(&self) -> View<'_, T> {
        assert_eq!(self.spec.title, T::TABLE.title, "a reader expects another table");
        View::new(self)
    }

    fn entry(&self, name: &str) -> Option<&Entry> {
        assert!(self.spec.option(name).is_some(), "no option {name} in {}", self.spec.title);
        self.entries.get(name)
    }

    fn find<'v, T: 'v>(&'v self, name: &str, take: impl Fn(&'v Value) -> Option<T>) -> Option<T> {
        let entry = self.entry(name)?;
        let taken = take(&entry.value);
        assert!(taken.is_some(), "option {name} of {} is of another kind", self.spec.title);
        taken
    }

    /// Whether the file states the option.
    pub(super) fn given(&self, name: &str) -> bool {
        self.entry(name).is_some_and(|entry| entry.given)
    }

    /// Offset of the option in the file; the offset of its table if the file does not state it.
    pub(super) fn at(&self, name: &str) -> usize {
        self.entry(name).filter(|entry| entry.given).map_or(self.at, |entry| entry.at)
    }

    /// The path of the option, for messages.
    pub(super) fn path_of(&self, name: &str) -> String {
        join(&self.path, name)
    }

    /// A flag; `false` if it has neither value nor default.
    pub(super) fn flag(&self, name: &str) -> bool {
        let take = |value: &Value| if let Value::Flag(flag) = value { Some(*flag) } else { None };
        self.find(name, take).unwrap_or(false)
    }

    /// A count or a size in bytes.
    pub(super) fn number(&self, name: &str) -> Option<u64> {
        self.find(
            name,
            |value| if let Value::Number(number) = value { Some(*number) } else { None },
        )
    }

    /// The number, or the value that the word stands for.
    pub(super) fn number_or_choice<T: Numbered>(&self, name: &str) -> Option<T> {
        self.find(name, |value| match value {
            Value::Number(number) => T::numbered(*number),
            Value::Text(word) => T::CHOICES.get(word),
            _ => None,
        })
    }

    /// A count or size with a default, and with a bound that fits a `T`.
    pub(super) fn amount<T: TryFrom<u64>>(&self, name: &str) -> T {
        let amount = self.number(name).and_then(|number| T::try_from(number).ok());
        amount.unwrap_or_else(|| {
            panic!("option {name} of {} has no default or bound", self.spec.title)
        })
    }

    /// The addresses and lengths of prefixes.
    pub(super) fn prefixes(&self, name: &str) -> impl Iterator<Item = (IpAddr, u8)> + use<'_> {
        self.texts(name).unwrap_or_default().iter().filter_map(|text| {
            text.parse().ok().map(|AddressPrefix(address, length)| (address, length))
        })
    }

    /// A share or another number that has a default.
    pub(super) fn share(&self, name: &str) -> f64 {
        self.share_if_any(name).expect("every share has a default: a test reads every one")
    }

    /// A share or another number, if it has a value.
    pub(super) fn share_if_any(&self, name: &str) -> Option<f64> {
        self.find(name, |value| if let Value::Share(share) = value { Some(*share) } else { None })
    }

    /// A duration, if it has a value or default.
    pub(super) fn duration_if_any(&self, name: &str) -> Option<Duration> {
        self.find(name, |value| if let Value::Duration(time) = value { Some(*time) } else { None })
    }

    /// A duration that has a default.
    pub(super) fn duration(&self, name: &str) -> Duration {
        self.duration_if_any(name)
            .unwrap_or_else(|| panic!("option {name} of {} has no default", self.spec.title))
    }

    /// A string, or the word of a choice.
    pub(super) fn text(&self, name: &str) -> Option<&str> {
        self.find(
            name,
            |value| if let Value::Text(text) = value { Some(text.as_str()) } else { None },
        )
    }

    /// One or more strings, if it has a value.
    pub(super) fn texts(&self, name: &str) -> Option<&[String]> {
        self.find(
            name,
            |value| if let Value::Texts(texts) = value { Some(&texts[..]) } else { None },
        )
    }

    /// A string of a validated form, parsed as a `T`.
    pub(super) fn parsed<T: FromStr>(&self, name: &str) -> Option<T> {
        let parsed = self.text(name)?.parse().ok();
        assert!(parsed.is_some(), "option {name} of {} is of another form", self.spec.title);
        parsed
    }

    /// The value that the word of a choice stands for.
    pub(super) fn choice<T: Choice>(&self, name: &str) -> Option<T> {
        let chosen = T::CHOICES.get(self.text(name)?);
        assert!(chosen.is_some(), "option {name} of {} is another choice", self.spec.title);
        chosen
    }

    /// A table, if it has a value or a default.
    pub(super) fn table(&self, name: &str) -> Option<&Values> {
        self.find(name, |value| if let Value::Table(values) = value { Some(values) } else { None })
    }

    /// A list of tables, if it has a value.
    pub(super) fn list(&self, name: &str) -> Option<&[Values]> {
        self.find(
            name,
            |value| if let Value::Tables(tables) = value { Some(&tables[..]) } else { None },
        )
    }

    /// A list of tables. Every such list has a default.
    pub(super) fn tables(&self, name: &str) -> &[Values] {
        self.list(name).expect("every list has a default: a test reads every one")
    }
}

/// The value of a choice that has a default.
pub(super) fn chosen<T: Choice>(values: &Values, name: &str) -> T {
    values.choice(name).expect("has a default: a test reads every one")
}
