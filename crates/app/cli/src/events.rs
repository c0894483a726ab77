//! `equipoise events`: changes in a running equipoise.

use std::io;
use std::process::ExitCode;
use std::time::Duration;

use equipoise_api::client::Client;
use equipoise_api::routes::events::EVENTS;
use equipoise_api::wire::events::{Event, EventLevel, EventsQuestion};

use crate::process::ApiArgs;
use crate::watch::may_come_back;

/// Time until the process is asked again after the end of a stream.
const AGAIN: Duration = Duration::from_secs(1);

/// Arguments of `equipoise events`.
#[derive(Debug, clap::Args)]
pub struct Args {
    /// Continue with new events until Ctrl-C, also after a restart of the process
    #[arg(long, short)]
    follow: bool,
    /// Print each event as a line of JSON
    #[arg(long)]
    json: bool,
    /// Only events of these types; `backend` stands for every backend.*
    #[arg(long = "type", value_name = "TYPE", value_delimiter = ',')]
    kinds: Vec<String>,
    /// Only events of this object; POOL stands for the pool and its backends
    #[arg(long, value_name = "POOL|POOL/BACKEND|...")]
    subject: Option<String>,
    #[command(flatten)]
    api: ApiArgs,
}

/// Runs the command.
///
/// # Errors
/// The process that is asked does not answer or refuses, or standard output cannot be written.
pub async fn run(args: Args) -> anyhow::Result<ExitCode> {
    let kind = (!args.kinds.is_empty()).then(|| args.kinds.join(","));
    let question = EventsQuestion { kind, subject: args.subject, after: None };
    let client = args.api.client().await?;
    if args.follow {
        return follow(&client, question, args.json).await;
    }
    for event in client.ask(EVENTS, &question).await?.events {
        print(&event, args.json)?;
    }
    Ok(ExitCode::SUCCESS)
}

/// Prints events until the command is stopped. After the first answer it continues while the
/// process does not answer.
async fn follow(
    client: &Client,
    mut question: EventsQuestion,
    json: bool,
) -> anyhow::Result<ExitCode> {
    let mut has_answered = false;
    loop {
        match client.follow_events(&question).await {
            Ok(mut stream) => {
                has_answered = true;
                while let Some(event) = stream.next().await {
                    print(&event, json)?;
                }
                question.after = stream.last().map(str::to_owned);
            }
            Err(error) if has_answered && may_come_back(&error) => {}
            Err(error) => return Err(error.into()),
        }
        tokio::time::sleep(AGAIN).await;
    }
}

fn print(event: &Event, json: bool) -> io::Result<()> {
    if json {
        outln!("{}", serde_json::to_string(event)?);
        return Ok(());
    }
    let level = match event.level {
        EventLevel::Info => String::new(),
        level => format!("{level}: "),
    };
    outln!("{}  {:<20}  {level}{}", event.time, event.kind, event.words);
    Ok(())
}
