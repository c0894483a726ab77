//! Boxes in front of the table: help, facts, confirmations, questions.

use ratatui_core::buffer::Buffer;
use ratatui_core::layout::Rect;
use ratatui_core::style::{Modifier, Style};
use ratatui_core::text::Line;

use super::headline::Severity;
use super::lines::{Lines, Theme};
use super::state::{Front, State};
use crate::table::Tone;
use crate::view::View;

/// Widest box.
const WIDTH_MAX: u16 = 100;

/// Margins of a box: its frame, and a space on both sides.
const FRAME: u16 = 2;

const HELP: &[&str] = &[
    "1 to 9, Tab, left, right   a tab for each level that is configured",
    "up, down, j, k, PgUp, PgDn, Home, End   select a row",
    "s   order by the next column; after the last one, trouble first",
    "r   reverse the order",
    "/   show rows that contain a text; Esc shows all again",
    "d   drain the selected backend, node or worker",
    "u   take a drain, a disable or a change of a weight back",
    "w   set the weight of the selected backend",
    "e   events, and back",
    "?   explain where a request, connection, query or item would go",
    "f   everything that the headline could report, the worst first",
    "q, Ctrl-C   quit",
    "",
    "d, u and w ask for a confirmation, and show the command that does the same.",
];

/// Draws the box that is in front, if there is one.
pub(super) fn draw(buffer: &mut Buffer, state: &State, theme: Theme) {
    let room = usize::from(buffer.area.width.min(WIDTH_MAX).saturating_sub(2 * FRAME));
    let (title, lines) = match &state.front {
        Front::Nothing | Front::Filter => return,
        Front::Help => ("Keys", HELP.iter().map(|line| Line::raw(*line)).collect()),
        Front::Facts => ("Facts", facts(state, theme)),
        Front::Confirm(action) => (
            "Confirm",
            vec![
                Line::styled(action.words.clone(), Modifier::BOLD),
                Line::raw(action.effect),
                Line::raw(format!("The same as: {}", action.command)),
                Line::raw(""),
                Line::raw("y: yes   n: no"),
            ],
        ),
        Front::Weight(target, text) => (
            "Weight",
            vec![
                Line::styled(format!("{}: {text}_", target.name()), Modifier::BOLD),
                Line::raw(format!("Now {}. Accepted: 0 to 1000; 0 drains.", weight(target))),
                Line::raw(""),
                Line::raw("Enter: go on   Esc: change nothing"),
            ],
        ),
        Front::Why(why) => {
            let mut lines = vec![
                Line::styled(format!("{}_", why.text), Modifier::BOLD),
                Line::raw(
                    "A URL; tcp or udp CLIENT DESTINATION; name NAME [TYPE]; item STREAM SLICE",
                ),
                Line::raw("Enter: ask   up, down: scroll   Esc: close"),
                Line::raw(""),
            ];
            lines.extend(why.answer.iter().skip(why.top).cloned().map(Line::raw));
            ("Why?", lines)
        }
    };
    show(buffer, title, &folded(&lines, room), theme);
}

fn weight(target: &super::action::Target) -> String {
    target.weight().map_or_else(|why| why, |weight| weight.to_string())
}

fn facts(state: &State, theme: Theme) -> Vec<Line<'static>> {
    let mut lines = Vec::new();
    for fact in &state.facts {
        let tone = match fact.severity {
            Severity::Bad => Tone::Bad,
            Severity::Warn => Tone::Warning,
        };
        lines.push(Line::styled(fact.text.clone(), theme.tone(tone)));
        lines.push(Line::raw(format!("  {}", fact.remedy)));
    }
    if lines.is_empty() {
        lines.push(Line::raw("All well"));
    }
    lines
}

/// Breaks lines that are wider than `room`.
fn folded(lines: &[Line<'_>], room: usize) -> Vec<Line<'static>> {
    let view = View { colour: false, columns: Some(room) };
    let mut folded = Vec::new();
    for line in lines {
        let text = line.to_string();
        if text.is_empty() {
            folded.push(Line::raw(""));
        }
        let parts = view.fold(text);
        folded.extend(parts.lines().map(|part| Line::styled(part.to_owned(), line.style)));
    }
    folded
}

/// Draws a box in the middle.
fn show(buffer: &mut Buffer, title: &str, lines: &[Line<'_>], theme: Theme) {
    let all = buffer.area;
    let widest = lines.iter().map(Line::width).max().unwrap_or(0);
    let widest =
        u16::try_from(widest).unwrap_or(u16::MAX).max(u16::try_from(title.len()).unwrap_or(0));
    let rows = u16::try_from(lines.len()).unwrap_or(u16::MAX);
    let width = widest.saturating_add(2 * FRAME).min(all.width);
    let height = rows.saturating_add(2).min(all.height);
    let area = Rect {
        x: all.x + (all.width - width) / 2,
        y: all.y + (all.height - height) / 2,
        width,
        height,
    };
    for y in area.top()..area.bottom() {
        for x in area.left()..area.right() {
            buffer[(x, y)].reset();
        }
    }
    let inner = usize::from(width.saturating_sub(2));
    let (top, bottom) = (format!("┌{}┐", "─".repeat(inner)), format!("└{}┘", "─".repeat(inner)));
    let side = format!("│{}│", " ".repeat(inner));
    let mut frame = Lines::new(buffer, area);
    for row in 0..height {
        let text = match row {
            0 => &top,
            row if row + 1 == height => &bottom,
            _ => &side,
        };
        frame.line(&Line::styled(text.clone(), theme.strong()));
    }
    let heading = Rect { x: area.x + FRAME, width: width.saturating_sub(2 * FRAME), ..area };
    let bold: Style = theme.strong();
    Lines::new(buffer, heading).line(&Line::styled(format!(" {title} "), bold));
    let inside = Rect {
        x: area.x + FRAME,
        y: area.y + 1,
        width: width.saturating_sub(2 * FRAME),
        height: height.saturating_sub(2),
    };
    let mut inside = Lines::new(buffer, inside);
    lines.iter().for_each(|line| inside.line(line));
}
