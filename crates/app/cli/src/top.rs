//! `equipoise top`: a running equipoise on the whole terminal.
//!
//! **In**: the answers and events of the API ([`feed`]), and keys ([`screen`]). **Out**: pages
//! ([`draw`]), and the changes that an operator confirms ([`action`]). [`state`] decides without
//! I/O. The terminal is restored however the command ends ([`screen::Screen`]).

mod action;
mod dialog;
mod draw;
mod feed;
mod figures;
mod headline;
mod lines;
mod rates;
mod reading;
#[cfg(test)]
mod samples;
mod screen;
mod sheet;
mod state;
mod tabs;

use std::io::{self, IsTerminal};
use std::process::ExitCode;
use std::time::{Duration, Instant};

use anyhow::Context;
use equipoise_api::client::{Client, ClientError};
use equipoise_api::routes::why::WHY;
use tokio::signal::unix::{Signal, SignalKind, signal};
use tokio::sync::mpsc::{UnboundedReceiver, UnboundedSender, unbounded_channel};

use self::lines::Theme;
use self::reading::Reading;
use self::screen::Screen;
use self::state::{Effect, News, State};
use crate::process::ApiArgs;
use crate::status;
use crate::view::View;

/// Longest time between two pages: the age of a missing answer counts on.
const REDRAW: Duration = Duration::from_secs(1);

/// Arguments of `equipoise top`.
#[derive(Debug, clap::Args)]
pub struct Args {
    #[command(flatten)]
    api: ApiArgs,
}

/// Runs the command.
///
/// # Errors
/// The process that is asked does not answer at first or refuses, or the terminal cannot be used.
pub async fn run(args: Args) -> anyhow::Result<ExitCode> {
    let is_dumb = std::env::var_os("TERM").is_some_and(|name| name == "dumb");
    if is_dumb || !io::stdout().is_terminal() {
        return status::once(args.api).await;
    }
    let client = args.api.client().await?;
    // An error before the first answer ends the command, with its remedy.
    let reading = Reading::take(&client).await.map_err(|error| match error {
        Some(error) => anyhow::Error::from(error),
        None => anyhow::anyhow!("equipoise at {} does not answer", client.place()),
    })?;
    let signals = Signals::new()?;
    let keys = screen::keys().context("there is no terminal to read keys from")?;
    let theme = Theme { colour: View::of_stdout().colour };
    let screen = Screen::open().context("cannot use the terminal")?;
    let outcome = follow(screen, client, State::new(reading), theme, keys, signals).await;
    outcome.map(|()| ExitCode::SUCCESS)
}

/// The signals that a page heeds.
struct Signals {
    resized: Signal,
    ends: [Signal; 3],
}

impl Signals {
    fn new() -> io::Result<Signals> {
        let end = |kind: SignalKind| signal(kind);
        Ok(Signals {
            resized: signal(SignalKind::window_change())?,
            ends: [
                end(SignalKind::terminate())?,
                end(SignalKind::interrupt())?,
                end(SignalKind::hangup())?,
            ],
        })
    }
}

/// Shows pages until the operator or a signal ends it. The end of this drops the screen, and so
/// restores the terminal.
async fn follow(
    mut screen: Screen,
    client: Client,
    mut state: State,
    theme: Theme,
    mut keys: UnboundedReceiver<termion::event::Key>,
    mut signals: Signals,
) -> anyhow::Result<()> {
    let (sender, mut news) = unbounded_channel();
    let feed = feed::start(&client, &sender);
    tokio::pin!(feed);
    loop {
        screen.draw(|frame| draw::draw(frame, &mut state, theme, Instant::now()))?;
        let [terminate, interrupt, hangup] = &mut signals.ends;
        tokio::select! {
            Some(arrived) = news.recv() => {
                state.receive(arrived);
                // One page for all that has arrived.
                while let Ok(arrived) = news.try_recv() {
                    state.receive(arrived);
                }
            }
            key = keys.recv() => match key.map(|key| state.key(key)) {
                // Without its keyboard, the page could not be left.
                None | Some(Effect::Quit) => return Ok(()),
                Some(effect) => perform(effect, &client, &sender),
            },
            error = &mut feed => return Err(error.into()),
            _ = signals.resized.recv() => {}
            _ = terminate.recv() => return Ok(()),
            _ = interrupt.recv() => return Ok(()),
            _ = hangup.recv() => return Ok(()),
            () = tokio::time::sleep(REDRAW) => {}
        }
    }
}

/// Starts what a key asks for. Its outcome arrives as news.
fn perform(effect: Effect, client: &Client, news: &UnboundedSender<News>) {
    let (client, news) = (client.clone(), news.clone());
    let words = |error: ClientError| equipoise_basics::with_causes(&error);
    match effect {
        Effect::Nothing | Effect::Quit => {}
        Effect::Perform(action) => {
            tokio::spawn(async move {
                let outcome = action.perform(&client).await;
                // The page may have ended.
                let _ = news.send(News::Done(outcome.map_err(words)));
                // The row shows the change at once.
                if let Ok(reading) = Reading::take(&client).await {
                    let _ = news.send(News::Reading(Box::new(reading)));
                }
            });
        }
        Effect::Ask(question) => {
            tokio::spawn(async move {
                let answer = client.ask(WHY, &question).await.map_err(words);
                let _ = news.send(News::Answer(answer));
            });
        }
    }
}
