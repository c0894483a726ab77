//! Lines in a part of the terminal, with colours or without.

use ratatui_core::buffer::Buffer;
use ratatui_core::layout::Rect;
use ratatui_core::style::{Color, Modifier, Style};
use ratatui_core::text::Line;

use crate::table::Tone;

/// Colours, or none.
#[derive(Clone, Copy, Debug)]
pub(super) struct Theme {
    pub(super) colour: bool,
}

impl Theme {
    pub(super) fn tone(self, tone: Tone) -> Style {
        let (colour, modifier) = match tone {
            Tone::Plain => return Style::new(),
            Tone::Good => (Color::Green, Modifier::empty()),
            Tone::Warning => (Color::Yellow, Modifier::empty()),
            Tone::Bad => (Color::Red, Modifier::BOLD),
        };
        let style = Style::new().add_modifier(modifier);
        if self.colour { style.fg(colour) } else { style }
    }

    pub(super) fn strong(self) -> Style {
        let style = Style::new().add_modifier(Modifier::BOLD);
        if self.colour { style.fg(Color::Cyan) } else { style }
    }
}

/// A place to write lines, from top to bottom.
pub(super) struct Lines<'b> {
    buffer: &'b mut Buffer,
    area: Rect,
}

impl Lines<'_> {
    pub(super) fn new(buffer: &mut Buffer, area: Rect) -> Lines<'_> {
        Lines { area: area.intersection(buffer.area), buffer }
    }

    /// Writes the next line. Lines without room are left out.
    pub(super) fn line(&mut self, line: &Line<'_>) {
        if self.area.height == 0 {
            return;
        }
        self.buffer.set_line(self.area.x, self.area.y, line, self.area.width);
        self.area.y += 1;
        self.area.height -= 1;
    }

    /// Draws the next line, and writes all of it in one style.
    pub(super) fn styled(&mut self, line: &Line<'_>, style: Style) {
        if self.area.height > 0 {
            self.buffer.set_style(Rect { height: 1, ..self.area }, style);
        }
        self.line(line);
    }

    /// Characters in a line.
    pub(super) fn room(&self) -> usize {
        self.area.width.into()
    }

    /// Number of lines that are left.
    pub(super) fn left(&self) -> usize {
        self.area.height.into()
    }
}
