//! The terminal that a command writes to.

use std::io::{self, IsTerminal};
use std::os::fd::AsRawFd;

/// Indentation of the continuation of a broken line, in spaces.
const INDENT: usize = 2;

/// Output options of a page.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct View {
    /// Whether the output has colours.
    pub(crate) colour: bool,
    /// Characters in a line; `None` without a terminal, where lines may have any length.
    pub(crate) columns: Option<usize>,
}

impl View {
    /// All columns, without colour.
    pub(crate) const PLAIN: View = View { colour: false, columns: None };

    /// The options of standard output.
    pub(crate) fn of_stdout() -> View {
        if !io::stdout().is_terminal() {
            return View::PLAIN;
        }
        View { colour: std::env::var_os("NO_COLOR").is_none(), columns: stdout_columns() }
    }

    /// Breaks long lines at spaces. Words stay whole.
    pub(crate) fn fold(self, page: String) -> String {
        let Some(columns) = self.columns else { return page };
        let mut out = String::with_capacity(page.len());
        for line in page.split_inclusive('\n') {
            let mut rest = line.trim_end_matches('\n');
            let mut room = columns;
            while let Some(at) = place_to_break(rest, room) {
                out.push_str(rest[..at].trim_end());
                out.push('\n');
                out.push_str(&" ".repeat(INDENT));
                rest = rest[at..].trim_start();
                room = columns.saturating_sub(INDENT);
            }
            out.push_str(rest);
            if line.ends_with('\n') {
                out.push('\n');
            }
        }
        out
    }
}

/// The byte at which a line of more than `room` characters is broken: the last space within `room`,
/// or the first one after a longer word.
fn place_to_break(line: &str, room: usize) -> Option<usize> {
    let (mut seen, mut last) = (0, None);
    let mut in_escape = false;
    for (at, character) in line.char_indices() {
        if in_escape {
            in_escape = character != 'm';
            continue;
        }
        if character == '\x1b' {
            in_escape = true;
            continue;
        }
        // An indented line is not broken before its first word.
        let can_break = character == ' ' && !line[..at].trim_start().is_empty();
        if can_break && (seen <= room || last.is_none()) {
            last = Some(at);
        }
        seen += 1;
        if seen > room && last.is_some() {
            return last;
        }
    }
    None
}

/// The width of the terminal; `None` if it does not report one.
fn stdout_columns() -> Option<usize> {
    let mut size = libc::winsize { ws_row: 0, ws_col: 0, ws_xpixel: 0, ws_ypixel: 0 };
    // SAFETY: TIOCGWINSZ writes one winsize, for which `size` is valid, and keeps no pointer to it.
    let outcome = unsafe { libc::ioctl(io::stdout().as_raw_fd(), libc::TIOCGWINSZ, &raw mut size) };
    (outcome == 0 && size.ws_col > 0).then_some(usize::from(size.ws_col))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn folded(page: &str, columns: usize) -> String {
        View { colour: true, columns: Some(columns) }.fold(page.to_owned())
    }

    #[test]
    fn a_long_line_is_broken_at_spaces_and_continued_indented() {
        assert_eq!(folded("one two three four\nfive\n", 9), "one two\n  three\n  four\nfive\n");
        assert_eq!(folded("one two", 7), "one two");
        assert_eq!(folded("  aa bb cc\n", 6), "  aa\n  bb\n  cc\n");
        assert_eq!(folded("a · b\n\n", 5), "a · b\n\n", "characters count, not bytes");
    }

    #[test]
    fn a_word_longer_than_the_line_is_not_broken() {
        assert_eq!(folded("abcdefgh ij\n", 4), "abcdefgh\n  ij\n");
        assert_eq!(folded("abcdefgh\n", 4), "abcdefgh\n");
    }

    #[test]
    fn colour_codes_do_not_count_towards_the_line_width() {
        let line = "\x1b[31mred\x1b[0m blue\n";
        assert_eq!(folded(line, 8), line);
        assert_eq!(folded(line, 7), "\x1b[31mred\x1b[0m\n  blue\n");
    }

    #[test]
    fn lines_are_not_folded_without_a_terminal() {
        let line = "word ".repeat(100);
        assert_eq!(View::PLAIN.fold(line.clone()), line);
    }
}
