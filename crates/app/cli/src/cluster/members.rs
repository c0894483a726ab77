//! `equipoise cluster members` and `equipoise status --cluster`.

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::process::ExitCode;
use std::time::Duration;

use clap::Args;
use equipoise_api::client::ClientError;
use equipoise_api::routes::cluster::MEMBERS;
use equipoise_api::routes::process::STATUS;
use equipoise_api::wire::cluster::{ClusterMembers, MadeBackend};
use equipoise_api::wire::plan::NodeStatus;
use equipoise_controller::MemberState;
use serde::Serialize;

use super::{Here, alone};
use crate::output::AnswerArgs;
use crate::process::{ApiArgs, ClusterPlace};
use crate::table::{Align, Cell, Table, Tone};
use crate::view::View;
use crate::wire;
use equipoise_basics::rough;

#[derive(Debug, Args)]
pub(crate) struct MembersArgs {
    #[command(flatten)]
    answer: AnswerArgs,
    #[command(flatten)]
    api: ApiArgs,
}

pub(crate) async fn run(args: MembersArgs) -> anyhow::Result<ExitCode> {
    show(args.api, args.answer.json).await
}

/// Asks a controller and prints its answer. If none answers, prints what this member's own process
/// knows.
pub(crate) async fn show(api: ApiArgs, json: bool) -> anyhow::Result<ExitCode> {
    match api.cluster_place()? {
        ClusterPlace::Api(client) => match client.ask(MEMBERS, &()).await {
            Ok(members) => print(&members, members.clone(), json),
            Err(error @ ClientError::Refused(_)) => {
                let status = client.ask(STATUS, &()).await?;
                // A process without a cluster knows no more.
                if status.cluster.is_none() && status.controller.is_none() {
                    return Err(error.into());
                }
                alone::print(Ok(status), &error.into(), json)
            }
            Err(error) => Err(error.into()),
        },
        ClusterPlace::File(file, origin) => {
            let here = Here::load(&file)?;
            let asked = match here.asker() {
                Ok(asker) => asker.members().await.map_err(anyhow::Error::from),
                Err(error) => Err(error),
            };
            match asked {
                Ok(members) => {
                    let shown = wire::members(members.clone(), &BTreeMap::new());
                    print(&members, shown, json)
                }
                Err(error) if here.is_node() || super::is_unreached(&error) => {
                    let own = alone::ask(&file, origin).await;
                    if own.is_err() && !here.is_node() {
                        return Err(error);
                    }
                    alone::print(own, &error, json)
                }
                Err(error) => Err(error),
            }
        }
    }
}

/// Prints members: as JSON with the whole answer, or as tables.
fn print(answer: &impl Serialize, members: ClusterMembers, json: bool) -> anyhow::Result<ExitCode> {
    if json {
        outln!("{}", serde_json::to_string_pretty(answer)?);
    } else {
        let view = View::of_stdout();
        out!("{}", view.fold(render(&members, view)));
    }
    Ok(ExitCode::SUCCESS)
}

fn render(members: &ClusterMembers, view: View) -> String {
    let mut out = String::new();
    head(members, &mut out);
    let mut table = Table::new(&[
        ("MEMBER", Align::Left),
        ("KIND", Align::Left),
        ("STATE", Align::Left),
        ("HEARD", Align::Right),
        ("STANDING", Align::Left),
        ("CORES", Align::Right),
        ("CPU", Align::Right),
        ("MACHINE", Align::Right),
        ("MEMORY", Align::Right),
        ("NET", Align::Right),
        ("L1", Align::Right),
        ("L2", Align::Right),
        ("KEEP", Align::Right),
        ("SHARE", Align::Right),
        ("INSTRUCTIONS", Align::Right),
        ("VERSION", Align::Left),
    ]);
    for member in &members.members {
        table.row(row(member));
    }
    let table = table.folding(&[
        "VERSION",
        "INSTRUCTIONS",
        "CORES",
        "MACHINE",
        "NET",
        "MEMORY",
        "KIND",
        "L1",
        "SHARE",
        "KEEP",
    ]);
    table.render(view, &mut out);
    made(&members.elastic, view, &mut out);
    out
}

/// The backends of elastic pools.
fn made(backends: &[MadeBackend], view: View, out: &mut String) {
    if backends.is_empty() {
        return;
    }
    let mut table = Table::new(&[
        ("ELASTIC", Align::Left),
        ("WANTED", Align::Left),
        ("STATE", Align::Left),
        ("MADE BY", Align::Left),
        ("ADDRESS", Align::Left),
        ("PROBLEM", Align::Left),
    ]);
    for backend in backends {
        table.row(vec![
            format!("{}/{}", backend.pool, backend.name).into(),
            (&backend.wanted).into(),
            (&backend.state).into(),
            (&backend.executor).into(),
            backend.address.as_deref().unwrap_or("-").into(),
            backend.problem.as_deref().unwrap_or_default().into(),
        ]);
    }
    out.push('\n');
    table.render(view, out);
}

