//! Captures libbpf's output while a program is loaded.

use std::cell::RefCell;
use std::sync::Once;

use libbpf_rs::{PrintLevel, set_print};

/// Captures libbpf's output while this thread loads a program: the reason of a failure, and the
/// verifier's log.
pub(super) struct Log;

thread_local! {
    static SAID: RefCell<Option<String>> = const { RefCell::new(None) };
}

/// The end of the verifier's log says what is wrong; all of it may be megabytes.
const LOG_EXCERPT_BYTES: usize = 4096;

impl Log {
    pub(super) fn begin() -> Log {
        static PRINT: Once = Once::new();
        PRINT.call_once(|| {
            set_print(Some((PrintLevel::Warn, |_, message| {
                SAID.with_borrow_mut(|said| {
                    if let Some(said) = said {
                        said.push_str(&message);
                    }
                });
            })));
        });
        SAID.set(Some(String::new()));
        Log
    }

    /// Whether the verifier looked at the program, so that a lack of permission is the program's
    /// and not ours.
    pub(super) fn verified(&self) -> bool {
        SAID.with_borrow(|said| said.as_ref().is_some_and(|said| said.contains("PROG LOAD LOG")))
    }

    pub(super) fn end(&self) -> String {
        let said = SAID.take().unwrap_or_default();
        let from = said.len().saturating_sub(LOG_EXCERPT_BYTES);
        let from = (from..said.len()).find(|&at| said.is_char_boundary(at)).unwrap_or(from);
        said[from..].trim().to_string()
    }
}

impl Drop for Log {
    fn drop(&mut self) {
        SAID.set(None);
    }
}
