//! `equipoise pin list | add | move | remove`.

use std::process::ExitCode;

use clap::Subcommand;
use equipoise_api::routes::packet::{ADD_PIN, MOVE_PIN, PINS, REMOVE_PIN};
use equipoise_api::wire::packet::{Pin, PinKey};

use crate::flow::flow_then_vip;
use crate::output::AnswerArgs;
use crate::process::ApiArgs;
use crate::table::{Align, Table};
use crate::view::View;

/// Arguments of `equipoise pin`.
#[derive(Debug, clap::Args)]
pub struct Args {
    #[command(subcommand)]
    action: Action,
}

#[derive(Debug, Subcommand)]
enum Action {
    /// Show all pins
    List {
        #[command(flatten)]
        answer: AnswerArgs,
        #[command(flatten)]
        api: ApiArgs,
    },
    /// Send a flow to a backend in place of the table's choice
    Add(Set),
    /// Send a pinned flow to another backend
    Move(Set),
    /// Remove a pin; the flow stays at its backend until it ends
    Remove {
        #[command(flatten)]
        flow: Flow,
        #[command(flatten)]
        answer: AnswerArgs,
        #[command(flatten)]
        api: ApiArgs,
    },
}

#[derive(Debug, clap::Args)]
struct Flow {
    /// The flow in the form of the VIP's key: IP:PORT (with /PORT if the VIP has several), IP, or a
    /// MAC address
    #[arg(value_name = "FLOW")]
    flow: String,
    /// The VIP, as `equipoise status` names it
    #[arg(value_name = "VIP")]
    vip: String,
}

impl Flow {
    fn key(self) -> PinKey {
        let (flow, vip) = flow_then_vip(self.flow, self.vip);
        PinKey { vip, flow }
    }
}

#[derive(Debug, clap::Args)]
struct Set {
    #[command(flatten)]
    flow: Flow,
    /// The backend's name or address
    #[arg(value_name = "BACKEND")]
    backend: String,
    #[command(flatten)]
    answer: AnswerArgs,
    #[command(flatten)]
    api: ApiArgs,
}

impl Set {
    fn pin(self) -> (Pin, AnswerArgs, ApiArgs) {
        let PinKey { vip, flow } = self.flow.key();
        (Pin { vip, flow, backend: self.backend, in_force: true }, self.answer, self.api)
    }
}

/// Runs the command.
///
/// # Errors
/// The process that is asked does not answer or refuses, or standard output cannot be written.
pub async fn run(args: Args) -> anyhow::Result<ExitCode> {
    match args.action {
        Action::List { answer, api } => {
            let pins = api.client().await?.ask(PINS, &()).await?;
            answer.print(&pins, |pins| table(&pins.pins))
        }
        Action::Add(set) => {
            let (pin, answer, api) = set.pin();
            answer.print(&api.client().await?.ask(ADD_PIN, &pin).await?, text)
        }
        Action::Move(set) => {
            let (pin, answer, api) = set.pin();
            answer.print(&api.client().await?.ask(MOVE_PIN, &pin).await?, text)
        }
        Action::Remove { flow, answer, api } => {
            let key = flow.key();
            let left = api.client().await?.ask(REMOVE_PIN, &key).await?;
            answer.print(&left, |_| format!("{} {}: no longer pinned\n", key.vip, key.flow))
        }
    }
}

fn text(pin: &Pin) -> String {
    let force =
        if pin.in_force { "" } else { ", not in force: the backend accepts no packets now" };
    format!("{} {}: pinned to {}{force}\n", pin.vip, pin.flow, pin.backend)
}

fn table(pins: &[Pin]) -> String {
    if pins.is_empty() {
        return "no pins\n".into();
    }
    let mut table = Table::new(&[
        ("VIP", Align::Left),
        ("FLOW", Align::Left),
        ("BACKEND", Align::Left),
        ("IN FORCE", Align::Left),
    ]);
    for pin in pins {
        let force = if pin.in_force { "yes" } else { "no" };
        table.row(vec![(&pin.vip).into(), (&pin.flow).into(), (&pin.backend).into(), force.into()]);
    }
    let mut out = String::new();
    table.render(View::PLAIN, &mut out);
    out
}
