//! Draws the page: a function of its state.

use std::time::Instant;

use equipoise_api::wire::{Phase, Status};
use equipoise_basics::{counted, two_units};
use ratatui_core::layout::Rect;
use ratatui_core::style::{Modifier, Style};
use ratatui_core::terminal::Frame;
use ratatui_core::text::{Line, Span};

use super::dialog;
use super::figures::number;
use super::headline::Severity;
use super::lines::{Lines, Theme};
use super::sheet::GAP;
use super::state::{Front, State};
use super::tabs::Tab;
use crate::table::{Align, Tone};
use crate::view::View;

/// Lines of the headline.
const HEADLINE: u16 = 3;

/// Most lines of the selected row's reason.
const REASON: usize = 3;

/// The keys, in the last line.
const KEYS: &str = "d drain  u undo  w weight  / filter  s sort  e events  ? why  h help  q quit";

/// Draws the page. Notes in the state which rows are in view.
pub(super) fn draw(frame: &mut Frame<'_>, state: &mut State, theme: Theme, now: Instant) {
    let area = frame.area();
    let buffer = frame.buffer_mut();
    let part = |top: u16, height: u16| Rect { y: area.y + top, height, ..area }.intersection(area);
    process(&mut Lines::new(buffer, part(0, 1)), &state.reading.status);
    headline(&mut Lines::new(buffer, part(1, HEADLINE)), state, theme, now);
    tabs(&mut Lines::new(buffer, part(1 + HEADLINE, 1)), state, theme);
    let above = 2 + HEADLINE;
    let whole = cut_reason(state, usize::from(area.width));
    let rows = area.height.saturating_sub(above + 2 + whole.len() as u16);
    table(&mut Lines::new(buffer, part(above, rows)), state, theme);
    let mut lines = Lines::new(buffer, part(above + rows, whole.len() as u16));
    whole.into_iter().for_each(|line| lines.line(&Line::raw(line)));
    below(&mut Lines::new(buffer, part(area.height.saturating_sub(2), 2)), state, theme);
    dialog::draw(buffer, state, theme);
}

/// The last column of the selected row in whole lines, if its column is too narrow for it.
fn cut_reason(state: &State, room: usize) -> Vec<String> {
    let Some(row) = state.sheet.rows.get(state.place()) else { return Vec::new() };
    let (Some(value), Some((_, width))) = (row.values.last(), state.sheet.shown(room).pop()) else {
        return Vec::new();
    };
    if Span::raw(&*value.text).width() <= width {
        return Vec::new();
    }
    let view = View { colour: false, columns: Some(room) };
    let lines = view.fold(format!("{}: {}", row.values[0].text, value.text));
    lines.lines().take(REASON).map(str::to_owned).collect()
}

/// The line about the process.
fn process(lines: &mut Lines<'_>, status: &Status) {
    let up = two_units(status.uptime_seconds as u64);
    let mut text = format!(
        "{} · equipoise {} · pid {} · up {up}",
        status.instance, status.version, status.pid
    );
    if status.phase == Phase::Stopping {
        text.push_str(" · STOPPING");
    }
    let connections: u64 = status.replaced.iter().map(|process| process.connections).sum();
    if !status.replaced.is_empty() {
        let connections = counted(connections, "connection");
        text.push_str(&format!(" · replaced processes finish {connections}"));
    }
    lines.line(&Line::styled(text, Style::new().add_modifier(Modifier::DIM)));
}

/// "All well", or the worst fact, what to do, and the number of further facts.
fn headline(lines: &mut Lines<'_>, state: &State, theme: Theme, now: Instant) {
    let view = View { colour: false, columns: Some(lines.room()) };
    let (fact, others) = state.headline(now);
    let Some(fact) = fact else {
        let style = theme.tone(Tone::Good).add_modifier(Modifier::BOLD);
        lines.line(&Line::styled("All well", style));
        lines.line(&Line::raw(totals(state)));
        return;
    };
    let tone = match fact.severity {
        Severity::Bad => Tone::Bad,
        Severity::Warn => Tone::Warning,
    };
    let more = match others {
        0 => String::new(),
        others => format!(" (f: {others} more)"),
    };
    let style = theme.tone(tone).add_modifier(Modifier::BOLD);
    let text = view.fold(fact.text);
    // The remedy keeps a line.
    for line in text.lines().take(usize::from(HEADLINE) - 1) {
        lines.line(&Line::styled(line.to_owned(), style));
    }
    for line in view.fold(format!("What to do: {}{more}", fact.remedy)).lines() {
        lines.line(&Line::raw(line.to_owned()));
    }
}

