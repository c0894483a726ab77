//! What a running equipoise answers, once or anew every second.

use std::io::{self, IsTerminal, Write};
use std::process::ExitCode;
use std::time::Duration;

use equipoise_api::client::ClientError;
use serde::Serialize;

/// How it is shown.
#[derive(Clone, Copy, Debug, clap::Args)]
pub(crate) struct WatchArgs {
    /// Print what the API answers, as JSON
    #[arg(long)]
    pub(crate) json: bool,
    /// Show it anew every second, until Ctrl-C
    #[arg(long)]
    watch: bool,
}

const WATCH_PERIOD: Duration = Duration::from_secs(1);

/// Clears the terminal and goes to its top left corner.
const CLEAR: &str = "\x1b[H\x1b[2J";

/// Shows what `ask` answers; `render` writes it for people, in colour or not.
pub(crate) async fn show<T: Serialize>(
    args: WatchArgs,
    mut ask: impl AsyncFnMut() -> Result<T, ClientError>,
    render: impl Fn(&T, bool, &mut String),
) -> anyhow::Result<ExitCode> {
    let terminal = io::stdout().is_terminal();
    let colour = terminal && std::env::var_os("NO_COLOR").is_none();
    loop {
        let answer = ask().await?;
        let mut out = String::new();
        if args.watch && terminal && !args.json {
            out.push_str(CLEAR);
        }
        if args.json {
            let text = if args.watch {
                serde_json::to_string(&answer)
            } else {
                serde_json::to_string_pretty(&answer)
            };
            out.push_str(&text?);
            out.push('\n');
        } else {
            render(&answer, colour, &mut out);
        }
        if let Err(error) = io::stdout().lock().write_all(out.as_bytes()) {
            // `status | head` has read enough.
            return if error.kind() == io::ErrorKind::BrokenPipe {
                Ok(ExitCode::SUCCESS)
            } else {
                Err(error.into())
            };
        }
        if !args.watch {
            return Ok(ExitCode::SUCCESS);
        }
        tokio::time::sleep(WATCH_PERIOD).await;
    }
}
