//! A pseudo terminal with a program on it, and the screen that its output makes.

use std::fs::File;
use std::io::{Read, Write};
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd};
use std::os::unix::process::CommandExt;
use std::process::{Child, Command, ExitStatus};
use std::sync::{Arc, Condvar, Mutex};
use std::thread;
use std::time::Instant;

use equipoise_testkit::{PATIENCE, eventually};

/// A program on a terminal, which is killed when this is dropped.
pub struct OnTerminal {
    child: Child,
    keyboard: File,
    /// The program's side; the program changes its attributes.
    theirs: OwnedFd,
    screen: Arc<(Mutex<Screen>, Condvar)>,
}

impl OnTerminal {
    /// Starts a command on a terminal of this size.
    pub fn start(columns: u16, rows: u16, mut command: Command) -> OnTerminal {
        let (ours, theirs) = super::open_terminal(columns, rows);
        let end = || theirs.try_clone().expect("descriptors can be copied");
        command.stdin(end()).stdout(end()).stderr(end()).env("TERM", "xterm");
        // SAFETY: setsid and ioctl are safe between fork and exec, and touch no memory.
        unsafe {
            command.pre_exec(|| {
                if libc::setsid() < 0 || libc::ioctl(0, libc::TIOCSCTTY, 0) < 0 {
                    return Err(std::io::Error::last_os_error());
                }
                Ok(())
            });
        }
        let child = command.spawn().expect("the command runs");
        let keyboard = ours.try_clone().expect("descriptors can be copied");
        let screen = Arc::new((Mutex::new(Screen::new()), Condvar::new()));
        let shown = Arc::clone(&screen);
        thread::spawn(move || {
            let (mut ours, mut bytes) = (ours, [0; 4096]);
            while let Ok(read @ 1..) = ours.read(&mut bytes) {
                shown.0.lock().expect("no test panics with it").write(&bytes[..read]);
                shown.1.notify_all();
            }
        });
        OnTerminal { child, keyboard, theirs, screen }
    }

    pub fn pid(&self) -> u32 {
        self.child.id()
    }

    /// Presses keys.
    pub fn press(&mut self, keys: &str) {
        self.keyboard.write_all(keys.as_bytes()).expect("the terminal is open");
    }

    /// Changes the size of the terminal.
    pub fn resize(&self, columns: u16, rows: u16) {
        let size = libc::winsize { ws_row: rows, ws_col: columns, ws_xpixel: 0, ws_ypixel: 0 };
        // SAFETY: TIOCSWINSZ reads one winsize.
        let outcome =
            unsafe { libc::ioctl(self.keyboard.as_raw_fd(), libc::TIOCSWINSZ, &raw const size) };
        assert_eq!(outcome, 0, "{}", std::io::Error::last_os_error());
    }

    /// Waits until the screen is as `is_so` says.
    pub fn wait_for(&self, what: &str, is_so: impl Fn(&Screen) -> bool) {
        let end = Instant::now() + PATIENCE;
        let mut screen = self.screen.0.lock().expect("the reader does not panic");
        while !is_so(&screen) {
            let left = end.saturating_duration_since(Instant::now());
            assert!(!left.is_zero(), "waited in vain for {what}:\n{}", screen.text());
            screen = self.screen.1.wait_timeout(screen, left).expect("as above").0;
        }
    }

    /// Waits until the screen contains a text.
    pub fn wait_for_text(&self, text: &str) {
        self.wait_for(text, |screen| screen.text().contains(text));
    }

    /// Whether the terminal echoes keys and edits lines, as a shell expects.
    pub fn is_cooked(&self) -> bool {
        // SAFETY: termios consists of integers, for which zeros are valid.
        let mut attributes: libc::termios = unsafe { std::mem::zeroed() };
        // SAFETY: tcgetattr writes one termios, for which `attributes` is valid.
        let outcome = unsafe { libc::tcgetattr(self.theirs.as_raw_fd(), &raw mut attributes) };
        assert_eq!(outcome, 0, "it is a terminal");
        let wanted = libc::ECHO | libc::ICANON | libc::ISIG;
        attributes.c_lflag & wanted == wanted && attributes.c_oflag & libc::OPOST != 0
    }

