//! `equipoise slice status`.

use std::fmt::Write as _;
use std::process::ExitCode;

use anyhow::bail;
use equipoise_api::routes::slice::STREAMS;
use equipoise_api::wire::slice::{SliceState, StreamStatus, Streams, WorkerState};

use super::drops;
use super::numbers::show;
use crate::process::ApiArgs;
use crate::table::{Align, Cell, Table, Tone};
use crate::view::View;
use crate::watch::{self, WatchArgs};
use equipoise_basics::rough;

/// Arguments of `equipoise slice status`.
#[derive(Debug, clap::Args)]
pub(super) struct Args {
    /// Show only this stream
    #[arg(long, value_name = "NAME")]
    stream: Option<String>,
    /// Show every slice, not only those that are in a handover, pinned or without an owner
    #[arg(long)]
    slices: bool,
    #[command(flatten)]
    watch: WatchArgs,
    #[command(flatten)]
    api: ApiArgs,
}

pub(super) async fn run(args: Args) -> anyhow::Result<ExitCode> {
    let client = args.api.client().await?;
    if let Some(name) = &args.stream {
        let streams = client.ask(STREAMS, &()).await?.streams;
        if !streams.iter().any(|stream| stream.name == *name) {
            let known: Vec<_> = streams.into_iter().map(|stream| stream.name).collect();
            bail!("there is no stream `{name}`; the streams are `{}`", known.join("`, `"));
        }
    }
    let ask = async || {
        let mut streams = client.ask(STREAMS, &()).await?;
        if let Some(name) = &args.stream {
            streams.streams.retain(|stream| stream.name == *name);
        }
        Ok(streams)
    };
    let render = |streams: &Streams, view: View, out: &mut String| {
        for (place, stream) in streams.streams.iter().enumerate() {
            if place > 0 {
                out.push('\n');
            }
            page(stream, args.slices, view, out);
        }
        if streams.streams.is_empty() {
            out.push_str("there is no such stream\n");
        }
    };
    watch::show(args.watch, ask, render).await
}

/// Prints a stream. Here and below: writing to a string cannot fail.
fn page(stream: &StreamStatus, all: bool, view: View, out: &mut String) {
    let leader = match (&stream.leader, stream.leading) {
        (Some(leader), _) => format!("led by {leader}"),
        (None, true) => "led from here".to_string(),
        (None, false) => "no controller leads".to_string(),
    };
    let (name, count, domain) = (&stream.name, stream.slices_total, stream.domain);
    let _ = writeln!(out, "stream {name} · {count} slices · DDS domain {domain} · {leader}");
    if let Some(problem) = &stream.problem {
        let _ = writeln!(out, "{problem}");
    }
    if let Some(resizing) = &stream.resizing {
        let (slices, waits_for) = (resizing.slices, &resizing.waits_for);
        let _ = writeln!(out, "to have {slices} slices; waits for {waits_for}");
    }
    if !stream.leading {
        if let Some(leader) = &stream.leader {
            let _ = writeln!(out, "{leader} knows the workers and slices: run the command there");
        }
        return;
    }
    let _ = writeln!(out, "{}", handover_times(stream));
    out.push('\n');
    if stream.workers.is_empty() {
        out.push_str("there are no workers: start some with `equipoise slice worker`\n");
    } else {
        workers(stream).render(view, out);
    }
    for worker in &stream.workers {
        if let Some(reason) = &worker.reason {
            let _ = writeln!(out, "{} is {}: {reason}", worker.name, worker.state.word());
        }
        // For a refused worker the problem is the reason that the table shows.
        if let Some(problem) = &worker.problem
            && worker.state != WorkerState::Refused
        {
            let _ = writeln!(out, "{}: {problem}", worker.name);
        }
    }
    let told: Vec<_> = stream.slices.iter().filter(|slice| all || notable(slice)).collect();
    let tables = [
        (!stream.handovers.is_empty()).then(|| handovers(stream)),
        (!told.is_empty()).then(|| slices(&told, all)),
        checkpoints(stream),
        drops::table(stream),
    ];
    for table in tables.into_iter().flatten() {
        out.push('\n');
        table.render(view, out);
    }
    for hot in &stream.hot {
        let share = 100.0 * hot.share;
        let _ =
            writeln!(out, "slice {} is hot: {share:.0} % of what a worker should have", hot.slice);
    }
    for publisher in &stream.unread {
        let _ = writeln!(
            out,
            "items of writer {} reach no worker: {}",
            publisher.writer, publisher.problem
        );
    }
    if stream.connections_strange_total > 0 {
        let _ = writeln!(
            out,
            "{} connections to the port for workers were refused: they named no worker, or were too many",
            stream.connections_strange_total
        );
    }
}

