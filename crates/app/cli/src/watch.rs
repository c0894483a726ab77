//! Shows the answer of a running equipoise, once or every second.

use std::fmt::Display;
use std::io::{self, IsTerminal, Write};
use std::process::ExitCode;
use std::time::{Duration, SystemTime};

use equipoise_api::client::ClientError;
use serde::Serialize;
use tokio::time::Instant;

use super::view::View;

/// Arguments of commands that can repeat.
#[derive(Clone, Copy, Debug, Default, clap::Args)]
pub(crate) struct WatchArgs {
    /// Print the API's answer as JSON
    #[arg(long)]
    pub(crate) json: bool,
    /// Repeat every second until Ctrl-C, also after a restart of the process
    #[arg(long)]
    watch: bool,
}

const WATCH_PERIOD: Duration = Duration::from_secs(1);

/// Longest time to wait for an answer once the process has answered.
const PATIENCE: Duration = Duration::from_secs(3);

/// Clears the terminal and moves the cursor to its top left corner.
const CLEAR: &str = "\x1b[H\x1b[2J";

/// Shows the answer of `ask`; `render` writes it for people. After the first answer, `--watch`
/// continues while the process does not answer.
pub(crate) async fn show<T: Serialize>(
    args: WatchArgs,
    mut ask: impl AsyncFnMut() -> Result<T, ClientError>,
    render: impl Fn(&T, View, &mut String),
) -> anyhow::Result<ExitCode> {
    let mut last: Option<Answered> = None;
    loop {
        // Before the first answer, an error ends the command.
        let patience = if last.is_some() { PATIENCE } else { Duration::MAX };
        let answer = tokio::time::timeout(patience, ask()).await;
        let view = View::of_stdout();
        let shown = match (answer, &mut last) {
            (Ok(Ok(answer)), last) => {
                let page = page(args, &answer, view, &render)?;
                let shown = print(args, &page);
                *last = Some(Answered::now(page));
                shown
            }
            (Ok(Err(error)), Some(last)) if args.watch && may_come_back(&error) => {
                last.note(args, view, &error)
            }
            (Ok(Err(error)), _) => return Err(error.into()),
            (Err(_), Some(last)) => last.note(args, view, &"the process does not answer"),
            // Unreachable: before the first answer, `patience` is unlimited.
            (Err(_), None) => Ok(()),
        };
        shown?;
        if !args.watch {
            return Ok(ExitCode::SUCCESS);
        }
        tokio::time::sleep(WATCH_PERIOD).await;
    }
}

fn page<T: Serialize>(
    args: WatchArgs,
    answer: &T,
    view: View,
    render: impl Fn(&T, View, &mut String),
) -> anyhow::Result<String> {
    let mut out = String::new();
    if args.json {
        out = match args.watch {
            true => serde_json::to_string(answer)?,
            false => serde_json::to_string_pretty(answer)?,
        };
        out.push('\n');
    } else {
        render(answer, view, &mut out);
    }
    Ok(if args.json { out } else { view.fold(out) })
}

/// Writes a page; on a terminal, in place of the previous one.
fn print(args: WatchArgs, page: &str) -> io::Result<()> {
    let clears = args.watch && !args.json && io::stdout().is_terminal();
    let mut out = io::stdout().lock();
    out.write_all(if clears { CLEAR.as_bytes() } else { b"" })?;
    out.write_all(page.as_bytes())?;
    out.flush()
}

/// The last answer.
struct Answered {
    page: String,
    at: SystemTime,
    since: Instant,
    /// The missing answer was reported, on outputs that keep lines.
    noted: bool,
}

impl Answered {
    fn now(page: String) -> Answered {
        Answered { page, at: SystemTime::now(), since: Instant::now(), noted: false }
    }

    /// Reports since when there is no answer: above the last page on a terminal, otherwise once on
    /// standard error.
    fn note(&mut self, args: WatchArgs, view: View, why: &dyn Display) -> io::Result<()> {
        let age = self.since.elapsed().as_secs();
        let line = format!("no answer since {} ({age} s): {why}\n", self.time());
        if !args.json && io::stdout().is_terminal() {
            return print(args, &(view.fold(line) + "\n" + &self.page));
        }
        if !std::mem::replace(&mut self.noted, true) {
            io::stderr().lock().write_all(line.as_bytes())?;
        }
        Ok(())
    }

    fn time(&self) -> String {
        let since_1970 = self.at.duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default();
        let seconds = since_1970.as_secs() % 86_400;
        format!("{:02}:{:02}:{:02} UTC", seconds / 3600, seconds / 60 % 60, seconds % 60)
    }
}

/// Whether the error may pass, as after a restart or an overload. A revoked token or a removed
/// stream stays an error.
pub(crate) fn may_come_back(error: &ClientError) -> bool {
    !matches!(error, ClientError::Refused(problem) if [401, 403, 404].contains(&problem.status))
}