/// Shares of clients that answers give the member. Equal shares of several names appear once.
fn shares(member: &NodeStatus) -> String {
    let mut all: Vec<String> =
        member.shares.values().map(|share| format!("{:.1} %", 100.0 * share)).collect();
    all.dedup();
    if all.is_empty() { "-".to_string() } else { all.join(", ") }
}

fn head(members: &ClusterMembers, out: &mut String) {
    let term = members.term.map(|term| format!(", term {term}")).unwrap_or_default();
    let leader = members.leader.as_deref().unwrap_or("nobody");
    // Writing to a string cannot fail.
    let _ = writeln!(out, "cluster {}: {leader} leads{term}", members.cluster);
    let (others, controller) = (members.controllers.join(", "), &members.controller);
    let _ = writeln!(out, "controllers: {others} (as {controller} sees it)");
    let _ = match (&members.instructions, members.instructions_age_seconds) {
        (Some(edition), Some(age)) => writeln!(out, "instructions: {edition}, {} old", time(age)),
        _ => writeln!(out, "instructions: none yet"),
    };
    if let Some(failing) = members.store_failing_seconds {
        let failure = members.store_failure.as_deref().unwrap_or("it does not answer");
        let _ = writeln!(out, "store: failing for {}: {failure}", time(failing));
    }
    if let Some(problem) = &members.problem {
        let _ = writeln!(out, "controller {controller}: {problem}");
    }
    for state in [MemberState::Late, MemberState::Gone, MemberState::Evicted].map(name) {
        let names = members.members.iter().filter(|member| member.state == state);
        let names: Vec<&str> = names.map(|member| member.name.as_str()).collect();
        if !names.is_empty() {
            let _ = writeln!(out, "{state}: {}", names.join(", "));
        }
    }
    out.push('\n');
}

fn name(state: MemberState) -> &'static str {
    state.name()
}

fn row(member: &NodeStatus) -> Vec<Cell> {
    let none = || "-".to_string();
    let percent = |value: Option<f64>| value.map_or_else(none, |value| format!("{value:.0} %"));
    let state = member.state.as_str();
    // The last load of a lost member is not its load now.
    let is_here = [MemberState::Alive, MemberState::Late].map(name).contains(&state);
    let load = |value: Option<f64>| value.filter(|_| is_here);
    let planned = |value: Option<f64>| load(value).map_or_else(none, |value| format!("{value:.0}"));
    let standing = match &member.standing {
        Some(standing) if state != name(MemberState::Evicted) => standing_cell(standing),
        _ => Cell::from("-"),
    };
    let tone = match state {
        "alive" => Tone::Good,
        "late" => Tone::Warning,
        _ => Tone::Bad,
    };
    let ago = |age| format!("{} ago", time(age));
    let heard = member.report_age_seconds.map_or_else(|| "never here".to_string(), ago);
    vec![
        (&member.name).into(),
        (&member.kind).into(),
        Cell::toned(state, tone),
        heard.into(),
        standing,
        counted(member).into(),
        percent(load(member.cpu_percent)).into(),
        percent(load(member.machine_cpu_percent)).into(),
        percent(load(member.memory_percent)).into(),
        percent(load(member.net_percent)).into(),
        planned(member.l1).into(),
        planned(member.l2).into(),
        percent(member.keep.map(|keep| 100.0 * keep)).into(),
        shares(member).into(),
        member.applied.clone().unwrap_or_else(none).into(),
        (&member.version).into(),
    ]
}

/// The first word of a standing, without the explanation.
fn standing_cell(standing: &str) -> Cell {
    let word = standing.split(':').next().unwrap_or_default();
    let tone = match word {
        "present" => Tone::Good,
        "joining" | "draining" => Tone::Plain,
        "late" => Tone::Warning,
        _ => Tone::Bad,
    };
    Cell::toned(word, tone)
}

/// Cores that count for a member, and those that it reports if they differ.
fn counted(member: &NodeStatus) -> String {
    match member.claimed_capacity.map(cores) {
        Some(claimed) => format!("{} of {claimed}", cores(member.capacity)),
        None => cores(member.capacity),
    }
}

fn time(age_seconds: f64) -> String {
    seconds(Duration::try_from_secs_f64(age_seconds).unwrap_or_default())
}

/// A number of cores without trailing zeros: `2`, `0.08`.
pub(super) fn cores(cores: f64) -> String {
    let text = format!("{cores:.2}");
    text.trim_end_matches('0').trim_end_matches('.').to_string()
}

pub(super) fn seconds(age: Duration) -> String {
    if age < Duration::from_secs(10) {
        return format!("{:.1} s", age.as_secs_f64());
    }
    rough(age.as_secs())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_part_of_a_core_is_shown_as_such() {
        let shown = [0.08, 0.2, 1.5, 2.0, 10.0, 0.0].map(cores);
        assert_eq!(shown, ["0.08", "0.2", "1.5", "2", "10", "0"]);
    }
}
