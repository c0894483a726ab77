//! `equipoise slice status`.

use std::fmt::Write as _;
use std::process::ExitCode;

use equipoise_api::wire::slice::{SliceState, StreamStatus, Streams, WorkerState};

use crate::cli::ApiArgs;
use crate::commands::table::{Align, Cell, Table, Tone};
use crate::commands::watch::{self, WatchArgs};

/// Arguments.
#[derive(Debug, clap::Args)]
pub(super) struct Args {
    /// Show this stream alone
    #[arg(long, value_name = "NAME")]
    stream: Option<String>,
    /// Show every slice, not only those that are blocked, pinned, hot or without an owner
    #[arg(long)]
    slices: bool,
    #[command(flatten)]
    watch: WatchArgs,
    #[command(flatten)]
    api: ApiArgs,
}

pub(super) async fn run(args: Args) -> anyhow::Result<ExitCode> {
    let client = args.api.client()?;
    let ask = async || {
        let mut streams = client.streams().await?;
        if let Some(name) = &args.stream {
            streams.streams.retain(|stream| stream.name == *name);
        }
        Ok(streams)
    };
    let render = |streams: &Streams, colour: bool, out: &mut String| {
        for (place, stream) in streams.streams.iter().enumerate() {
            if place > 0 {
                out.push('\n');
            }
            page(stream, args.slices, colour, out);
        }
        if streams.streams.is_empty() {
            out.push_str("there is no such stream\n");
        }
    };
    watch::show(args.watch, ask, render).await
}

/// A stream. Writing to a string cannot fail, here and below.
fn page(stream: &StreamStatus, all: bool, colour: bool, out: &mut String) {
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
    if !stream.leading {
        if let Some(leader) = &stream.leader {
            let _ = writeln!(out, "workers and slices are known to {leader}: ask there");
        }
        return;
    }
    let _ = writeln!(out, "{}", handover_times(stream));
    out.push('\n');
    workers(stream).render(colour, out);
    if !stream.handovers.is_empty() {
        out.push('\n');
        handovers(stream).render(colour, out);
    }
    let told: Vec<_> = stream.slices.iter().filter(|slice| all || notable(slice, stream)).collect();
    if !told.is_empty() {
        out.push('\n');
        slices(&told, stream).render(colour, out);
    }
    for worker in &stream.workers {
        if let Some(problem) = &worker.problem {
            let _ = writeln!(out, "{}: {problem}", worker.name);
        }
        for (reason, count) in worker.drops.iter().filter(|(_, count)| **count > 0) {
            let _ = writeln!(out, "{}: {count} items dropped: {reason}", worker.name);
        }
    }
}

fn notable(slice: &SliceState, stream: &StreamStatus) -> bool {
    slice.blocked.is_some()
        || slice.pinned.is_some()
        || slice.owner.is_none()
        || stream.hot.iter().any(|hot| hot.slice == slice.slice)
}

fn handover_times(stream: &StreamStatus) -> String {
    let ms = |seconds: f64| format!("{:.1} ms", 1000.0 * seconds);
    let times = match (stream.handover_seconds_p50, stream.handover_seconds_max) {
        (Some(p50), Some(max)) => format!(", median {}, longest {}", ms(p50), ms(max)),
        _ => String::new(),
    };
    format!(
        "handovers: {} moved, {} called off{times} · {:.0} % over the mean",
        stream.handovers_moved_total,
        stream.handovers_called_off_total,
        100.0 * stream.imbalance
    )
}

fn workers(stream: &StreamStatus) -> Table {
    let mut table = Table::new(&[
        ("WORKER", Align::Left),
        ("STATE", Align::Left),
        ("SLICES", Align::Right),
        ("LOAD", Align::Right),
        ("ITEMS/S", Align::Right),
        ("QUEUED", Align::Right),
        ("TOTAL", Align::Right),
    ]);
    for worker in &stream.workers {
        let (word, tone) = match (worker.state, worker.drained) {
            (WorkerState::Up, _) => ("up", Tone::Good),
            (state @ WorkerState::Stuck, _) => (state.word(), Tone::Bad),
            (WorkerState::Leaving, true) => ("drained", Tone::Warning),
            (state @ WorkerState::Leaving, _) => (state.word(), Tone::Warning),
            (state @ WorkerState::Lost, _) => (state.word(), Tone::Bad),
        };
        table.row(vec![
            (&worker.name).into(),
            Cell::toned(word, tone),
            worker.slices.into(),
            format!("{:.2}", worker.load).into(),
            format!("{:.1}", worker.items_per_second).into(),
            worker.queued.into(),
            worker.items_total.into(),
        ]);
    }
    table
}

