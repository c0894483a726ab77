//! Tables with aligned columns for a terminal.

use std::fmt::Write;

use super::view::View;

/// Text between two columns.
const GAP: &str = "  ";

/// Alignment of a column.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Align {
    Left,
    Right,
}

/// Emphasis of a cell, if the terminal can show it.
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

/// A cell of a table.
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
    /// Headings of the columns that a narrow terminal leaves out, the least important first.
    folding: &'static [&'static str],
}

impl Table {
    pub(crate) fn new(columns: &[(&'static str, Align)]) -> Table {
        Table { columns: columns.to_vec(), rows: Vec::new(), folding: &[] }
    }

    /// Sets the columns that are left out if the terminal is too narrow, the first one first.
    pub(crate) fn folding(self, headings: &'static [&'static str]) -> Table {
        debug_assert!(headings.iter().all(|it| self.columns.iter().any(|(of, _)| of == it)));
        Table { folding: headings, ..self }
    }

    /// Adds a row with one cell for each column.
    pub(crate) fn row(&mut self, cells: Vec<Cell>) {
        debug_assert_eq!(cells.len(), self.columns.len());
        self.rows.push(cells);
    }

    /// Writes headings and rows, with two spaces between columns and none at the end of a line.
    pub(crate) fn render(&self, view: View, out: &mut String) {
        let widths = self.shown(view);
        let headings = self.columns.iter().map(|(heading, _)| Cell::from(*heading)).collect();
        for row in std::iter::once(&headings).chain(&self.rows) {
            let mut line = String::new();
            for ((cell, (_, align)), width) in row.iter().zip(&self.columns).zip(&widths) {
                let Some(width) = width else { continue };
                let padding = " ".repeat(width - cell.text.chars().count());
                let (start, end) = match cell.tone.codes().filter(|_| view.colour) {
                    Some(codes) => (codes, "\x1b[0m"),
                    None => ("", ""),
                };
                let text = &cell.text;
                let _ = match align {
                    Align::Left => write!(line, "{start}{text}{end}{padding}{GAP}"),
                    Align::Right => write!(line, "{padding}{start}{text}{end}{GAP}"),
                };
            }
            out.push_str(line.trim_end());
            out.push('\n');
        }
    }

    /// Widths of the columns; `None` for a column that does not fit.
    fn shown(&self, view: View) -> Vec<Option<usize>> {
        let mut widths: Vec<Option<usize>> =
            (0..self.columns.len()).map(|column| Some(self.width(column))).collect();
        let Some(room) = view.columns else { return widths };
        for heading in self.folding {
            let shown = widths.iter().flatten();
            let taken =
                shown.map(|width| width + GAP.len()).sum::<usize>().saturating_sub(GAP.len());
            if taken <= room {
                break;
            }
            let column = self.columns.iter().position(|(of, _)| of == heading);
            if let Some(width) = column.and_then(|column| widths.get_mut(column)) {
                *width = None;
            }
        }
        widths
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
        table().render(View::PLAIN, &mut out);
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
        table().render(View::PLAIN, &mut plain);
        table().render(View { colour: true, columns: None }, &mut coloured);
        assert_eq!(coloured.replace("\x1b[31m", "").replace("\x1b[0m", ""), plain);
        assert!(coloured.contains("\x1b[31mb\x1b[0m"));
    }

    #[test]
    fn the_least_important_columns_go_until_the_rest_fits() {
        let headings = ["NAME", "STATE", "TOTAL", "REUSED"];
        let mut table = Table::new(&headings.map(|heading| (heading, Align::Left)));
        table.row(vec!["web/a".into(), "up".into(), 1000.into(), "99.0%".into()]);
        let table = table.folding(&["REUSED", "TOTAL"]);
        let heading = |columns| {
            let mut out = String::new();
            table.render(View { colour: false, columns: Some(columns) }, &mut out);
            out.lines().next().unwrap_or_default().to_owned()
        };
        assert_eq!(heading(27), "NAME   STATE  TOTAL  REUSED");
        assert_eq!(heading(26), "NAME   STATE  TOTAL");
        assert_eq!(heading(18), "NAME   STATE");
        assert_eq!(heading(5), "NAME   STATE", "the others stay, whatever room there is");
    }
}
