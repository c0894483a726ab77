//! What is wrong with a configuration file, and where.

use std::fmt;
use std::path::{Path, PathBuf};

/// How bad a [`Problem`] is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Severity {
    /// The file cannot be used.
    Error,
    /// The file can be used, and likely does not do what its writer meant.
    Warning,
}

/// One thing that is wrong.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Problem {
    /// Whether the file can be used nevertheless.
    pub severity: Severity,
    /// Line and column (in characters), counted from 1; `None` when it is the file that is wrong.
    pub position: Option<(usize, usize)>,
    /// The option, such as `pool.web.health.interval`; empty where there is none.
    pub option: String,
    /// What is wrong, what is accepted, what to do.
    pub text: String,
}

/// Everything that is wrong with a file that cannot be used.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub struct ConfigErrors {
    /// The file.
    pub file: PathBuf,
    /// Errors, at least one, and warnings, in the order of their lines.
    pub problems: Vec<Problem>,
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
    /// The line that editors understand: `FILE:LINE:COLUMN: OPTION: TEXT`.
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
    found: Vec<(usize, Problem)>,
}

impl<'s> Findings<'s> {
    pub(super) fn new(source: &'s str) -> Findings<'s> {
        Findings { source, found: Vec::new() }
    }

    /// The file's text.
    pub(super) fn source(&self) -> &'s str {
        self.source
    }

    /// An error at byte `at` of the file.
    pub(super) fn error(&mut self, at: usize, option: &str, text: String) {
        self.push(Severity::Error, at, option, text);
    }

    /// A warning at byte `at` of the file.
    pub(super) fn warning(&mut self, at: usize, option: &str, text: String) {
        self.push(Severity::Warning, at, option, text);
    }

    fn push(&mut self, severity: Severity, at: usize, option: &str, text: String) {
        let position = Some(position(self.source, at));
        self.found.push((at, Problem { severity, position, option: option.to_string(), text }));
    }

    /// Whether the file cannot be used.
    pub(super) fn has_errors(&self) -> bool {
        self.errors().next().is_some()
    }

    /// Whether there is an error about this very option.
    pub(super) fn has_error_on(&self, option: &str) -> bool {
        self.errors().any(|problem| problem.option == option)
    }

    /// Whether there is an error about this option or what it holds.
    pub(super) fn has_error_below(&self, option: &str) -> bool {
        self.errors().any(|problem| {
            let rest = problem.option.strip_prefix(option);
            rest.is_some_and(|rest| rest.is_empty() || rest.starts_with(['.', '[']))
        })
    }

    fn errors(&self) -> impl Iterator<Item = &Problem> {
        let problems = self.found.iter().map(|(_, problem)| problem);
        problems.filter(|problem| problem.severity == Severity::Error)
    }

    /// The line of byte `at`, counted from 1.
    pub(super) fn line(&self, at: usize) -> usize {
        position(self.source, at).0
    }

    /// The problems in the order of the file.
    pub(super) fn into_problems(mut self) -> Vec<Problem> {
        self.found.sort_by_key(|(at, _)| *at);
        self.found.into_iter().map(|(_, problem)| problem).collect()
    }
}

fn position(source: &str, at: usize) -> (usize, usize) {
    let before = &source[..source.floor_char_boundary(at)];
    let line_start = before.rfind('\n').map_or(0, |newline| newline + 1);
    (before.matches('\n').count() + 1, before[line_start..].chars().count() + 1)
}

/// The known word that was likely meant by `word`.
pub(super) fn nearest<'k>(word: &str, known: impl IntoIterator<Item = &'k str>) -> Option<&'k str> {
    let distance = |candidate: &str| {
        // The beginning of a longer word is an abbreviation rather than many missing letters.
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

/// `; did you mean ...?` where there is a near one, otherwise `; known: ...`.
pub(super) fn hint<'k>(word: &str, known: impl Iterator<Item = &'k str> + Clone) -> String {
    match nearest(word, known.clone()) {
        Some(near) => format!("; did you mean `{near}`?"),
        None => format!("; known: {}", known.collect::<Vec<_>>().join(", ")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn positions_count_lines_and_characters_from_one() {
        let source = "a\nbé = 1\n";
        assert_eq!(position(source, 0), (1, 1));
        assert_eq!(position(source, 2), (2, 1));
        assert_eq!(position(source, source.find('=').unwrap()), (2, 4));
        assert_eq!(position(source, source.len()), (3, 1));
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