fn notable(slice: &SliceState) -> bool {
    slice.blocked.is_some() || slice.pinned.is_some() || slice.owner.is_none()
}

fn handover_times(stream: &StreamStatus) -> String {
    let ms = |seconds: f64| format!("{:.1} ms", 1000.0 * seconds);
    let times = match (stream.handover_seconds_p50, stream.handover_seconds_max) {
        (Some(p50), Some(max)) => format!(", median {}, longest {}", ms(p50), ms(max)),
        _ => String::new(),
    };
    format!(
        "handovers: {} moved, {} called off{times} · most loaded worker {:.0} % over the mean, queues included",
        stream.handovers_moved_total,
        stream.handovers_called_off_total,
        100.0 * stream.imbalance
    )
}

/// A duration with the precision that suits its length.
pub(crate) fn time(seconds: f64) -> String {
    match seconds {
        ..0.000_05 => "0".to_string(),
        ..0.01 => format!("{:.1} ms", 1000.0 * seconds),
        ..1.0 => format!("{:.0} ms", 1000.0 * seconds),
        ..120.0 => format!("{seconds:.1} s"),
        _ => rough(seconds as u64),
    }
}

fn workers(stream: &StreamStatus) -> Table {
    let mut table = Table::new(&[
        ("WORKER", Align::Left),
        ("STATE", Align::Left),
        ("FOR", Align::Right),
        ("SLICES", Align::Right),
        ("LOAD", Align::Right),
        ("ITEMS/S", Align::Right),
        ("QUEUED", Align::Right),
        ("OLDEST", Align::Right),
        ("DONE", Align::Right),
    ])
    .folding(&["DONE", "FOR", "OLDEST"]);
    for worker in &stream.workers {
        let tone = match worker.state {
            WorkerState::Active => Tone::Good,
            WorkerState::Joining | WorkerState::Standby => Tone::Plain,
            WorkerState::Draining | WorkerState::Drained | WorkerState::Awaited => Tone::Warning,
            WorkerState::Stuck | WorkerState::Refused | WorkerState::Lost => Tone::Bad,
        };
        table.row(vec![
            (&worker.name).into(),
            Cell::toned(worker.state.word(), tone),
            time(worker.state_seconds).into(),
            worker.slices.into(),
            format!("{:.2}", worker.load).into(),
            format!("{:.1}", worker.items_per_second).into(),
            worker.queued.into(),
            time(worker.queue_age_seconds).into(),
            worker.items_total.into(),
        ]);
    }
    table
}

/// The checkpoints of each worker, if the stream has any.
fn checkpoints(stream: &StreamStatus) -> Option<Table> {
    let mut table = Table::new(&[
        ("CHECKPOINTS OF", Align::Left),
        ("KEPT BY", Align::Left),
        ("AGE", Align::Right),
        ("ITEMS SINCE", Align::Right),
        ("SLICES WITHOUT", Align::Right),
        ("NOT IN FOLDER", Align::Right),
        ("BYTES", Align::Right),
    ]);
    let taken = stream.workers.iter().filter_map(|it| Some((it, it.checkpoints.as_ref()?)));
    let mut is_empty = true;
    for (worker, of) in taken {
        is_empty = false;
        let tone = if of.slices_exposed == 0 { Tone::Plain } else { Tone::Warning };
        table.row(vec![
            (&worker.name).into(),
            of.keeper.as_deref().unwrap_or("-").into(),
            time(of.age_seconds).into(),
            of.items_since.into(),
            Cell::toned(of.slices_exposed.to_string(), tone),
            in_no_folder(of.slices_unstored),
            of.bytes.into(),
        ]);
    }
    (!is_empty).then_some(table)
}

fn in_no_folder(slices: Option<u32>) -> Cell {
    match slices {
        None => "-".into(),
        Some(0) => 0_u64.into(),
        Some(slices) => Cell::toned(slices.to_string(), Tone::Warning),
    }
}

