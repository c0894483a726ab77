//! Words and sections of a file of HAProxy.

use crate::ImportError;
use crate::report::Report;

/// One line: a keyword and its words.
#[derive(Clone, Debug)]
pub(super) struct Line {
    pub(super) number: usize,
    pub(super) words: Vec<String>,
}

impl Line {
    /// The word at `at`, or an empty one.
    pub(super) fn word(&self, at: usize) -> &str {
        self.words.get(at).map_or("", String::as_str)
    }

    /// The words from `at` on.
    pub(super) fn from(&self, at: usize) -> &[String] {
        self.words.get(at..).unwrap_or_default()
    }
}

/// A section: its keyword, its name and its lines.
#[derive(Clone, Debug)]
pub(super) struct Section {
    pub(super) kind: String,
    pub(super) name: String,
    /// The `defaults` that it names.
    pub(super) from: Option<String>,
    pub(super) lines: Vec<Line>,
}

const SECTIONS: &[&str] = &[
    "global",
    "defaults",
    "frontend",
    "backend",
    "listen",
    "resolvers",
    "userlist",
    "peers",
    "mailers",
    "program",
    "cache",
    "http-errors",
    "ring",
    "log-forward",
    "fcgi-app",
    "crt-store",
    "traces",
    "log-profile",
];

/// The sections of a file. Every line is noted in the report.
pub(super) fn sections(text: &str, report: &mut Report) -> Result<Vec<Section>, ImportError> {
    let mut all: Vec<Section> = Vec::new();
    for (at, line) in text.lines().enumerate() {
        let number = at + 1;
        let syntax = |problem: String| ImportError::Syntax { line: number, problem };
        let words = words(line).map_err(syntax)?;
        let Some(first) = words.first().cloned() else { continue };
        report.open(number, line);
        if SECTIONS.contains(&first.as_str()) {
            let name = words.get(1).cloned().unwrap_or_default();
            let named = words.windows(2).find(|it| it[0] == "from").map(|it| it[1].clone());
            all.push(Section { kind: first, name, from: named, lines: Vec::new() });
            continue;
        }
        let Some(section) = all.last_mut() else {
            return Err(syntax(format!("{first:?} stands before the first section")));
        };
        section.lines.push(Line { number, words });
    }
    Ok(all)
}

/// The words of a line, without its comment.
fn words(line: &str) -> Result<Vec<String>, String> {
    let (mut all, mut word, mut is_open) = (Vec::new(), String::new(), false);
    let mut quote = None;
    let mut rest = line.chars();
    while let Some(it) = rest.next() {
        match (quote, it) {
            (None, '#') => break,
            (None, '"' | '\'') => (quote, is_open) = (Some(it), true),
            (Some(open), _) if open == it => quote = None,
            (None | Some('"'), '\\') => {
                let Some(escaped) = rest.next() else {
                    return Err("it ends with a backslash; join it with the next line".to_string());
                };
                // Before other characters the backslash stays: it belongs to a regular expression.
                if !" #\\\"'".contains(escaped) {
                    word.push('\\');
                }
                word.push(escaped);
                is_open = true;
            }
            (None, it) if it.is_whitespace() => {
                if is_open {
                    all.push(std::mem::take(&mut word));
                    is_open = false;
                }
            }
            (_, it) => {
                word.push(it);
                is_open = true;
            }
        }
    }
    if quote.is_some() {
        return Err("a quotation mark is not closed".to_string());
    }
    if is_open {
        all.push(word);
    }
    Ok(all)
}

/// Milliseconds of a time such as `5s`, `100` (milliseconds) or `1m`.
pub(super) fn milliseconds(text: &str) -> Option<u64> {
    let end = text.find(|it: char| !it.is_ascii_digit()).unwrap_or(text.len());
    let number: u64 = text[..end].parse().ok()?;
    let unit = match &text[end..] {
        "" | "ms" => 1,
        "s" => 1000,
        "m" => 60_000,
        "h" => 3_600_000,
        "d" => 86_400_000,
        "us" => return Some(number.div_ceil(1000)),
        _ => return None,
    };
    number.checked_mul(unit)
}
