//! Aligned columns for a terminal.

use std::fmt::Write;

/// How a column lines up.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Align {
    Left,
    Right,
}

/// How a cell stands out, where the terminal can show it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) enum Tone {
    #[default]
    Plain,
    Good,
    Warning,
    Bad,
}

impl Tone {
    fn codes(self) -> Option<&'static str> {
        match self {
            Tone::Plain => None,
            Tone::Good => Some("\x1b[32m"),
            Tone::Warning => Some("\x1b[33m"),
            Tone::Bad => Some("\x1b[31m"),
        }
    }
}

/// One cell.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Cell {
    text: String,
    tone: Tone,
}

impl Cell {
    pub(crate) fn toned(text: impl Into<String>, tone: Tone) -> Cell {
        Cell { text: text.into(), tone }
    }
}

impl<T: ToString> From<T> for Cell {
    fn from(value: T) -> Cell {
        Cell { text: value.to_string(), tone: Tone::Plain }
    }
}

/// Rows under one heading.
#[derive(Debug)]
pub(crate) struct Table {
    columns: Vec<(&'static str, Align)>,
    rows: Vec<Vec<Cell>>,
}

impl Table {
    pub(crate) fn new(columns: &[(&'static str, Align)]) -> Table {
        Table { columns: columns.to_vec(), rows: Vec::new() }
    }

    /// Adds a row: one cell per column.
    pub(crate) fn row(&mut self, cells: Vec<Cell>) {
        debug_assert_eq!(cells.len(), self.columns.len());
        self.rows.push(cells);
    }

    /// Writes headings and rows, two spaces between columns and none at the end of a line.
    pub(crate) fn render(&self, colour: bool, out: &mut String) {
        let widths: Vec<usize> = (0..self.columns.len()).map(|index| self.width(index)).collect();
        let headings = self.columns.iter().map(|(heading, _)| Cell::from(*heading)).collect();
        for row in std::iter::once(&headings).chain(&self.rows) {
            let mut line = String::new();
            for ((cell, (_, align)), width) in row.iter().zip(&self.columns).zip(&widths) {
                let padding = " ".repeat(width - cell.text.chars().count());
                let (start, end) = match cell.tone.codes().filter(|_| colour) {
                    Some(codes) => (codes, "\x1b[0m"),
                    None => ("", ""),
                };
                let text = &cell.text;
                let _ = match align {
                    Align::Left => write!(line, "{start}{text}{end}{padding}  "),
                    Align::Right => write!(line, "{padding}{start}{text}{end}  "),
                };
            }
            out.push_str(line.trim_end());
            out.push('\n');
        }
    }

    fn width(&self, column: usize) -> usize {
        let cells = self.rows.iter().map(|row| row[column].text.chars().count());
        cells.chain([self.columns[column].0.chars().count()]).max().unwrap_or(0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn table() -> Table {
        let mut table = Table::new(&[("NAME", Align::Left), ("COUNT", Align::Right)]);
        table.row(vec!["a-long-name".into(), 7.into()]);
        table.row(vec![Cell::toned("b", Tone::Bad), 1234567.into()]);
        table
    }

    #[test]
    fn columns_line_up_and_lines_end_without_spaces() {
        let mut out = String::new();
        table().render(false, &mut out);
        assert_eq!(
            out,
            "NAME           COUNT\n\
             a-long-name        7\n\
             b            1234567\n"
        );
    }

    #[test]
    fn colour_does_not_shift_columns() {
        let (mut plain, mut coloured) = (String::new(), String::new());
        table().render(false, &mut plain);
        table().render(true, &mut coloured);
        assert_eq!(coloured.replace("\x1b[31m", "").replace("\x1b[0m", ""), plain);
        assert!(coloured.contains("\x1b[31mb\x1b[0m"));
    }
}
