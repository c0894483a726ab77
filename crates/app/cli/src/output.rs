//! Standard output of commands. `println!` would panic if the reader has closed the pipe, as `head`
//! does, or if the disk is full.

use std::process::ExitCode;

use serde::Serialize;

/// Prints to standard output, and returns from the function on an error.
macro_rules! out {
    ($($text:tt)*) => {
        std::io::Write::write_fmt(&mut std::io::stdout(), format_args!($($text)*))?
    };
}

/// Prints a line to standard output, and returns from the function on an error.
macro_rules! outln {
    ($($text:tt)*) => { out!("{}\n", format_args!($($text)*)) };
}

/// The form of a command's answer: text or JSON.
#[derive(Clone, Copy, Debug, clap::Args)]
pub(crate) struct AnswerArgs {
    /// Print the answer as JSON
    #[arg(long)]
    pub(crate) json: bool,
}

impl AnswerArgs {
    /// Prints the answer in its form; `text` writes it for people, with its line ends.
    pub(crate) fn print<T: Serialize>(
        self,
        answer: &T,
        text: impl FnOnce(&T) -> String,
    ) -> anyhow::Result<ExitCode> {
        match self.json {
            true => outln!("{}", serde_json::to_string_pretty(answer)?),
            false => out!("{}", text(answer)),
        }
        Ok(ExitCode::SUCCESS)
    }
}