fn handovers(stream: &StreamStatus) -> Table {
    let mut table = Table::new(&[
        ("HANDOVER", Align::Right),
        ("FROM", Align::Left),
        ("TO", Align::Left),
        ("SLICES", Align::Right),
        ("SINCE", Align::Right),
        ("STATE", Align::Left),
    ]);
    for it in &stream.handovers {
        table.row(vec![
            it.id.into(),
            it.giver.as_deref().unwrap_or("-").into(),
            (&it.taker).into(),
            it.slices.into(),
            format!("{:.3} s", it.seconds).into(),
            (&it.state).into(),
        ]);
    }
    table
}

fn slices(told: &[&SliceState], stream: &StreamStatus) -> Table {
    let mut table = Table::new(&[
        ("SLICE", Align::Right),
        ("OWNER", Align::Left),
        ("EPOCH", Align::Right),
        ("LOAD", Align::Right),
        ("QUEUED", Align::Right),
        ("NOTE", Align::Left),
    ]);
    for slice in told {
        let hot = stream.hot.iter().find(|hot| hot.slice == slice.slice);
        let hot =
            hot.map(|hot| format!("hot: {:.0} % of what a worker should have", 100.0 * hot.share));
        let note: Vec<_> = slice.blocked.iter().cloned().chain(hot).collect();
        let owner = slice.owner.as_ref();
        table.row(vec![
            slice.slice.into(),
            owner.map_or_else(|| Cell::toned("nobody", Tone::Bad), Into::into),
            slice.epoch.into(),
            format!("{:.3}", slice.load).into(),
            slice.queued.into(),
            note.join("; ").into(),
        ]);
    }
    table
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use equipoise_api::wire::slice::{SliceHandover, SliceWorker};

    use super::*;

    fn stream() -> StreamStatus {
        let worker = |name: &str, state, drained| SliceWorker {
            name: name.into(),
            state,
            drained,
            problem: None,
            host: Some("rack-3".into()),
            pid: Some(4711),
            started_unix_seconds: Some(1.7e9),
            slices: 2,
            load: 0.5,
            items_per_second: 20.0,
            queued: 3,
            in_hand: 1,
            queue_age_seconds: 0.2,
            stalled_seconds: 0.0,
            pressure: 1.0,
            items_total: 400,
            drops: BTreeMap::from([("late".to_string(), 2), ("malformed".to_string(), 0)]),
        };
        let slice = |slice, owner: Option<&str>, blocked: Option<&str>| SliceState {
            slice,
            owner: owner.map(Into::into),
            epoch: 7,
            load: 0.25,
            queued: 1,
            pinned: None,
            blocked: blocked.map(Into::into),
        };
        StreamStatus {
            name: "images".into(),
            slices_total: 3,
            domain: 5,
            leading: true,
            leader: Some("edge-1".into()),
            problem: None,
            imbalance: 0.04,
            workers: vec![
                worker("w1", WorkerState::Up, false),
                worker("w2", WorkerState::Leaving, true),
            ],
            slices: vec![
                slice(0, Some("w1"), None),
                slice(1, None, Some("no worker owns it")),
                slice(2, Some("w2"), Some("in handover 8, releasing")),
            ],
            handovers: vec![SliceHandover {
                id: 8,
                giver: Some("w2".into()),
                taker: "w1".into(),
                slices: 1,
                state: "releasing".into(),
                seconds: 0.0012,
            }],
            hot: Vec::new(),
            handovers_moved_total: 6,
            handovers_called_off_total: 0,
            handover_seconds_p50: Some(0.0006),
            handover_seconds_max: Some(0.0021),
        }
    }

    fn shown(stream: &StreamStatus, all: bool) -> String {
        let mut out = String::new();
        page(stream, all, false, &mut out);
        out
    }

    #[test]
    fn a_stream_shows_who_has_what_and_why_a_slice_is_blocked() {
        assert_eq!(
            shown(&stream(), false),
            "stream images · 3 slices · DDS domain 5 · led by edge-1\n\
             handovers: 6 moved, 0 called off, median 0.6 ms, longest 2.1 ms · 4 % over the mean\n\
             \n\
             WORKER  STATE    SLICES  LOAD  ITEMS/S  QUEUED  TOTAL\n\
             w1      up            2  0.50     20.0       3    400\n\
             w2      drained       2  0.50     20.0       3    400\n\
             \n\
             HANDOVER  FROM  TO  SLICES    SINCE  STATE\n       \
                    8  w2    w1       1  0.001 s  releasing\n\
             \n\
             SLICE  OWNER   EPOCH   LOAD  QUEUED  NOTE\n    \
                 1  nobody      7  0.250       1  no worker owns it\n    \
                 2  w2          7  0.250       1  in handover 8, releasing\n\
             w1: 2 items dropped: late\n\
             w2: 2 items dropped: late\n"
        );
        assert!(shown(&stream(), true).contains("    0  w1"));
    }

    #[test]
    fn who_does_not_lead_says_whom_to_ask() {
        let other = StreamStatus { leading: false, ..stream() };
        let out = shown(&other, false);
        assert!(out.contains("led by edge-1") && out.contains("ask there"), "{out}");
        assert!(!out.contains("WORKER"), "{out}");
    }
}