/// Work of all levels, in one line.
fn totals(state: &State) -> String {
    let status = &state.reading.status;
    let work = |level| state.rates.as_ref().and_then(|rates| rates.work(level));
    let mut parts = Vec::new();
    for (level, unit) in [("dns", "queries"), ("packet", "packets"), ("session", "requests")] {
        parts.extend(work(level).map(|rate| format!("{} {unit}/s", number(rate))));
    }
    let in_flight: u64 =
        status.pools.iter().flat_map(|pool| &pool.backends).map(|it| it.in_flight).sum();
    let queued: u64 = status.pools.iter().map(|pool| pool.queued).sum();
    if !status.pools.is_empty() {
        parts.push(format!("{in_flight} in flight · {queued} queued"));
    }
    let items: f64 = status.streams.iter().map(|stream| stream.items_per_second).sum();
    if !status.streams.is_empty() {
        parts.push(format!("{} items/s", number(items)));
    }
    parts.join(" · ")
}

fn tabs(lines: &mut Lines<'_>, state: &State, theme: Theme) {
    let mut spans = Vec::new();
    for (at, tab) in state.tabs().into_iter().enumerate() {
        let style = match tab == state.tab {
            true => theme.strong().add_modifier(Modifier::REVERSED),
            false => Style::new(),
        };
        spans.push(Span::styled(format!("{} {}", at + 1, tab.title()), style));
        spans.push(Span::raw("  "));
    }
    lines.line(&Line::from(spans));
}

/// The table, with its selected row in view.
fn table(lines: &mut Lines<'_>, state: &mut State, theme: Theme) {
    let columns = state.sheet.shown(lines.room());
    let order = state.order();
    let mut heading = Vec::new();
    for (at, width) in &columns {
        let column = state.sheet.columns[*at];
        let is_sorted = order.column == Some(*at);
        let style = match is_sorted {
            true => theme.strong().add_modifier(Modifier::UNDERLINED),
            false => theme.strong(),
        };
        cell(&mut heading, column.heading, style, column.align, *width);
    }
    lines.line(&Line::from(heading));

    let room = lines.left().max(1);
    state.page = room;
    let place = state.place();
    let last_top = state.sheet.rows.len().saturating_sub(room);
    state.top = state.top.clamp((place + 1).saturating_sub(room), place).min(last_top);
    if state.sheet.rows.is_empty() {
        let text = match state.filter.is_empty() {
            true => "nothing here".to_owned(),
            false => format!("nothing contains `{}`; Esc clears the filter", state.filter),
        };
        lines.line(&Line::raw(text));
    }
    for (at, row) in state.sheet.rows.iter().enumerate().skip(state.top).take(room) {
        let mut spans = Vec::with_capacity(3 * columns.len());
        for (column, width) in &columns {
            let value = &row.values[*column];
            let align = state.sheet.columns[*column].align;
            cell(&mut spans, &value.text, theme.tone(value.tone), align, *width);
        }
        let is_selected = at == place;
        let modifier = if is_selected { Modifier::REVERSED } else { Modifier::empty() };
        lines.styled(&Line::from(spans), Style::new().add_modifier(modifier));
    }
}

/// Adds a cell, cut to its width, and the space behind it.
fn cell<'t>(spans: &mut Vec<Span<'t>>, text: &'t str, style: Style, align: Align, width: usize) {
    let wide = Span::raw(text).width();
    let padding = " ".repeat(width.saturating_sub(wide));
    let text = if wide > width { cut(text, width) } else { text.into() };
    let (before, after) = match align {
        Align::Left => (String::new(), padding),
        Align::Right => (padding, String::new()),
    };
    spans.push(Span::raw(before));
    spans.push(Span::styled(text, style));
    spans.push(Span::raw(after + &" ".repeat(GAP)));
}

/// The start of a text, which ends in an ellipsis.
fn cut(text: &str, width: usize) -> std::borrow::Cow<'_, str> {
    let mut kept = String::new();
    for character in text.chars() {
        kept.push(character);
        if Span::raw(&*kept).width() >= width {
            kept.pop();
            break;
        }
    }
    if width > 0 {
        kept.push('…');
    }
    kept.into()
}

/// The message or the filter, and the keys.
fn below(lines: &mut Lines<'_>, state: &State, theme: Theme) {
    let line = match (&state.front, &state.message) {
        (Front::Filter, _) => {
            let text = format!("filter: {}_   Enter keeps it, Esc clears it", state.filter);
            Line::styled(text, theme.strong())
        }
        (_, Some((text, tone))) => Line::styled(text.clone(), theme.tone(*tone)),
        (_, None) => Line::styled(place(state), Modifier::DIM),
    };
    lines.line(&line);
    lines.line(&Line::styled(KEYS, Modifier::DIM));
}

/// The selected row, the order of the rows, and the filter.
fn place(state: &State) -> String {
    let rows = state.sheet.rows.len();
    let place = if rows == 0 { 0 } else { state.place() + 1 };
    let order = match state.order().column.and_then(|at| state.sheet.columns.get(at)) {
        Some(column) => format!("by {}", column.heading),
        None if state.tab == Tab::Events => "newest first".to_owned(),
        None => "trouble first".to_owned(),
    };
    let mut text = format!("{place} of {rows}, {order}");
    if state.order().is_reversed {
        text.push_str(", reversed");
    }
    if !state.filter.is_empty() {
        text.push_str(&format!(", filter: {} (Esc clears it)", state.filter));
    }
    text
}
