//! `equipoise plan`, `plan pin | pause | resume`.

use std::fmt::Write as _;
use std::process::ExitCode;

use clap::Subcommand;
use equipoise_api::routes::plan::{PLAN, SCALE_POOL};
use equipoise_api::wire::plan::{
    PlanMode, PlanQuestion, PlanStatus, PlannedPool, PlannedScaling, PoolWish,
};

use crate::output::AnswerArgs;
use crate::process::ApiArgs;
use crate::table::{Align, Cell, Table, Tone};
use crate::view::View;

/// Arguments of `equipoise plan`.
#[derive(Debug, clap::Args)]
#[command(args_conflicts_with_subcommands = true)]
pub struct Args {
    #[command(subcommand)]
    action: Option<Action>,
    /// Show the next plan without applying it
    #[arg(long)]
    next: bool,
    #[command(flatten)]
    answer: AnswerArgs,
    #[command(flatten)]
    api: ApiArgs,
}

#[derive(Debug, Subcommand)]
enum Action {
    /// Keep an elastic pool at N backends, independent of its load
    Pin {
        #[command(flatten)]
        pool: Pool,
        /// Number of backends, from the pool's `min` to its `max`
        #[arg(value_name = "N")]
        count: u32,
        /// Also accept fewer than `min`
        #[arg(long)]
        force: bool,
    },
    /// Stop an elastic pool's scaling; plans still show what they would do, and a pin is kept
    Pause(Pool),
    /// End a pause: an earlier pin takes effect again. Without one, or for a pinned pool, let the
    /// planner decide
    Resume(Pool),
}

#[derive(Debug, clap::Args)]
struct Pool {
    /// The pool's name
    #[arg(value_name = "POOL")]
    pool: String,
    #[command(flatten)]
    answer: AnswerArgs,
    #[command(flatten)]
    api: ApiArgs,
}

/// Runs the command.
///
/// # Errors
/// The process that is asked does not answer or refuses, or standard output cannot be written.
pub async fn run(args: Args) -> anyhow::Result<ExitCode> {
    let Some(action) = args.action else {
        let plan = args.api.client().await?.ask(PLAN, &PlanQuestion { next: args.next }).await?;
        let view = View::of_stdout();
        return args.answer.print(&plan, |plan| view.fold(page(plan, view)));
    };
    let (Pool { pool, answer, api }, wish) = match action {
        Action::Pin { pool, count, force } => {
            (pool, Some(PoolWish { mode: PlanMode::Pinned, count: Some(count), force }))
        }
        Action::Pause(pool) => {
            (pool, Some(PoolWish { mode: PlanMode::Paused, count: None, force: false }))
        }
        Action::Resume(pool) => (pool, None),
    };
    let client = api.client().await?;
    let is_resumed = wish.is_none();
    let wish = match wish {
        Some(wish) => wish,
        None => resumed(&client.ask(PLAN, &PlanQuestion { next: false }).await?, &pool),
    };
    let plan = client.ask(SCALE_POOL.of([&pool]), &wish).await?;
    answer.print(&plan, |plan| outcome(&pool, &wish, is_resumed, plan))
}

/// The effect of a wish for a pool.
fn outcome(pool: &str, wish: &PoolWish, is_resumed: bool, plan: &PlanStatus) -> String {
    let planned = plan.pools.iter().find(|it| it.name == pool);
    let scaling = planned.and_then(|it| it.scaling.as_ref());
    let mut out = format!("{pool}: {}", said(pool, wish, scaling));
    if is_resumed && wish.mode == PlanMode::Pinned {
        let _ = write!(
            out,
            " again (`equipoise plan resume {pool}` once more lets the planner decide)"
        );
    }
    if let Some(scaling) = scaling {
        let _ = write!(out, "; planned: {}", sentence(scaling));
    }
    out.push('\n');
    out
}

/// The request that ends a pause. An earlier pin takes effect again.
fn resumed(plan: &PlanStatus, pool: &str) -> PoolWish {
    let planned = plan.pools.iter().find(|planned| planned.name == pool);
    let scaling = planned.and_then(|planned| planned.scaling.as_ref());
    let paused = scaling.filter(|scaling| scaling.mode == PlanMode::Paused);
    match paused.and_then(|scaling| scaling.pinned) {
        // The count was accepted when it was set; the pool's `min` may have changed since.
        Some(count) => PoolWish { mode: PlanMode::Pinned, count: Some(count), force: true },
        None => PoolWish { mode: PlanMode::Auto, count: None, force: false },
    }
}

fn said(pool: &str, wish: &PoolWish, now: Option<&PlannedScaling>) -> String {
    let min = now.map_or(0, |scaling| scaling.min);
    match (wish.mode, wish.count) {
        (PlanMode::Pinned, Some(count)) if count < min => {
            format!("pinned at {count}, fewer than its min of {min}")
        }
        (PlanMode::Pinned, Some(count)) => format!("pinned at {count}"),
        (PlanMode::Pinned, None) => "pinned".to_string(),
        (PlanMode::Paused, _) => match now.and_then(|scaling| scaling.pinned) {
            Some(count) => {
                format!("paused (`equipoise plan resume {pool}` pins it at {count} again)")
            }
            None => "paused".to_string(),
        },
        (PlanMode::Auto, _) => "the planner decides".to_string(),
    }
}

