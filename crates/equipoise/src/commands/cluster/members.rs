//! `equipoise cluster members` and `equipoise status --cluster`.

use std::fmt::Write as _;
use std::process::ExitCode;
use std::time::Duration;

use clap::Args;
use equipoise_api::client::Client;
use equipoise_cluster::wire::Members;
use equipoise_controller::{ClusterView, MemberState, MemberView, Wanted};
use equipoise_planner::Standing;

use super::{ConfigArgs, Here, alone, rough};
use crate::commands::table::{Align, Cell, Table, Tone};
use crate::commands::view::View;

#[derive(Debug, Args)]
pub(crate) struct MembersArgs {
    /// Print what the controller answers, as JSON
    #[arg(long)]
    json: bool,
    #[command(flatten)]
    config: ConfigArgs,
}

pub(crate) async fn run(args: MembersArgs) -> anyhow::Result<ExitCode> {
    show(&args.config, args.json, None).await
}

/// Asks a controller and prints what it says; where none answers, what the process of this machine itself knows. `api` is
/// where that one was said to be.
pub(crate) async fn show(
    config: &ConfigArgs,
    json: bool,
    api: Option<Client>,
) -> anyhow::Result<ExitCode> {
    let here = Here::load(config)?;
    let asked = match here.asker() {
        Ok(asker) => asker.members().await.map_err(anyhow::Error::from),
        Err(error) => Err(error),
    };
    let members = match asked {
        Ok(members) => members,
        Err(error) if here.is_node() || super::is_unreached(&error) => {
            return alone::show(&here, error, json, api).await;
        }
        Err(error) => return Err(error),
    };
    if json {
        println!("{}", serde_json::to_string_pretty(&members)?);
    } else {
        let view = View::of_stdout();
        print!("{}", view.fold(render(&members, view)));
    }
    Ok(ExitCode::SUCCESS)
}

fn render(members: &Members, view: View) -> String {
    let (shown, mut out) = (&members.view, String::new());
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
    for member in &shown.members {
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
    made(shown, view, &mut out);
    out
}

/// Backends that are made for elastic pools.
fn made(cluster: &ClusterView, view: View, out: &mut String) {
    if cluster.rosters.values().all(|roster| roster.backends.is_empty()) {
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
    for (pool, roster) in &cluster.rosters {
        for (name, entry) in &roster.backends {
            let wanted = match entry.wanted {
                Wanted::Serve => "serve",
                Wanted::Drain => "drain",
                Wanted::Leave => "leave",
            };
            let address = entry.address.map_or_else(|| "-".to_string(), |it| it.to_string());
            table.row(vec![
                format!("{pool}/{name}").into(),
                wanted.into(),
                entry.state.name().into(),
                entry.executor.clone().into(),
                address.into(),
                entry.problem.clone().unwrap_or_default().into(),
            ]);
        }
    }
    out.push('\n');
    table.render(view, out);
}

/// The part of clients that names' answers give it; of several names, the first of each share.
fn shares(member: &MemberView) -> String {
    let mut all: Vec<String> =
        member.shares.values().map(|share| format!("{:.1} %", 100.0 * share)).collect();
    all.dedup();
    if all.is_empty() { "-".to_string() } else { all.join(", ") }
}

fn head(members: &Members, out: &mut String) {
    let view = &members.view;
    let term = view.term.map(|term| format!(", term {term}")).unwrap_or_default();
    let leader = view.leader.as_deref().unwrap_or("nobody");
    // Writing to a string cannot fail.
    let _ = writeln!(out, "cluster {}: {leader} leads{term}", members.cluster);
    let others = view.controllers.join(", ");
    let _ = writeln!(out, "controllers: {others} (this is what {} sees)", view.controller);
    let _ = match (view.instructions, view.instructions_age) {
        (Some(edition), Some(age)) => {
            writeln!(out, "instructions: {edition}, {} old", seconds(age))
        }
        _ => writeln!(out, "instructions: none yet"),
    };
    if let Some(failing) = view.store.failing_for {
        let failure = view.store.failure.as_deref().unwrap_or("it does not answer");
        let _ = writeln!(out, "store: nothing has come of it for {}: {failure}", seconds(failing));
    }
    if let Some(problem) = &view.problem {
        let _ = writeln!(out, "controller {}: {problem}", view.controller);
    }
    for state in [MemberState::Late, MemberState::Gone, MemberState::Evicted] {
        let names = view.members.iter().filter(|member| member.state == state);
        let names: Vec<&str> = names.map(|member| member.name.as_str()).collect();
        if !names.is_empty() {
            let _ = writeln!(out, "{}: {}", state.name(), names.join(", "));
        }
    }
    out.push('\n');
}

fn row(member: &MemberView) -> Vec<Cell> {
    let none = || "-".to_string();
    let percent = |value: Option<f64>| value.map_or_else(none, |value| format!("{value:.0} %"));
    // What was said before is not what is.
    let is_here = matches!(member.state, MemberState::Alive | MemberState::Late);
    let load = member.load.as_ref().filter(|_| is_here);
    let planned = member.planned.as_ref().filter(|_| is_here);
    let standing = match member.standing.filter(|_| member.state != MemberState::Evicted) {
        None => Cell::from("-"),
        Some(standing) => {
            let tone = match standing {
                Standing::Present => Tone::Good,
                Standing::Joining | Standing::Draining => Tone::Plain,
                Standing::Late => Tone::Warning,
                Standing::Gone | Standing::Unhealthy | Standing::Down => Tone::Bad,
            };
            Cell::toned(word(standing), tone)
        }
    };
    let tone = match member.state {
        MemberState::Alive => Tone::Good,
        MemberState::Late => Tone::Warning,
        MemberState::Gone | MemberState::Evicted => Tone::Bad,
    };
    let ago = |age| format!("{} ago", seconds(age));
    let heard = member.report_age.map_or_else(|| "never here".to_string(), ago);
    vec![
        member.name.clone().into(),
        member.kind.to_string().into(),
        Cell::toned(member.state.name(), tone),
        heard.into(),
        standing,
        counted(member).into(),
        percent(load.map(|load| load.cpu)).into(),
        percent(member.machine_cpu.filter(|_| is_here)).into(),
        percent(load.map(|load| load.memory)).into(),
        percent(load.and_then(|load| load.net)).into(),
        planned.map_or_else(none, |planned| format!("{:.0}", planned.l1)).into(),
        planned.map_or_else(none, |planned| format!("{:.0}", planned.l2)).into(),
        percent(member.keep.filter(|_| member.dispatches).map(|keep| 100.0 * keep)).into(),
        shares(member).into(),
        member.applied.map_or_else(none, |edition| edition.to_string()).into(),
        member.version.clone().into(),
    ]
}

/// Its first word, without what it means.
fn word(standing: Standing) -> String {
    let text = standing.to_string();
    text.split(':').next().unwrap_or_default().to_string()
}

/// Cores that a member counts for, and those that it reports if they differ.
fn counted(member: &MemberView) -> String {
    match member.claimed_capacity.map(cores) {
        Some(claimed) => format!("{} of {claimed}", cores(member.capacity)),
        None => cores(member.capacity),
    }
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
