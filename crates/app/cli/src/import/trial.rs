//! `equipoise import --try`: asks the old proxy, and a process that runs the translation beside it,
//! and compares their answers.

mod ask;
mod page;
mod process;

use std::net::SocketAddr;
use std::time::Duration;

use anyhow::{Context, bail};
use equipoise_config::FileKind;
use equipoise_import::Import;
use equipoise_import::trial::{
    Difference, Likeness, ProxyAnswer, Trial, TrialQuestion, TriedDoor, compare,
};
use serde::Serialize;
use tokio::signal::unix::{SignalKind, signal};
use tokio::time::Instant;

use self::process::Trying;
use crate::progress::Progress;

/// Longest time for all requests.
const TRIAL_MAX: Duration = Duration::from_secs(120);
/// Most times that a question is asked while the answers differ.
const ROUNDS_MAX: usize = 3;

/// The answers of both proxies.
#[derive(Debug, Serialize)]
pub(super) struct Outcome {
    summary: String,
    answers: Vec<Row>,
    not_tried: Vec<String>,
}

/// A question with both answers.
#[derive(Debug, Serialize)]
struct Row {
    result: Tried,
    request: String,
    front_door: String,
    old_address: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    old: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    new: Option<String>,
    /// The reason why it was not asked.
    #[serde(skip_serializing_if = "Option::is_none")]
    why: Option<String>,
    differences: Vec<Fact>,
}

/// A fact in which the answers differ.
#[derive(Debug, Serialize)]
struct Fact {
    what: String,
    old: String,
    new: String,
}

/// The outcome for a question, the worst first.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "kebab-case")]
enum Tried {
    Differs,
    NotAsked,
    Varies,
    Same,
}

/// Tries a translation until its end or a signal.
///
/// # Errors
/// The translation does not start, or a signal came. Nothing of the trial is left.
pub(super) async fn run(import: &Import) -> anyhow::Result<Outcome> {
    let handled = "cannot handle signals";
    let mut interrupt = signal(SignalKind::interrupt()).context(handled)?;
    let mut terminate = signal(SignalKind::terminate()).context(handled)?;
    let mut hangup = signal(SignalKind::hangup()).context(handled)?;
    tokio::select! {
        outcome = tried(import) => outcome,
        _ = interrupt.recv() => bail!("the trial was interrupted by SIGINT"),
        _ = terminate.recv() => bail!("the trial was interrupted by SIGTERM"),
        _ = hangup.recv() => bail!("the trial was interrupted by SIGHUP"),
    }
}

async fn tried(import: &Import) -> anyhow::Result<Outcome> {
    let trial = Trial::of(&import.text, &certificate_names).context("the translation")?;
    let (mut rows, mut present) = (Vec::new(), Vec::new());
    for (number, door) in trial.doors.iter().enumerate() {
        match ask::open(door.old).await {
            Ok(_) => present.push(number),
            Err(error) => {
                let why = format!("{error:#}: start the old proxy");
                rows.extend(door.questions.iter().map(|it| Row::not_asked(door, it, &why)));
            }
        }
    }
    if !present.is_empty() {
        let mut process = Trying::start(&trial).await?;
        rows.extend(answers(&trial, &present, &process.listen).await);
        process.still_runs()?;
    }
    rows.sort_by_key(|row| row.result);
    Ok(Outcome { summary: page::summary(&rows), answers: rows, not_tried: trial.left_out })
}

/// Asks both proxies all questions for the front doors that are `present` at the old one. The new
/// one has them at the addresses of `listen`.
async fn answers(trial: &Trial, present: &[usize], listen: &[SocketAddr]) -> Vec<Row> {
    let end = Instant::now() + TRIAL_MAX;
    let doors = present.iter().map(|number| (&trial.doors[*number], listen[*number]));
    let all: Vec<_> = doors
        .flat_map(|(door, new)| door.questions.iter().map(move |question| (door, new, question)))
        .collect();
    let progress = Progress::of_work("requests".to_string(), all.len() as u64);
    let mut rows = Vec::new();
    for (door, new, question) in &all {
        progress.left((all.len() - rows.len()) as u64);
        rows.push(match Instant::now() < end {
            true => answered(door, *new, question).await,
            false => Row::not_asked(door, question, "the time of the trial was over"),
        });
    }
    rows
}

/// Asks both proxies until the answers are the same, or often enough to see that they vary.
async fn answered(door: &TriedDoor, at: SocketAddr, question: &TrialQuestion) -> Row {
    let (mut old, mut new) = (Vec::new(), Vec::new());
    loop {
        old.push(ask::ask(door.old, door, question).await);
        new.push(ask::ask(at, door, question).await);
        let compared = compare(&old, &new);
        if compared.likeness != Likeness::Same && old.len() < ROUNDS_MAX {
            continue;
        }
        let shown = |all: &[ProxyAnswer]| all.last().map(|it| it.shown.clone());
        let fact = |Difference { what, old, new, .. }| Fact { what, old, new };
        return Row {
            result: match compared.likeness {
                Likeness::Differs => Tried::Differs,
                Likeness::Varies => Tried::Varies,
                Likeness::Same => Tried::Same,
            },
            old: shown(&old),
            new: shown(&new),
            why: None,
            differences: compared.differences.into_iter().map(fact).collect(),
            ..Row::not_asked(door, question, "")
        };
    }
}

impl Row {
    fn not_asked(door: &TriedDoor, question: &TrialQuestion, why: &str) -> Row {
        Row {
            result: Tried::NotAsked,
            request: question.to_string(),
            front_door: door.name.clone(),
            old_address: door.old.to_string(),
            old: None,
            new: None,
            why: Some(why.to_string()),
            differences: Vec::new(),
        }
    }
}

impl Outcome {
    /// True if every question was asked, and no answer of the new proxy is another.
    pub(super) fn is_same(&self) -> bool {
        let is_same = |row: &Row| matches!(row.result, Tried::Same | Tried::Varies);
        !self.answers.is_empty() && self.answers.iter().all(is_same)
    }
}

/// The names of a file's certificate; none if it cannot be read.
fn certificate_names(chain: &str) -> Vec<String> {
    let pem = equipoise_basics::files::read(chain.as_ref(), FileKind::Config.bytes_max());
    let pem = pem.map(|bytes| String::from_utf8_lossy(&bytes).into_owned()).unwrap_or_default();
    equipoise_tls::chain_names(&pem).unwrap_or_default()
}