fn page(plan: &PlanStatus, view: View) -> String {
    let mut out = String::new();
    let _ = writeln!(out, "{}", heading(plan));
    if let Some(failing) = plan.store_failing_seconds {
        let _ = writeln!(out, "the store has failed for {failing:.0} s; plans are not saved");
    }
    for pool in &plan.pools {
        let _ = write!(out, "\npool {}", pool.name);
        if let Some(scaling) = &pool.scaling {
            let _ = write!(out, "{}", elastic(scaling));
        }
        out.push('\n');
        weights(pool, view, &mut out);
    }
    if !plan.nodes.is_empty() {
        out.push('\n');
        nodes(plan, view, &mut out);
    }
    out
}

fn heading(plan: &PlanStatus) -> String {
    let Some(leader) = &plan.leader else { return "nothing has been planned yet".to_string() };
    if plan.next {
        return "the next plan, which is not applied".to_string();
    }
    let (term, generation) = (plan.term, plan.generation);
    let age = plan.age_seconds.unwrap_or_default();
    let (every, old) = (plan.period_seconds, age > 5.0 * plan.period_seconds);
    let note = if old { ", OLD: it stays in effect" } else { "" };
    format!("plan {term}.{generation} by {leader}, {age:.1} s ago (every {every} s){note}")
}

fn elastic(scaling: &PlannedScaling) -> String {
    let PlannedScaling { backends, min, max, .. } = scaling;
    let mode = match (scaling.mode, scaling.pinned) {
        (PlanMode::Auto, _) => String::new(),
        (PlanMode::Paused, None) => ", paused".to_string(),
        (PlanMode::Paused, Some(count)) => format!(", paused, then pinned at {count}"),
        (PlanMode::Pinned, Some(count)) => format!(", pinned at {count}"),
        (PlanMode::Pinned, None) => ", pinned".to_string(),
    };
    format!(": {backends} backends of {min} to {max}{mode}\n  {}", sentence(scaling))
}

fn sentence(scaling: &PlannedScaling) -> String {
    let size = scaling.size.as_ref().map(|size| format!(" of size {size}")).unwrap_or_default();
    let leaving = scaling.leaving.join(", ");
    let what = match scaling.action.as_str() {
        "out" => format!("add {}{size}", scaling.count),
        "in" => format!("drain {leaving}"),
        "replace" => format!("add one{size} and drain {leaving}"),
        other => other.to_string(),
    };
    format!("{what}: {}", scaling.reason)
}

fn weights(pool: &PlannedPool, view: View, out: &mut String) {
    if pool.weights.is_empty() {
        return;
    }
    let mut table =
        Table::new(&[("BACKEND", Align::Left), ("WEIGHT", Align::Right), ("LEARNT", Align::Right)]);
    for it in &pool.weights {
        let learnt = format!("{:.2}", it.learnt);
        table.row(vec![(&it.backend).into(), it.weight.into(), learnt.into()]);
    }
    table.render(view, out);
}

fn nodes(plan: &PlanStatus, view: View, out: &mut String) {
    let mut table = Table::new(&[
        ("NODE", Align::Left),
        ("L1 %", Align::Right),
        ("L2 %", Align::Right),
        ("SHARE %", Align::Right),
        ("KEEPS %", Align::Right),
        ("STANDING", Align::Left),
    ]);
    let percent = |value: Option<f64>| value.map_or("-".to_string(), |it| format!("{it:.0}"));
    for node in &plan.nodes {
        let tone = if node.overloaded { Tone::Warning } else { Tone::Plain };
        table.row(vec![
            (&node.name).into(),
            percent(node.l1).into(),
            Cell::toned(percent(node.l2), tone),
            percent(Some(100.0 * node.presence)).into(),
            percent(Some(100.0 * node.keep)).into(),
            (&node.standing).into(),
        ]);
    }
    table.render(view, out);
}

#[cfg(test)]
mod tests {
    use equipoise_api::wire::plan::{PlannedNode, PlannedWeight};

    use super::*;

    #[test]
    fn the_plan_page_shows_actions_their_reasons_and_the_plan_age() {
        let scaling = PlannedScaling {
            mode: PlanMode::Pinned,
            pinned: Some(3),
            backends: 2,
            min: 1,
            max: 8,
            action: "out".into(),
            count: 1,
            size: Some("small".into()),
            leaving: Vec::new(),
            reason: "pinned at 3, there are 2".into(),
            in_use: Some(0.5),
        };
        let weight = PlannedWeight { backend: "b1".into(), weight: 120, learnt: 1.2 };
        let pool =
            PlannedPool { name: "web".into(), weights: vec![weight], scaling: Some(scaling) };
        let node = PlannedNode {
            name: "edge-1".into(),
            standing: "present".into(),
            presence: 1.0,
            l1: Some(41.6),
            l2: None,
            overloaded: false,
            keep: 1.0,
        };
        let plan = PlanStatus {
            next: false,
            leader: Some("edge-1".into()),
            term: 3,
            generation: 14,
            age_seconds: Some(0.4),
            period_seconds: 1.0,
            store_failing_seconds: None,
            pools: vec![pool],
            nodes: vec![node],
        };
        assert_eq!(
            page(&plan, View::PLAIN),
            "plan 3.14 by edge-1, 0.4 s ago (every 1 s)\n\
             \n\
             pool web: 2 backends of 1 to 8, pinned at 3\n  \
               add 1 of size small: pinned at 3, there are 2\n\
             BACKEND  WEIGHT  LEARNT\n\
             b1          120    1.20\n\
             \n\
             NODE    L1 %  L2 %  SHARE %  KEEPS %  STANDING\n\
             edge-1    42     -      100      100  present\n"
        );
        let old = PlanStatus { age_seconds: Some(60.0), ..plan };
        assert!(page(&old, View::PLAIN).contains("60.0 s ago (every 1 s), OLD"));
    }
}
