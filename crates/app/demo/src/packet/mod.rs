//! `equipoise demo packet`: the packet level between hosts that are network namespaces.
//!
//! All parts are real: `equipoise run` with the file that this module writes, `equipoise decap` on
//! the backends, and requests by `curl`. The demo prints each step with its result, ends by itself,
//! and fails if a step failed.

mod drain;
mod method;
mod stage;

use std::process::ExitCode;

use anyhow::{Context, bail};
use equipoise_netns::unavailable;

use crate::account::Account;
use crate::packet::stage::Stage;

/// Requests for each method and address family.
const REQUESTS: usize = 12;

pub(crate) fn run() -> anyhow::Result<ExitCode> {
    if let Some(reason) = unavailable() {
        bail!("the packet demo needs network namespaces, which cannot be created: {reason}");
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
    account.title("Packets by the balancer's counters");
    account.step(stage.status());
    account.title("Packets by the backends' counters");
    account.step(stage.stop());
    Ok(account.conclude())
}
