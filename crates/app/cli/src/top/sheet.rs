//! A table of a level: columns, rows, their order, and the columns that fit.

use std::cmp::Ordering;

use ratatui_core::text::Span;

use super::action::Target;
use crate::table::{Align, Tone};

/// Space between two columns.
pub(super) const GAP: usize = 2;

/// Narrowest last column, which explains the state.
const LAST_MIN: usize = 16;

/// A column.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Column {
    pub(super) heading: &'static str,
    pub(super) align: Align,
    /// Columns with a higher number are left out earlier in a narrow terminal; 0: never.
    fold: u8,
}

/// A column of text.
pub(super) const fn left(heading: &'static str, fold: u8) -> Column {
    Column { heading, align: Align::Left, fold }
}

/// A column of figures.
pub(super) const fn right(heading: &'static str, fold: u8) -> Column {
    Column { heading, align: Align::Right, fold }
}

/// A value in a row.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Value {
    pub(super) text: String,
    pub(super) tone: Tone,
    /// The figure by which rows are ordered; `None`: by text.
    figure: Option<f64>,
}

impl Value {
    pub(super) fn text(text: impl Into<String>) -> Value {
        Value { text: text.into(), tone: Tone::Plain, figure: None }
    }

    pub(super) fn figure(figure: f64, text: impl Into<String>) -> Value {
        Value { text: text.into(), tone: Tone::Plain, figure: Some(figure) }
    }

    /// A figure that may be missing.
    pub(super) fn maybe(figure: Option<f64>, text: impl FnOnce(f64) -> String) -> Value {
        match figure {
            Some(figure) => Value::figure(figure, text(figure)),
            None => Value::figure(f64::NEG_INFINITY, "-"),
        }
    }

    /// A count.
    pub(super) fn count(count: u64) -> Value {
        Value::figure(count as f64, count.to_string())
    }

    pub(super) fn toned(self, tone: Tone) -> Value {
        Value { tone, ..self }
    }

    pub(super) fn bad_if(self, is_bad: bool) -> Value {
        if is_bad { self.toned(Tone::Bad) } else { self }
    }

    fn compare(&self, other: &Value) -> Ordering {
        match (self.figure, other.figure) {
            // The largest first.
            (Some(a), Some(b)) => b.total_cmp(&a),
            _ => by_name(&self.text, &other.text),
        }
    }
}

/// Compares names: numbers in them by their value, so that `b2` is before `b10`.
pub(super) fn by_name(a: &str, b: &str) -> Ordering {
    let (mut a, mut b) = (a.as_bytes(), b.as_bytes());
    loop {
        let (Some(x), Some(y)) = (a.first(), b.first()) else { return a.len().cmp(&b.len()) };
        if x.is_ascii_digit() && y.is_ascii_digit() {
            let (one, other) = (number(&mut a), number(&mut b));
            // Without leading zeros the longer number is the larger one.
            let order = one.len().cmp(&other.len()).then_with(|| one.cmp(other));
            if order.is_ne() {
                return order;
            }
            continue;
        }
        if x != y {
            return x.cmp(y);
        }
        (a, b) = (&a[1..], &b[1..]);
    }
}

/// Takes the digits at the start; returns them without leading zeros.
fn number<'t>(text: &mut &'t [u8]) -> &'t [u8] {
    let end = text.iter().position(|byte| !byte.is_ascii_digit()).unwrap_or(text.len());
    let (digits, rest) = text.split_at(end);
    *text = rest;
    let zeros = digits.iter().take_while(|digit| **digit == b'0').count();
    &digits[zeros..]
}

/// A row.
#[derive(Clone, Debug)]
pub(super) struct Row {
    /// Name, unique in the table.
    pub(super) id: String,
    /// Values, one for each column.
    pub(super) values: Vec<Value>,
    /// The lower, the worse.
    pub(super) trouble: u8,
    /// The object that actions change.
    pub(super) target: Option<Target>,
    /// A question about it for "Why?".
    pub(super) question: String,
}

impl Row {
    fn contains(&self, text: &str) -> bool {
        self.values.iter().any(|value| value.text.to_lowercase().contains(text))
    }
}

/// Order of the rows.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Order {
    /// The column; `None`: trouble first.
    pub(super) column: Option<usize>,
    pub(super) is_reversed: bool,
}

/// A table of a level.
#[derive(Clone, Debug, Default)]
pub(super) struct Sheet {
    pub(super) columns: Vec<Column>,
    pub(super) rows: Vec<Row>,
    /// Widths of the columns.
    widths: Vec<usize>,
}

impl Sheet {
    pub(super) fn new(columns: &[Column]) -> Sheet {
        Sheet { columns: columns.to_vec(), rows: Vec::new(), widths: Vec::new() }
    }

