//! `equipoise demo packet`: the packet level at work between hosts made of network namespaces.
//!
//! Everything is real: `equipoise run` with the file that is written here, `equipoise decap` on the
//! backends, requests by `curl`. It tells what it does and what came back, ends by itself, and
//! fails if anything did.

mod drain;
mod method;
mod stage;

use std::process::ExitCode;

use anyhow::{Context, bail};
use equipoise_netns::unavailable;

use crate::demo::account::Account;
use crate::demo::packet::stage::Stage;

/// Requests for each method and address family.
const REQUESTS: usize = 12;

pub(crate) fn run() -> anyhow::Result<ExitCode> {
    if let Some(reason) = unavailable() {
        bail!("the packet level's demo makes network namespaces, which is not possible: {reason}");
    }
    let mut account = Account::default();
    let stage = Stage::build().context("the demo cannot be set up")?;
    account.say(&stage.map());
    for method in &method::ALL {
        account.title(&method.title());
        account.step(method.show(&stage, REQUESTS));
    }
    account.title(drain::TITLE);
    account.steps(drain::show(&stage));
    account.title("What the balancer counted");
    account.step(stage.status());
    account.title("What the backends unpacked");
    account.step(stage.stop());
    Ok(account.conclude())
}
