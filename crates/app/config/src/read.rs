//! Checks a TOML document against the option tables: names, types and bounds.
//!
//! `build` and `relations` check options against each other.

use std::collections::BTreeMap;

use toml::Spanned;
use toml::de::{DeTable, DeValue};

use super::option::{Absent, Kind, Opt, Table, Usual};
use super::problem::{Findings, hint, nearest};
use super::text::{read_duration, read_size};
use super::values::{Entry, Value, Values, join};

/// Reads the whole document.
pub(super) fn file(
    spec: &'static Table,
    document: &DeTable<'_>,
    findings: &mut Findings<'_>,
) -> Values {
    Reader { findings }.table(spec, document, 0, String::new())
}

struct Reader<'f, 's> {
    findings: &'f mut Findings<'s>,
}

impl Reader<'_, '_> {
    fn table(
        &mut self,
        spec: &'static Table,
        table: &DeTable<'_>,
        at: usize,
        path: String,
    ) -> Values {
        for (key, _) in table.iter() {
            if spec.option(key.get_ref()).is_none() {
                let noun = if path.is_empty() { "table" } else { "option" };
                let known = spec.options.iter().map(|option| option.name);
                let hint = match key.get_ref().to_ascii_lowercase().as_str() {
                    "ssl" | "https" if spec.option("tls").is_some() => {
                        "; did you mean `tls`, a table?".to_string()
                    }
                    key => hint(key, known),
                };
                let text = format!("unknown {noun} in this version{hint}");
                let option = join(&path, &shortened(key.get_ref()));
                self.findings.error(key.span().start, &option, text);
            }
        }
        self.options(spec, at, path, |name| table.get(name))
    }