    /// Waits until the program ends, and asserts that it has restored the terminal.
    pub fn ended(&mut self) -> ExitStatus {
        let mut status = None;
        let ended = eventually(|| {
            status = self.child.try_wait().expect("it is our child");
            status.is_some()
        });
        assert!(ended, "it does not end");
        assert!(self.is_cooked(), "the terminal's attributes are restored");
        self.wait_for("the first screen, with its cursor", |screen| {
            !screen.is_alternate && screen.has_cursor
        });
        status.expect("it has ended")
    }
}

impl Drop for OnTerminal {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// Size of the largest terminal.
const COLUMNS_MAX: usize = 200;
const ROWS_MAX: usize = 60;

/// The cells of a terminal. It understands the sequences that `top` writes.
pub struct Screen {
    lines: Vec<Vec<char>>,
    cursor: (usize, usize),
    pub is_alternate: bool,
    pub has_cursor: bool,
    pub has_colour: bool,
    /// Bytes of an incomplete character or sequence.
    rest: Vec<u8>,
}

impl Screen {
    fn new() -> Screen {
        Screen {
            lines: vec![vec![' '; COLUMNS_MAX]; ROWS_MAX],
            cursor: (0, 0),
            is_alternate: false,
            has_cursor: true,
            has_colour: false,
            rest: Vec::new(),
        }
    }

    pub fn text(&self) -> String {
        let line = |line: &Vec<char>| line.iter().collect::<String>().trim_end().to_owned();
        self.lines.iter().map(line).collect::<Vec<_>>().join("\n")
    }

    fn write(&mut self, bytes: &[u8]) {
        self.rest.extend_from_slice(bytes);
        let taken = std::mem::take(&mut self.rest);
        let valid = match std::str::from_utf8(&taken) {
            Ok(_) => taken.len(),
            Err(error) => error.valid_up_to(),
        };
        let text = String::from_utf8_lossy(&taken[..valid]).into_owned();
        let mut left = text.as_str();
        while let Some(character) = left.chars().next() {
            if character != '\x1b' {
                left = &left[character.len_utf8()..];
                self.put(character);
                continue;
            }
            let is_end = |c: char| c.is_ascii_alphabetic();
            let Some(end) = left.find(is_end) else { break };
            let (sequence, after) = left.split_at(end + 1);
            self.sequence(sequence);
            left = after;
        }
        self.rest = [left.as_bytes(), &taken[valid..]].concat();
    }

    fn put(&mut self, character: char) {
        let (x, y) = &mut self.cursor;
        match character {
            '\r' => *x = 0,
            '\n' => *y += 1,
            character => {
                if let Some(cell) = self.lines.get_mut(*y).and_then(|line| line.get_mut(*x)) {
                    *cell = character;
                }
                *x += 1;
            }
        }
    }

    fn sequence(&mut self, sequence: &str) {
        match sequence {
            "\x1b[?1049h" => self.is_alternate = true,
            "\x1b[?1049l" => self.is_alternate = false,
            "\x1b[?25h" => self.has_cursor = true,
            "\x1b[?25l" => self.has_cursor = false,
            "\x1b[2J" => self.lines.iter_mut().for_each(|line| line.fill(' ')),
            _ => {
                let inner = sequence.trim_start_matches("\x1b[");
                if let Some(place) = inner.strip_suffix('H') {
                    let mut numbers = place.split(';').map(|number| number.parse().unwrap_or(1));
                    let (y, x): (usize, usize) =
                        (numbers.next().unwrap_or(1), numbers.next().unwrap_or(1));
                    self.cursor = (x - 1, y - 1);
                } else if let Some(look) = inner.strip_suffix('m') {
                    self.has_colour |= look.starts_with("38");
                }
            }
        }
    }
}
