//! Problems of a configuration file, with their positions.

use std::collections::BTreeSet;
use std::fmt;
use std::ops::Bound::{Included, Unbounded};
use std::path::{Path, PathBuf};

/// Severity of a [`Problem`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Severity {
    /// The file cannot be used.
    Error,
    /// The file can be used, but likely does not do what its author meant.
    Warning,
}

/// One problem of a configuration file.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Problem {
    /// Error or warning.
    pub severity: Severity,
    /// Line and column (in characters), counted from 1. `None` if the problem is the file itself.
    pub position: Option<(usize, usize)>,
    /// Path of the option, such as `pool.web.health.interval`; empty if there is none.
    pub option: String,
    /// The problem, the accepted values, and the remedy.
    pub text: String,
}

/// All problems of a file that cannot be used.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub struct ConfigErrors {
    /// The file.
    pub file: PathBuf,
    /// At least one error, and warnings, in the order of lines.
    pub problems: Vec<Problem>,
}

impl ConfigErrors {
    /// A line for each problem, as [`Problem::in_file`].
    pub fn lines(&self) -> Vec<String> {
        self.problems.iter().map(|problem| problem.in_file(&self.file)).collect()
    }
}

impl fmt::Display for ConfigErrors {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (place, problem) in self.problems.iter().enumerate() {
            let line_break = if place == 0 { "" } else { "\n" };
            write!(f, "{line_break}{}", problem.in_file(&self.file))?;
        }
        Ok(())
    }
}

impl Problem {
    /// A line in the format that editors parse: `FILE:LINE:COLUMN: OPTION: TEXT`.
    pub fn in_file(&self, file: &Path) -> String {
        let mut line = file.display().to_string();
        if let Some((row, column)) = self.position {
            line.push_str(&format!(":{row}:{column}"));
        }
        if self.severity == Severity::Warning {
            line.push_str(": warning");
        }
        if !self.option.is_empty() {
            line.push_str(": ");
            line.push_str(&self.option);
        }
        line + ": " + &self.text
    }
}

/// Collects problems while a file is read.
pub(super) struct Findings<'s> {
    source: &'s str,
    /// Offset of the start of each line, in bytes.
    lines: Vec<usize>,
    found: Vec<(usize, Problem)>,
    /// Options with errors.
    wrong: BTreeSet<String>,
}

impl<'s> Findings<'s> {
    pub(super) fn new(source: &'s str) -> Findings<'s> {
        let after = source.bytes().enumerate().filter(|(_, byte)| *byte == b'\n');
        let lines = std::iter::once(0).chain(after.map(|(at, _)| at + 1)).collect();
        Findings { source, lines, found: Vec::new(), wrong: BTreeSet::new() }
    }

    /// The file's text.
    pub(super) fn source(&self) -> &'s str {
        self.source
    }

    /// Adds an error at byte `at` of the file.
    pub(super) fn error(&mut self, at: usize, option: &str, text: String) {
        self.push(Severity::Error, at, option, text);
    }

    /// Adds a warning at byte `at` of the file.
    pub(super) fn warning(&mut self, at: usize, option: &str, text: String) {
        self.push(Severity::Warning, at, option, text);
    }

    fn push(&mut self, severity: Severity, at: usize, option: &str, text: String) {
        let position = Some(self.position(at));
        if severity == Severity::Error {
            self.wrong.insert(option.to_string());
        }
        self.found.push((at, Problem { severity, position, option: option.to_string(), text }));
    }

    /// Whether an error was found.
    pub(super) fn has_errors(&self) -> bool {
        !self.wrong.is_empty()
    }

    /// Whether this option itself has an error.
    pub(super) fn has_error_on(&self, option: &str) -> bool {
        self.wrong.contains(option)
    }

    /// Whether this option or one inside it has an error.
    pub(super) fn has_error_below(&self, option: &str) -> bool {
        self.has_error_on(option)
            || ['.', '['].into_iter().any(|next| {
                let start = format!("{option}{next}");
                let first = self.wrong.range::<str, _>((Included(&*start), Unbounded)).next();
                first.is_some_and(|found| found.starts_with(&start))
            })
    }