    /// Reads every option of `spec`. `find` returns the value for a name.
    fn options<'t, 'i: 't>(
        &mut self,
        spec: &'static Table,
        at: usize,
        path: String,
        find: impl Fn(&str) -> Option<&'t Spanned<DeValue<'i>>>,
    ) -> Values {
        let mut entries = BTreeMap::new();
        for option in spec.options {
            let read = match find(option.name) {
                Some(value) => {
                    let start = value.span().start;
                    self.value(option, value, join(&path, option.name))
                        .map(|value| (start, true, value))
                }
                None if matches!(option.absent, Absent::Required) => {
                    let text = format!("missing; accepted: {}", option.kind.accepted());
                    self.findings.error(at, &join(&path, option.name), text);
                    None
                }
                None => None,
            };
            let entry = match (read, &option.absent) {
                (Some((at, given, value)), _) => Entry { at, given, value },
                (None, Absent::Default(usual)) => {
                    let value = self.default(option, *usual, join(&path, option.name));
                    Entry { at, given: false, value }
                }
                (None, Absent::Required | Absent::Means(_)) => continue,
            };
            entries.insert(option.name, entry);
        }
        Values { path, at, entries }
    }

    fn value(
        &mut self,
        option: &'static Opt,
        value: &Spanned<DeValue<'_>>,
        path: String,
    ) -> Option<Value> {
        let span = value.span();
        let wrong = match (&option.kind, value.get_ref()) {
            (Kind::Table(spec), DeValue::Table(table)) => {
                return Some(Value::Table(self.table(spec, table, span.start, path)));
            }
            (Kind::Tables(spec), DeValue::Array(array)) => {
                return Some(Value::Tables(self.tables(spec, None, array, &path)));
            }
            (Kind::Briefs(spec, brief), DeValue::Array(array)) => {
                return Some(Value::Tables(self.tables(spec, Some(brief), array, &path)));
            }
            (Kind::Texts(_), DeValue::Array(array)) => return self.texts(option, array, &path),
            (kind, scalar) => match read_scalar(kind, scalar) {
                Ok(value) => return Some(value),
                Err(wrong) => wrong,
            },
        };
        self.refuse(value, &path, &wrong, &option.kind.accepted());
        None
    }

    fn default(&mut self, option: &'static Opt, usual: Usual, path: String) -> Value {
        match (usual, option.kind) {
            (Usual::Table, Kind::Table(spec)) => {
                Value::Table(self.options(spec, 0, path, |_| None))
            }
            (_, Kind::Tables(_) | Kind::Briefs(..)) => Value::Tables(Vec::new()),
            (Usual::Flag(flag), _) => Value::Flag(flag),
            (Usual::Count(number) | Usual::Size(number), _) => Value::Number(number),
            (Usual::Fraction(number), _) => Value::Share(number),
            (Usual::Duration(time), _) => Value::Duration(time),
            (Usual::Word(value), _) => Value::Text(value.word().into()),
            (Usual::Text(text), _) => Value::Text(text.into()),
            (Usual::Texts(texts), _) => {
                Value::Texts(texts.iter().map(|it| it.to_string()).collect())
            }
            (Usual::Table, _) => unreachable!("a table is the default of tables only"),
        }
    }

    /// Reads a list of strings, or one string in place of the list.
    fn texts(
        &mut self,
        option: &'static Opt,
        array: &[Spanned<DeValue<'_>>],
        path: &str,
    ) -> Option<Value> {
        // Every one is read, so that every error is reported.
        let mut texts = Some(Vec::new());
        for element in array {
            match (read_scalar(&option.kind, element.get_ref()), &mut texts) {
                (Ok(Value::Texts(text)), Some(texts)) => texts.extend(text),
                (Ok(_), _) => {}
                (Err(wrong), _) => {
                    self.refuse(element, path, &wrong, &option.kind.accepted());
                    texts = None;
                }
            }
        }
        texts.map(Value::Texts)
    }

    /// Reports an error of `value`. `wrong` continues the sentence: "is too large".
    fn refuse(&mut self, value: &Spanned<DeValue<'_>>, path: &str, wrong: &str, accepted: &str) {
        // Quotes only values that fit on a line; a table or list may fill a page.
        let said = match value.get_ref() {
            DeValue::Table(_) => "a table",
            DeValue::Array(_) => "a list",
            _ => self.findings.source().get(value.span()).unwrap_or_default(),
        };
        let text = format!("{} {wrong}; accepted: {accepted}", shortened(said));
        self.findings.error(value.span().start, path, text);
    }

    fn tables(
        &mut self,
        spec: &'static Table,
        brief: Option<&str>,
        array: &[Spanned<DeValue<'_>>],
        path: &str,
    ) -> Vec<Values> {
        let mut tables = Vec::new();
        for (place, element) in array.iter().enumerate() {
            let at = element.span().start;
            let path = format!("{path}{}", label(element.get_ref(), place));
            match (element.get_ref(), brief) {
                (DeValue::Table(table), _) => tables.push(self.table(spec, table, at, path)),
                (DeValue::String(_), Some(brief)) => {
                    let find = |name: &str| (name == brief).then_some(element);
                    tables.push(self.options(spec, at, path, find));
                }
                (other, _) => {
                    let accepted = match brief {
                        Some(brief) => format!("a string (its `{brief}`) or a table"),
                        None => "a table".to_string(),
                    };
                    self.refuse(element, &path, type_of(other), &accepted);
                }
            }
        }
        tables
    }
}

/// A label for an element of a list: its name, its address or its index.
fn label(element: &DeValue<'_>, place: usize) -> String {
    let text = |key: &str| element.as_table()?.get(key)?.get_ref().as_str();
    match text("name") {
        Some(name) => format!(".{}", shortened(name)),
        None => match text("zone")
            .or(text("listen"))
            .or(text("vip"))
            .or(text("backend"))
            .or(text("address"))
            .or(text("interface"))
            .or(text("chain"))
            .or(element.as_str())
        {
            Some(address) => format!("[{}]", shortened(address)),
            None => format!("[#{}]", place + 1),
        },
    }
}

/// Shortens a text to one line of at most 60 characters, without control characters.
fn shortened(text: &str) -> String {
    const CHARS_MAX: usize = 60;
    let mut short: String =
        text.chars().take(CHARS_MAX).map(|c| if c.is_control() { '\u{fffd}' } else { c }).collect();
    if text.chars().count() > CHARS_MAX {
        short.push_str("...");
    }
    short
}

fn type_of(value: &DeValue<'_>) -> &'static str {
    match value {
        DeValue::String(_) => "is a string",
        DeValue::Integer(_) => "is a whole number",
        DeValue::Float(_) => "is a number with a fraction",
        DeValue::Boolean(_) => "is a boolean",
        DeValue::Datetime(_) => "is a date or time",
        DeValue::Array(_) | DeValue::Table(_) => "stands here",
    }
}

/// Reads a scalar. The error continues the sentence that begins with the value.
fn read_scalar(kind: &Kind, value: &DeValue<'_>) -> Result<Value, String> {
    match (kind, value) {
        (Kind::Flag, DeValue::Boolean(flag)) => Ok(Value::Flag(*flag)),
        (Kind::CountOr(_, _, words), DeValue::String(_)) => {
            read_scalar(&Kind::Choice(*words), value)
        }
        (Kind::Count(min, max) | Kind::CountOr(min, max, _), DeValue::Integer(number)) => {
            let count = i128::from_str_radix(number.as_str(), number.radix()).unwrap_or(i128::MAX);
            match u64::try_from(count) {
                Ok(count) if count > *max => Err("is too large".into()),
                Ok(count) if count >= *min => Ok(Value::Number(count)),
                Ok(_) => Err("is too small".into()),
                Err(_) if count < 0 => Err("is too small".into()),
                Err(_) => Err("is too large".into()),
            }
        }
        (Kind::Share, DeValue::Integer(_) | DeValue::Float(_)) => number(value)
            .filter(|share| (0.0..=1.0).contains(share))
            .map(Value::Share)
            .ok_or_else(|| "is not a share".into()),
        (Kind::Number(min, max), DeValue::Integer(_) | DeValue::Float(_)) => match number(value) {
            Some(number) if number < *min => Err("is too small".into()),
            Some(number) if number > *max => Err("is too large".into()),
            Some(number) if !number.is_nan() => Ok(Value::Share(number)),
            _ => Err("is no number".into()),
        },
        (Kind::Duration(min, max), DeValue::String(text)) => match read_duration(text) {
            None => Err("is not a duration".into()),
            Some(duration) if duration < *min => Err("is too short".into()),
            Some(duration) if duration > *max => Err("is too long".into()),
            Some(duration) => Ok(Value::Duration(duration)),
        },
        (Kind::Size(min, max), DeValue::String(text)) => match read_size(text) {
            None => Err("is not a size".into()),
            Some(size) if size < *min => Err("is too small".into()),
            Some(size) if size > *max => Err("is too large".into()),
            Some(size) => Ok(Value::Number(size)),
        },
        (Kind::Duration(..), DeValue::Integer(number)) => {
            Err(format!("has no unit: \"{number}s\" would be seconds"))
        }
        (Kind::Size(..), DeValue::Integer(number)) => {
            Err(format!("has no unit: \"{number}KiB\" would be kibibytes"))
        }
        (Kind::Choice(choices), DeValue::String(text)) => {
            let words = choices.words();
            let words = || words.iter().map(|(word, _)| *word);
            match known_elsewhere(text, words()).or_else(|| nearest(text, words())) {
                _ if words().any(|word| word == text) => Ok(Value::Text(text.to_string())),
                _ if text == "https" && words().any(|word| word == "http") => {
                    Err("is none of them (did you mean \"http\", and `tls`?)".into())
                }
                Some(near) => Err(format!("is none of them (did you mean \"{near}\"?)")),
                None => Err("is none of them".into()),
            }
        }
        (Kind::Text(form), DeValue::String(text)) if (form.fits)(text) => {
            Ok(Value::Text(text.to_string()))
        }
        (Kind::Texts(form), DeValue::String(text)) if (form.fits)(text) => {
            Ok(Value::Texts(vec![text.to_string()]))
        }
        (Kind::Text(form) | Kind::Texts(form), DeValue::String(text)) => {
            Err(format!("is not {}{}", form.noun, port_hint(text)))
        }
        (_, other) => Err(type_of(other).into()),
    }
}

/// Words of HAProxy, nginx, LVS and Envoy, each with the words of equipoise for it, best first.
const ELSEWHERE: &[(&str, &[&str])] = &[
    ("leastconn", &["least-connection"]),
    ("least-conn", &["least-connection"]),
    ("least-request", &["least-connection"]),
    ("lc", &["least-connection"]),
    ("wlc", &["weighted-least-connection"]),
    ("roundrobin", &["round-robin"]),
    ("static-rr", &["weighted-round-robin"]),
    ("rr", &["round-robin"]),
    ("wrr", &["weighted-round-robin"]),
    ("random", &["weighted-random"]),
    ("random(2)", &["power-of-two"]),
    ("p2c", &["power-of-two"]),
    ("ewma", &["least-time"]),
    ("peak-ewma", &["least-time"]),
    ("source", &["source-hash", "maglev"]),
    ("ip-hash", &["source-hash", "maglev"]),
    ("sh", &["source-hash", "maglev"]),
    ("hash", &["source-hash", "maglev"]),
    ("mh", &["maglev"]),
    ("ring-hash", &["maglev"]),
    ("consistent", &["maglev"]),
    ("consistent-hash", &["maglev"]),
    ("first", &["round-robin"]),
];

/// The known word for another load balancer's `word`.
fn known_elsewhere(word: &str, known: impl Iterator<Item = &'static str>) -> Option<&'static str> {
    let word = word.to_ascii_lowercase().replace('_', "-");
    let (_, ours) = ELSEWHERE.iter().find(|(theirs, _)| *theirs == word)?;
    let known: Vec<_> = known.collect();
    ours.iter().copied().find(|ours| known.contains(ours))
}

/// A hint for an address with a port above 65535.
fn port_hint(text: &str) -> &'static str {
    let port = text.rsplit_once(':').map_or("", |(_, port)| port);
    let is_number = !port.is_empty() && port.bytes().all(|b| b.is_ascii_digit());
    if is_number && port.parse::<u16>().is_err() { " (ports end at 65535)" } else { "" }
}

fn number(value: &DeValue<'_>) -> Option<f64> {
    match value {
        DeValue::Integer(number) => number.as_str().parse().ok(),
        DeValue::Float(number) => number.as_str().parse().ok(),
        _ => None,
    }
}
