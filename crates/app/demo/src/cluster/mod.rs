//! `equipoise demo cluster`: a cluster of five nodes in the paper's three scenarios.
//!
//! All parts are real: `equipoise run` on each machine with the file that this module writes, an
//! application on each, and unbound as the client's resolver. The demo prints each step with its
//! result, ends by itself, and fails if a step failed.

mod load;
mod machine;
mod scenarios;
mod stage;

use std::process::ExitCode;

use anyhow::{Context, bail};
use equipoise_netns::unavailable;

use crate::account::Account;
use machine::MachineLoad;
use stage::Stage;

pub(crate) fn run() -> anyhow::Result<ExitCode> {
    if let Some(reason) = unavailable() {
        bail!("the cluster demo needs network namespaces, which cannot be created: {reason}");
    }
    let mut account = Account::default();
    let mut stage = Stage::build().context("the demo cannot be set up")?;
    account.say(&stage.map());
    let mut load = MachineLoad::begin(&stage);
    let joined = stage.wait_for_members().map(|()| "every node has joined".into());
    account.step(load.explain(&stage, joined));
    account.title("Even load: clients follow the name");
    account.step(load.explain(&stage, scenarios::even(&stage)));
    account.title("Unbalanced: all clients go to node-1, like clients with an outdated DNS cache");
    account.step(load.explain(&stage, scenarios::unbalanced(&stage)));
    account.title("A sharp fluctuation: four times the clients at once, for a while");
    account.step(load.explain(&stage, scenarios::fluctuation(&stage)));
    account.title("State of the cluster");
    account.step(stage.command(&["status", "--cluster"]));
    account.title("A node fails: node-5 is killed under load");
    let failure = scenarios::failure(&mut stage);
    account.step(load.explain(&stage, failure));
    account.title("The end");
    account.step(stage.stop().map(|()| "every node ended in order".into()));
    Ok(account.conclude())
}
