//! The terminal: raw mode and the alternate screen, which end whatever happens; cells as escape
//! sequences; keys.

use std::fs::File;
use std::io::{self, IsTerminal, Read, Stdout, Write};
use std::sync::Mutex;
use std::{panic, thread};

use equipoise_basics::lock;
use ratatui_core::backend::{Backend, ClearType, WindowSize};
use ratatui_core::buffer::Cell;
use ratatui_core::layout::{Position, Size};
use ratatui_core::style::{Color, Modifier};
use ratatui_core::terminal::{Frame, Terminal};
use termion::event::Key;
use termion::input::TermRead;
use termion::raw::{IntoRawMode, RawTerminal};
use termion::screen::{ToAlternateScreen, ToMainScreen};
use termion::{clear, color, cursor, style};
use tokio::sync::mpsc::{UnboundedReceiver, unbounded_channel};

/// The terminal as it was, while it is in raw mode.
static BEFORE: Mutex<Option<RawTerminal<Stdout>>> = Mutex::new(None);

/// A terminal that shows pages. Dropping it restores the terminal, and so does a panic.
pub(super) struct Screen(Terminal<Cells>);

impl Screen {
    /// Takes the terminal of standard output.
    ///
    /// # Errors
    /// It is no terminal, or cannot be written.
    pub(super) fn open() -> io::Result<Screen> {
        let report = panic::take_hook();
        panic::set_hook(Box::new(move |panic| {
            restore();
            report(panic);
        }));
        let screen = Screen(Terminal::new(Cells::default())?);
        *lock(&BEFORE) = Some(io::stdout().into_raw_mode()?);
        let mut out = io::stdout();
        write!(out, "{ToAlternateScreen}{}{}", cursor::Hide, clear::All)?;
        out.flush()?;
        Ok(screen)
    }

    pub(super) fn draw(&mut self, page: impl FnOnce(&mut Frame<'_>)) -> io::Result<()> {
        self.0.draw(page).map(drop)
    }
}

impl Drop for Screen {
    fn drop(&mut self) {
        restore();
    }
}

fn restore() {
    if let Some(before) = lock(&BEFORE).take() {
        let mut out = io::stdout();
        // A terminal that has gone needs no restoring.
        let _ = write!(out, "{}{}{ToMainScreen}", style::Reset, cursor::Show);
        let _ = out.flush();
        drop(before);
    }
}

/// The keys of the terminal, which a thread reads until the process ends.
///
/// # Errors
/// There is no terminal to read from.
pub(super) fn keys() -> io::Result<UnboundedReceiver<Key>> {
    let (sender, receiver) = unbounded_channel();
    let input: Box<dyn Read + Send> = match io::stdin() {
        stdin if stdin.is_terminal() => Box::new(stdin),
        _ => Box::new(File::open("/dev/tty")?),
    };
    let read = move || {
        for key in input.keys().map_while(Result::ok) {
            if sender.send(key).is_err() {
                return;
            }
        }
    };
    thread::Builder::new().name("keys".into()).spawn(read)?;
    Ok(receiver)
}

/// Writes cells as escape sequences, each frame at once.
#[derive(Debug, Default)]
struct Cells {
    out: Vec<u8>,
    cursor: Position,
}

impl Backend for Cells {
    type Error = io::Error;

