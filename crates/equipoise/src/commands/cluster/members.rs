//! `equipoise cluster members` and `equipoise status --cluster`.

use std::fmt::Write as _;
use std::process::ExitCode;
use std::time::Duration;

use clap::Args;
use equipoise_cluster::wire::Members;
use equipoise_controller::{ClusterView, MemberView};
use equipoise_planner::Standing;

use super::{ConfigArgs, Here, rough};
use crate::commands::table::{Align, Cell, Table, Tone};

#[derive(Debug, Args)]
pub(crate) struct MembersArgs {
    /// Print what the controller answers, as JSON
    #[arg(long)]
    json: bool,
    #[command(flatten)]
    config: ConfigArgs,
}

pub(crate) async fn run(args: MembersArgs) -> anyhow::Result<ExitCode> {
    show(&args.config, args.json).await
}

/// Asks a controller and prints what it says.
pub(crate) async fn show(config: &ConfigArgs, json: bool) -> anyhow::Result<ExitCode> {
    let members = Here::load(config)?.asker()?.members().await?;
    if json {
        println!("{}", serde_json::to_string_pretty(&members)?);
    } else {
        print!("{}", render(&members));
    }
    Ok(ExitCode::SUCCESS)
}

/// A member whose report is older than this many periods is late.
const LATE_PERIODS: u32 = 3;

fn render(members: &Members) -> String {
    let (view, mut out) = (&members.view, String::new());
    head(members, &mut out);
    let mut table = Table::new(&[
        ("MEMBER", Align::Left),
        ("KIND", Align::Left),
        ("STANDING", Align::Left),
        ("CORES", Align::Right),
        ("CPU", Align::Right),
        ("MEMORY", Align::Right),
        ("NET", Align::Right),
        ("L1", Align::Right),
        ("L2", Align::Right),
        ("KEEP", Align::Right),
        ("REPORT", Align::Right),
        ("INSTRUCTIONS", Align::Right),
        ("VERSION", Align::Left),
    ]);
    for member in &view.members {
        table.row(row(member, view));
    }
    table.render(false, &mut out);
    out
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
        let _ = writeln!(out, "store: nothing has come of it for {}", seconds(failing));
    }
    let late: Vec<&str> = view
        .members
        .iter()
        .filter(|member| is_late(member, view))
        .map(|member| member.name.as_str())
        .collect();
    if !late.is_empty() {
        let _ = writeln!(out, "late: {}", late.join(", "));
    }
    out.push('\n');
}

fn is_late(member: &MemberView, view: &ClusterView) -> bool {
    let long = view.period * LATE_PERIODS;
    member.report_age.is_none_or(|age| age > long)
}

fn row(member: &MemberView, view: &ClusterView) -> Vec<Cell> {
    let none = || "-".to_string();
    let percent = |value: Option<f64>| value.map_or_else(none, |value| format!("{value:.0} %"));
    let load = member.load.as_ref();
    let standing = match member.standing {
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
    let report = member.report_age.map_or_else(|| "never".to_string(), seconds);
    let tone = if is_late(member, view) { Tone::Warning } else { Tone::Plain };
    vec![
        member.name.clone().into(),
        member.kind.to_string().into(),
        standing,
        format!("{:.0}", member.capacity).into(),
        percent(load.map(|load| load.cpu)).into(),
        percent(load.map(|load| load.memory)).into(),
        percent(load.and_then(|load| load.net)).into(),
        member.planned.map_or_else(none, |planned| format!("{:.0}", planned.l1)).into(),
        member.planned.map_or_else(none, |planned| format!("{:.0}", planned.l2)).into(),
        percent(member.keep.filter(|_| member.dispatches).map(|keep| 100.0 * keep)).into(),
        Cell::toned(report, tone),
        member.applied.map_or_else(none, |edition| edition.to_string()).into(),
        member.version.clone().into(),
    ]
}

/// Its first word, without what it means.
fn word(standing: Standing) -> String {
    let text = standing.to_string();
    text.split(':').next().unwrap_or_default().to_string()
}

fn seconds(age: Duration) -> String {
    if age < Duration::from_secs(10) {
        return format!("{:.1} s", age.as_secs_f64());
    }
    rough(age.as_secs())
}
