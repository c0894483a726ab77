//! A row of figures.

use std::fmt;

/// A figure or a word.
#[derive(Clone, Debug, PartialEq)]
pub enum Value {
    /// A figure, in the unit that the column's name says.
    Number(f64),
    /// The kind of case.
    Word(String),
}

/// The figures of one case, by column, in the order of the columns.
#[derive(Clone, Debug, Default)]
pub struct Row {
    columns: Vec<(String, Value)>,
}

impl Row {
    /// Without columns.
    pub fn new() -> Row {
        Row::default()
    }

    /// Sets a column; its place is where it was first set.
    pub fn set(&mut self, column: &str, value: Value) -> &mut Row {
        match self.columns.iter_mut().find(|(name, _)| name == column) {
            Some((_, there)) => *there = value,
            None => self.columns.push((column.to_string(), value)),
        }
        self
    }

    /// Sets a column to a figure.
    pub fn figure(&mut self, column: &str, figure: f64) -> &mut Row {
        self.set(column, Value::Number(figure))
    }

    /// A figure of the row.
    pub fn number(&self, column: &str) -> Option<f64> {
        match self.get(column)? {
            Value::Number(number) => Some(*number),
            Value::Word(_) => None,
        }
    }

    pub(crate) fn get(&self, column: &str) -> Option<&Value> {
        self.columns.iter().find(|(name, _)| name == column).map(|(_, value)| value)
    }

    /// Whether it has all columns of `other`, with the same values.
    pub(crate) fn has_all_of(&self, other: &Row) -> bool {
        other.columns.iter().all(|(name, value)| self.get(name) == Some(value))
    }

    pub(crate) fn names(&self) -> impl Iterator<Item = &str> {
        self.columns.iter().map(|(name, _)| name.as_str())
    }
}

/// Four significant digits, and whole numbers whole; what is no number is a dash.
impl fmt::Display for Value {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Value::Word(word) => f.write_str(word),
            Value::Number(number) if number.is_nan() => f.write_str("-"),
            Value::Number(number) if number.fract() == 0.0 || number.abs() >= 1e4 => {
                write!(f, "{number:.0}")
            }
            Value::Number(number) => {
                let before_point = number.abs().log10().floor().max(-6.0) as i32 + 1;
                write!(f, "{number:.*}", (4 - before_point).max(0) as usize)
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn figures_have_four_digits() {
        let shown = [0.012_345_6, 1.234_56, 123.456, 123_456.7, 42.0, f64::INFINITY, f64::NAN];
        let texts = shown.map(|number| Value::Number(number).to_string());
        assert_eq!(texts, ["0.01235", "1.235", "123.5", "123457", "42", "inf", "-"]);
    }
}