fn handovers(stream: &StreamStatus) -> Table {
    let mut table = Table::new(&[
        ("HANDOVER", Align::Right),
        ("FROM", Align::Left),
        ("TO", Align::Left),
        ("SLICES", Align::Right),
        ("FOR", Align::Right),
        ("STATE", Align::Left),
        ("WAITS FOR", Align::Left),
    ]);
    for it in &stream.handovers {
        table.row(vec![
            it.id.into(),
            it.giver.as_deref().unwrap_or("-").into(),
            (&it.taker).into(),
            it.slices.into(),
            time(it.seconds).into(),
            it.state.split(':').next().unwrap_or_default().into(),
            (&it.waits_for).into(),
        ]);
    }
    table
}

/// The table of slices. Slices with the same row are combined, unless `all` is set.
fn slices(told: &[&SliceState], all: bool) -> Table {
    let mut table = Table::new(&[
        ("SLICES", Align::Left),
        ("OWNER", Align::Left),
        ("EPOCH", Align::Right),
        ("LOAD", Align::Right),
        ("QUEUED", Align::Right),
        ("OLDEST", Align::Right),
        ("PINNED TO", Align::Left),
        ("FOR", Align::Right),
        ("STAYS BECAUSE", Align::Left),
    ])
    .folding(&["EPOCH", "OLDEST", "FOR", "LOAD"]);
    let alike = |a: &SliceState, b: &SliceState| {
        let of =
            |it: &SliceState| (it.owner.clone(), it.epoch, it.pinned.clone(), it.blocked.clone());
        !all && of(a) == of(b)
    };
    let mut groups: Vec<Vec<&SliceState>> = Vec::new();
    for slice in told {
        match groups.iter_mut().find(|group| alike(group[0], slice)) {
            Some(group) => group.push(slice),
            None => groups.push(vec![slice]),
        }
    }
    for group in groups {
        table.row(group_row(&group));
    }
    table
}