    fn draw<'a, I>(&mut self, content: I) -> io::Result<()>
    where
        I: Iterator<Item = (u16, u16, &'a Cell)>,
    {
        let mut last: Option<(u16, u16)> = None;
        let (mut colours, mut modifier) = ((Color::Reset, Color::Reset), Modifier::empty());
        for (x, y, cell) in content {
            if x == 0 || last != Some((x - 1, y)) {
                write!(self.out, "{}", cursor::Goto(x + 1, y + 1))?;
            }
            last = Some((x, y));
            if (cell.fg, cell.bg) != colours || cell.modifier != modifier {
                (colours, modifier) = ((cell.fg, cell.bg), cell.modifier);
                self.look(cell)?;
            }
            self.out.extend_from_slice(cell.symbol().as_bytes());
        }
        write!(self.out, "{}", style::Reset)
    }

    fn hide_cursor(&mut self) -> io::Result<()> {
        write!(self.out, "{}", cursor::Hide)
    }

    fn show_cursor(&mut self) -> io::Result<()> {
        write!(self.out, "{}", cursor::Show)
    }

    fn get_cursor_position(&mut self) -> io::Result<Position> {
        Ok(self.cursor)
    }

    fn set_cursor_position<P: Into<Position>>(&mut self, position: P) -> io::Result<()> {
        self.cursor = position.into();
        write!(self.out, "{}", cursor::Goto(self.cursor.x + 1, self.cursor.y + 1))
    }

    fn clear(&mut self) -> io::Result<()> {
        write!(self.out, "{}", clear::All)
    }

    fn clear_region(&mut self, _: ClearType) -> io::Result<()> {
        // Only a page on the whole terminal is drawn, which is cleared as a whole.
        self.clear()
    }

    fn size(&self) -> io::Result<Size> {
        let (columns, rows) = termion::terminal_size()?;
        Ok(Size::new(columns, rows))
    }

    fn window_size(&mut self) -> io::Result<WindowSize> {
        Ok(WindowSize { columns_rows: self.size()?, pixels: Size::ZERO })
    }

    fn flush(&mut self) -> io::Result<()> {
        let mut out = io::stdout().lock();
        out.write_all(&self.out)?;
        self.out.clear();
        out.flush()
    }
}

impl Cells {
    /// Colours and attributes of the next characters.
    fn look(&mut self, cell: &Cell) -> io::Result<()> {
        write!(self.out, "{}", style::Reset)?;
        for (modifier, code) in [
            (Modifier::BOLD, style::Bold.as_ref()),
            (Modifier::DIM, style::Faint.as_ref()),
            (Modifier::UNDERLINED, style::Underline.as_ref()),
            (Modifier::REVERSED, style::Invert.as_ref()),
        ] {
            let code: &str = code;
            if cell.modifier.contains(modifier) {
                self.out.extend_from_slice(code.as_bytes());
            }
        }
        match cell.fg {
            Color::Red => write!(self.out, "{}", color::Fg(color::Red)),
            Color::Green => write!(self.out, "{}", color::Fg(color::Green)),
            Color::Yellow => write!(self.out, "{}", color::Fg(color::Yellow)),
            Color::Cyan => write!(self.out, "{}", color::Fg(color::Cyan)),
            // The page uses no other colour.
            _ => Ok(()),
        }
    }
}

#[cfg(test)]
mod tests {
    use std::os::fd::{AsFd, AsRawFd, FromRawFd, OwnedFd};
    use std::process::Command;

    use super::*;

    /// Attributes of a terminal that reads lines and shows them.
    fn is_cooked(terminal: &OwnedFd) -> bool {
        // SAFETY: termios consists of integers, for which zeros are valid.
        let mut attributes: libc::termios = unsafe { std::mem::zeroed() };
        // SAFETY: tcgetattr writes one termios, for which `attributes` is valid.
        let outcome = unsafe { libc::tcgetattr(terminal.as_raw_fd(), &raw mut attributes) };
        assert_eq!(outcome, 0, "it is a terminal");
        attributes.c_lflag & (libc::ECHO | libc::ICANON) == libc::ECHO | libc::ICANON
    }

    #[test]
    #[ignore = "panics; `a_panic_restores_the_terminal` runs it on a terminal of its own"]
    fn panic_on_the_screen() {
        let _screen = Screen::open().unwrap();
        let out = io::stdout();
        let is_raw = !is_cooked(&out.as_fd().try_clone_to_owned().unwrap());
        panic!("raw before: {is_raw}");
    }

    #[test]
    fn a_panic_restores_the_terminal() {
        let (mut ours, mut theirs) = (-1, -1);
        // SAFETY: openpty writes two descriptors; the other pointers may be null.
        let opened = unsafe {
            let none = std::ptr::null_mut();
            libc::openpty(&raw mut ours, &raw mut theirs, none, std::ptr::null(), std::ptr::null())
        };
        assert_eq!(opened, 0, "there are terminals: {}", io::Error::last_os_error());
        // SAFETY: openpty has created both descriptors, and no other code knows them.
        let (mut ours, theirs) = unsafe { (File::from_raw_fd(ours), OwnedFd::from_raw_fd(theirs)) };
        let end = || theirs.try_clone().unwrap();
        let test = "top::screen::tests::panic_on_the_screen";
        let mut command = Command::new(std::env::current_exe().unwrap());
        command.args(["--ignored", "--exact", "--nocapture", test]).env("RUST_BACKTRACE", "0");
        let mut child = command.stdin(end()).stdout(end()).stderr(end()).spawn().unwrap();
        assert!(!child.wait().unwrap().success(), "it panics");
        assert!(is_cooked(&theirs));
        drop((command, theirs));
        let mut shown = Vec::new();
        // The end of a terminal shows as the error EIO.
        let _ = ours.read_to_end(&mut shown);
        let shown = String::from_utf8_lossy(&shown);
        let (before, after) = shown.split_once("\x1b[?1049l").unwrap_or_default();
        assert!(before.contains("\x1b[?1049h"), "{shown:?}");
        assert!(after.contains("raw before: true"), "the report is on the first screen: {shown:?}");
    }
}
