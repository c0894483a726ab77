//! The result for each line of a file that is translated.

use std::collections::{BTreeMap, BTreeSet};

/// The result for one line.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Verdict {
    /// It has no counterpart and needs none.
    NeedsNothing,
    /// The translation does the same.
    Carried,
    /// The translation does something else, in the stated way.
    Changes(String),
    /// The translation does not do it. The text states the nearest way.
    Lost(String),
}

/// A line with its result.
#[derive(Clone, Debug)]
pub struct Line {
    /// Number, from 1.
    pub number: usize,
    /// The line without white space around it.
    pub text: String,
    /// The result.
    pub verdict: Verdict,
}

/// The lines of a file with their results.
#[derive(Clone, Debug, Default)]
pub struct Report {
    lines: BTreeMap<usize, Line>,
    /// Lines that protect the backends in the old proxy and not in the translation.
    alarms: BTreeSet<usize>,
}

impl Report {
    /// Notes a directive of the file. Without a result it needs nothing.
    pub(crate) fn open(&mut self, number: usize, text: &str) {
        self.lines.entry(number).or_insert_with(|| Line {
            number,
            text: plain(text.trim()),
            verdict: Verdict::NeedsNothing,
        });
    }

    /// Notes a result. Of several for one line the worst stays, with all reasons.
    fn note(&mut self, number: usize, verdict: Verdict) {
        let Some(line) = self.lines.get_mut(&number) else { return };
        let (old, new) = match (&line.verdict, &verdict) {
            (Verdict::Lost(old), Verdict::Lost(new) | Verdict::Changes(new))
            | (Verdict::Changes(old), Verdict::Lost(new) | Verdict::Changes(new)) => (old, new),
            _ => {
                line.verdict = verdict.max(line.verdict.clone());
                return;
            }
        };
        if old.contains(new.as_str()) {
            return;
        }
        let both = format!("{old}; {new}");
        let is_lost = [&line.verdict, &verdict].iter().any(|it| matches!(it, Verdict::Lost(_)));
        line.verdict = if is_lost { Verdict::Lost(both) } else { Verdict::Changes(both) };
    }

    /// True if the line has no result yet.
    pub(crate) fn is_open(&self, number: usize) -> bool {
        self.lines.get(&number).is_some_and(|it| it.verdict == Verdict::NeedsNothing)
    }

    pub(crate) fn carried(&mut self, number: usize) {
        self.note(number, Verdict::Carried);
    }

    pub(crate) fn changes(&mut self, number: usize, how: impl Into<String>) {
        self.note(number, Verdict::Changes(plain(&how.into())));
    }

    pub(crate) fn lost(&mut self, number: usize, nearest: impl Into<String>) {
        self.note(number, Verdict::Lost(plain(&nearest.into())));
    }

    /// Puts a line before all others of [`Report::worst`].
    pub(crate) fn alarm(&mut self, number: usize) {
        self.alarms.insert(number);
    }

    /// The lines in the order of the file.
    pub fn lines(&self) -> impl Iterator<Item = &Line> {
        self.lines.values()
    }

    /// The lines that are lost or change behaviour: first those about passwords, then the lost
    /// ones.
    pub fn worst(&self) -> Vec<&Line> {
        let lost = self.lines().filter(|it| matches!(it.verdict, Verdict::Lost(_)));
        let changed = self.lines().filter(|it| matches!(it.verdict, Verdict::Changes(_)));
        let mut all: Vec<&Line> = lost.chain(changed).collect();
        all.sort_by_key(|it| !self.alarms.contains(&it.number));
        all
    }

    /// One sentence with the number of lines of each result.
    pub fn summary(&self) -> String {
        let count = |is: fn(&Verdict) -> bool| self.lines().filter(|it| is(&it.verdict)).count();
        let carried = count(|it| matches!(it, Verdict::Carried));
        let nothing = count(|it| matches!(it, Verdict::NeedsNothing));
        let changed = count(|it| matches!(it, Verdict::Changes(_)));
        let lost = count(|it| matches!(it, Verdict::Lost(_)));
        let all = self.lines.len();
        format!(
            "{carried} of {all} lines carried, {nothing} need nothing, {changed} change behaviour, {lost} not carried"
        )
    }
}

/// Text for one line of a comment, without control characters.
pub(crate) fn plain(text: &str) -> String {
    text.chars().map(|it| if it.is_control() { ' ' } else { it }).collect()
}