fn group_row(group: &[&SliceState]) -> Vec<Cell> {
    let first = group[0];
    let longest = |of: fn(&SliceState) -> Option<f64>| {
        group.iter().filter_map(|slice| of(slice)).max_by(f64::total_cmp)
    };
    let cools = longest(|slice| slice.cool_down_seconds);
    let cools = cools.map(|left| format!("moved recently; stays for another {}", time(left)));
    let numbers: Vec<_> = group.iter().map(|slice| slice.slice).collect();
    let owner = first.owner.as_ref();
    vec![
        show(&numbers).into(),
        owner.map_or_else(|| Cell::toned("(none)", Tone::Bad), Into::into),
        first.epoch.into(),
        format!("{:.3}", group.iter().map(|slice| slice.load).sum::<f64>()).into(),
        group.iter().map(|slice| slice.queued).sum::<u64>().into(),
        time(longest(|slice| Some(slice.queue_age_seconds)).unwrap_or(0.0)).into(),
        first.pinned.as_deref().unwrap_or("-").into(),
        longest(|slice| slice.blocked_seconds).map(time).as_deref().unwrap_or("-").into(),
        first.blocked.clone().or(cools).unwrap_or_default().into(),
    ]
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use equipoise_api::wire::slice::{
        HotSlice, SliceCheckpoints, SliceHandover, SliceWorker, UnreadPublisher,
    };

    use super::*;

    fn worker(name: &str, state: WorkerState) -> SliceWorker {
        SliceWorker {
            name: name.into(),
            state,
            state_seconds: 12.0,
            reason: None,
            drained: false,
            problem: None,
            host: Some("rack-3".into()),
            pid: Some(4711),
            started_unix_seconds: Some(1.7e9),
            slices: 2,
            load: 0.5,
            items_per_second: 20.0,
            queued: 3,
            in_hand: 1,
            queue_age_seconds: 0.125,
            stalled_seconds: 0.0,
            items_total: 400,
            drops: BTreeMap::from([("late".to_string(), 2), ("malformed".to_string(), 0)]),
            checkpoints: None,
        }
    }

    fn slice(slice: u32, owner: Option<&str>, blocked: Option<&str>) -> SliceState {
        SliceState {
            slice,
            owner: owner.map(Into::into),
            epoch: 7,
            load: 0.25,
            queued: 1,
            queue_age_seconds: 0.0,
            pinned: None,
            blocked: blocked.map(Into::into),
            blocked_seconds: None,
            cool_down_seconds: None,
        }
    }

    fn stream() -> StreamStatus {
        let lost = SliceWorker {
            state_seconds: 4000.0,
            reason: Some("it was silent until its lease expired".into()),
            drops: BTreeMap::from([("malformed".to_string(), 5)]),
            ..worker("w2", WorkerState::Lost)
        };
        let moving = SliceState {
            blocked_seconds: Some(0.0012),
            ..slice(2, Some("w2"), Some("in handover 8, releasing"))
        };
        let pinned = SliceState { pinned: Some("w1".into()), ..slice(3, Some("w2"), None) };
        StreamStatus {
            name: "images".into(),
            slices_total: 5,
            resizing: None,
            domain: 5,
            leading: true,
            leader: Some("edge-1".into()),
            problem: None,
            imbalance: 0.04,
            workers: vec![worker("w1", WorkerState::Active), lost],
            slices: vec![
                slice(0, Some("w1"), None),
                slice(1, None, Some("no worker owns it")),
                moving,
                pinned,
                slice(4, None, Some("no worker owns it")),
            ],
            handovers: vec![SliceHandover {
                id: 8,
                giver: Some("w2".into()),
                taker: "w1".into(),
                slices: 1,
                state: "releasing: the source reaches the target's positions".into(),
                waits_for: "w2 to stop".into(),
                seconds: 0.0012,
            }],
            hot: vec![HotSlice { slice: 0, share: 0.9 }],
            unread: vec![UnreadPublisher { writer: "00ff".into(), problem: "best-effort".into() }],
            connections_strange_total: 2,
            handovers_moved_total: 6,
            handovers_called_off_total: 0,
            handover_seconds_p50: Some(0.0006),
            handover_seconds_max: Some(0.0021),
        }
    }

    fn shown(stream: &StreamStatus, all: bool) -> String {
        let mut out = String::new();
        page(stream, all, View::PLAIN, &mut out);
        out
    }

    #[test]
    fn stream_status_shows_owners_handovers_and_reasons_for_blocked_slices() {
        assert_eq!(
            shown(&stream(), false),
            "stream images · 5 slices · DDS domain 5 · led by edge-1\n\
             handovers: 6 moved, 0 called off, median 0.6 ms, longest 2.1 ms · most loaded worker 4 % over the mean, queues included\n\
             \n\
             WORKER  STATE      FOR  SLICES  LOAD  ITEMS/S  QUEUED  OLDEST  DONE\n\
             w1      active  12.0 s       2  0.50     20.0       3  125 ms   400\n\
             w2      lost    66 min       2  0.50     20.0       3  125 ms   400\n\
             w2 is lost: it was silent until its lease expired\n\
             \n\
             HANDOVER  FROM  TO  SLICES     FOR  STATE      WAITS FOR\n       \
                    8  w2    w1       1  1.2 ms  releasing  w2 to stop\n\
             \n\
             SLICES  OWNER   EPOCH   LOAD  QUEUED  OLDEST  PINNED TO     FOR  STAYS BECAUSE\n\
             1,4     (none)      7  0.500       2       0  -               -  no worker owns it\n\
             2       w2          7  0.250       1       0  -          1.2 ms  in handover 8, releasing\n\
             3       w2          7  0.250       1       0  w1              -\n\
             \n\
             WORKER  DROPS  REASON     MEANING\n\
             w1          2  late       no loss: the previous owner processed it\n\
             w2          5  malformed  too short, or another type under the same name\n\
             slice 0 is hot: 90 % of what a worker should have\n\
             items of writer 00ff reach no worker: best-effort\n\
             2 connections to the port for workers were refused: they named no worker, or were too many\n"
        );
        assert!(shown(&stream(), true).contains("\n0       w1 "));
    }

    #[test]
    fn stream_status_shows_the_age_and_keeper_of_checkpoints() {
        let mut stream = stream();
        stream.workers[0].checkpoints = Some(SliceCheckpoints {
            keeper: Some("w2".to_string()),
            age_seconds: 0.75,
            items_since: 12,
            slices_exposed: 1,
            slices_unstored: None,
            bytes: 4096,
        });
        let out = shown(&stream, false);
        let table = "CHECKPOINTS OF  KEPT BY     AGE  ITEMS SINCE  SLICES WITHOUT  NOT IN FOLDER  BYTES\n\
                     w1              w2       750 ms           12               1              -   4096\n";
        assert!(out.contains(table), "{out}");
    }

    #[test]
    fn a_controller_that_does_not_lead_names_the_leader() {
        let other = StreamStatus { leading: false, ..stream() };
        let out = shown(&other, false);
        assert!(out.contains("led by edge-1") && out.contains("run the command there"), "{out}");
        assert!(!out.contains("WORKER"), "{out}");
    }
}