    pub(super) fn add(&mut self, row: Row) {
        debug_assert_eq!(row.values.len(), self.columns.len());
        self.rows.push(row);
    }

    /// Keeps the rows that contain `filter`, and orders them.
    pub(super) fn arrange(mut self, filter: &str, order: Order) -> Sheet {
        let filter = filter.trim().to_lowercase();
        if !filter.is_empty() {
            self.rows.retain(|row| row.contains(&filter));
        }
        // A stable sort: rows that are equal stay in configured order.
        match order.column {
            None => self.rows.sort_by_key(|row| row.trouble),
            Some(at) => self.rows.sort_by(|a, b| match (a.values.get(at), b.values.get(at)) {
                (Some(a), Some(b)) => a.compare(b),
                _ => Ordering::Equal,
            }),
        }
        if order.is_reversed {
            self.rows.reverse();
        }
        self.widths = self.columns.iter().map(|column| Span::raw(column.heading).width()).collect();
        for row in &self.rows {
            for (width, value) in self.widths.iter_mut().zip(&row.values) {
                *width = (*width).max(Span::raw(&*value.text).width());
            }
        }
        self
    }

    /// The columns that fit into `room` characters, and their widths. The last column gets the
    /// rest.
    pub(super) fn shown(&self, room: usize) -> Vec<(usize, usize)> {
        let Some(last) = self.columns.len().checked_sub(1) else { return Vec::new() };
        let mut shown: Vec<(usize, usize)> = self.widths.iter().copied().enumerate().collect();
        let needed = |shown: &[(usize, usize)]| {
            let width = |&(at, width): &(usize, usize)| {
                GAP + if at == last { width.min(LAST_MIN) } else { width }
            };
            shown.iter().map(width).sum::<usize>().saturating_sub(GAP)
        };
        while needed(&shown) > room {
            let fold = |&(at, _): &(usize, usize)| self.columns[at].fold;
            let Some(most) = shown.iter().map(fold).max().filter(|fold| *fold > 0) else { break };
            shown.retain(|column| fold(column) != most);
        }
        let others = shown.iter().filter(|(at, _)| *at != last).map(|(_, width)| width + GAP);
        let rest = room.saturating_sub(others.sum());
        if let Some((_, width)) = shown.iter_mut().find(|(at, _)| *at == last) {
            *width = rest;
        }
        shown
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn sheet() -> Sheet {
        let mut sheet =
            Sheet::new(&[left("NAME", 0), right("RATE", 0), left("ADDRESS", 1), left("WHY", 0)]);
        for (name, rate, trouble) in [("b10", 1.0, 5), ("b9", 30.0, 5), ("b2", 2.0, 0)] {
            sheet.add(Row {
                id: name.into(),
                values: vec![
                    Value::text(name),
                    Value::figure(rate, rate.to_string()),
                    Value::text("10.0.0.1:80"),
                    Value::text(""),
                ],
                trouble,
                target: None,
                question: String::new(),
            });
        }
        sheet
    }

    fn ids(sheet: &Sheet) -> Vec<&str> {
        sheet.rows.iter().map(|row| &*row.id).collect()
    }

    #[test]
    fn trouble_is_first_and_the_rest_stays_in_its_order() {
        assert_eq!(ids(&sheet().arrange("", Order::default())), ["b2", "b10", "b9"]);
    }

    #[test]
    fn a_column_of_figures_has_the_largest_first_and_one_of_names_the_smallest_number() {
        let by = |column, is_reversed| Order { column: Some(column), is_reversed };
        assert_eq!(ids(&sheet().arrange("", by(1, false))), ["b9", "b2", "b10"]);
        assert_eq!(ids(&sheet().arrange("", by(0, false))), ["b2", "b9", "b10"]);
        assert_eq!(ids(&sheet().arrange("", by(0, true))), ["b10", "b9", "b2"]);
        assert_eq!(by_name("a007", "a7"), Ordering::Equal);
        assert_eq!(by_name("a", "a1"), Ordering::Less);
    }

    #[test]
    fn a_filter_looks_at_every_value() {
        assert_eq!(ids(&sheet().arrange(" B1", Order::default())), ["b10"]);
        assert_eq!(ids(&sheet().arrange("0.0.1:", Order::default())).len(), 3);
    }

    #[test]
    fn columns_fold_when_the_terminal_is_narrow() {
        let sheet = sheet().arrange("", Order::default());
        // NAME RATE ADDRESS WHY: 4 + 4 + 11 + 3, and three gaps.
        assert_eq!(sheet.shown(40), [(0, 4), (1, 4), (2, 11), (3, 15)]);
        assert_eq!(sheet.shown(27), [(0, 4), (1, 4), (3, 15)]);
        assert_eq!(sheet.shown(5), [(0, 4), (1, 4), (3, 0)], "the others stay");
    }
}