    /// The line of byte `at`, counted from 1.
    pub(super) fn line(&self, at: usize) -> usize {
        self.position(at).0
    }

    /// Line and column of byte `at`, counted from 1.
    fn position(&self, at: usize) -> (usize, usize) {
        let at = self.source.floor_char_boundary(at);
        let line = self.lines.partition_point(|start| *start <= at);
        let start = self.lines[line - 1];
        (line, self.source[start..at].chars().count() + 1)
    }

    /// The problems in the order of the file.
    pub(super) fn into_problems(mut self) -> Vec<Problem> {
        self.found.sort_by_key(|(at, _)| *at);
        self.found.into_iter().map(|(_, problem)| problem).collect()
    }
}

/// The known word nearest to `word`, if one is near.
pub fn nearest<'k>(word: &str, known: impl IntoIterator<Item = &'k str>) -> Option<&'k str> {
    let distance = |candidate: &str| {
        // A prefix is an abbreviation, not a word with many missing letters.
        if word.len() >= 3 && candidate.starts_with(word) {
            1
        } else {
            strsim::damerau_levenshtein(&word.replace('_', "-"), candidate)
        }
    };
    known
        .into_iter()
        .map(|candidate| (distance(candidate), candidate))
        .filter(|(distance, candidate)| *distance <= (candidate.len() / 3).max(1))
        .min_by_key(|(distance, _)| *distance)
        .map(|(_, candidate)| candidate)
}

/// Largest number of known words to compare.
const LOOKED_AT_MAX: usize = 1000;
/// Largest number of known words in a message.
const LISTED_MAX: usize = 20;

/// `; did you mean ...?` if a known word is near, otherwise `; known: ...`.
pub(super) fn hint<'k>(word: &str, known: impl Iterator<Item = &'k str> + Clone) -> String {
    if let Some(near) = nearest(word, known.clone().take(LOOKED_AT_MAX)) {
        return format!("; did you mean `{near}`?");
    }
    let listed = known.clone().take(LISTED_MAX).collect::<Vec<_>>().join(", ");
    let others = known.skip(LISTED_MAX).count();
    let others = if others > 0 { format!(" and {others} more") } else { String::new() };
    format!("; known: {listed}{others}")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn positions_count_lines_and_characters_from_one() {
        let source = "a\nbé = 1\n";
        let findings = Findings::new(source);
        assert_eq!(findings.position(0), (1, 1));
        assert_eq!(findings.position(1), (1, 2));
        assert_eq!(findings.position(2), (2, 1));
        assert_eq!(findings.position(4), (2, 2), "in the middle of a character");
        assert_eq!(findings.position(source.find('=').unwrap()), (2, 4));
        assert_eq!(findings.position(source.len()), (3, 1));
    }

    #[test]
    fn an_error_is_below_the_tables_that_hold_it_and_no_others() {
        let mut findings = Findings::new("");
        findings.error(0, "pool.web-1.backends[a].weight", String::new());
        findings.warning(0, "pool.web", String::new());
        for (option, is_below) in [
            ("pool", true),
            ("pool.web-1", true),
            ("pool.web-1.backends", true),
            ("pool.web-1.backends[a].weight", true),
            ("pool.web", false),
            ("pool.web-1.back", false),
            ("session", false),
        ] {
            assert_eq!(findings.has_error_below(option), is_below, "{option}");
        }
    }

    #[test]
    fn only_a_near_word_is_proposed() {
        let known = ["scheduler", "send-proxy", "log", "name"];
        for (word, near) in [
            ("schedular", Some("scheduler")),
            ("sched", Some("scheduler")),
            ("send_proxy", Some("send-proxy")),
            ("nmae", Some("name")),
            ("load", None),
            ("x", None),
        ] {
            assert_eq!(nearest(word, known), near, "{word}");
        }
    }
}
