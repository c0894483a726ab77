//! The output of a demo, and whether all its steps succeeded.

use std::io::Write as _;
use std::process::ExitCode;

/// Counts of the steps so far.
#[derive(Debug, Default)]
pub(crate) struct Account {
    steps: usize,
    failed: usize,
}

impl Account {
    /// Prints a line at once, because the demo takes a while.
    pub(crate) fn say(&self, text: &str) {
        // A closed standard output does not stop the demo.
        let _ = writeln!(std::io::stdout(), "{text}");
    }

    pub(crate) fn title(&self, text: &str) {
        self.say(&format!("\n{text}"));
    }

    /// Prints the outcome of a step, indented.
    pub(crate) fn step(&mut self, outcome: anyhow::Result<String>) {
        self.steps += 1;
        match outcome {
            Ok(text) => self.indented(&text),
            Err(error) => {
                self.failed += 1;
                self.indented(&format!("FAILED: {error:#}"));
            }
        }
    }

    /// The same for several steps, which are printed as they end.
    pub(crate) fn steps(&mut self, outcomes: impl IntoIterator<Item = anyhow::Result<String>>) {
        outcomes.into_iter().for_each(|outcome| self.step(outcome));
    }

    fn indented(&self, text: &str) {
        for line in text.lines() {
            self.say(&format!("  {line}"));
        }
    }

    /// Prints the last line, and returns the exit code.
    pub(crate) fn conclude(&self) -> ExitCode {
        if self.failed == 0 {
            self.say(&format!("\nAll {} steps went well.", self.steps));
            ExitCode::SUCCESS
        } else {
            self.say(&format!("\n{} of {} steps FAILED.", self.failed, self.steps));
            ExitCode::FAILURE
        }
    }
}
