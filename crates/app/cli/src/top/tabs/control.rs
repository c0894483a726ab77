//! The knowledge of controllers: workers of streams, and members of the cluster.

use equipoise_api::wire::Admin;
use equipoise_api::wire::plan::NodeStatus;
use equipoise_api::wire::slice::{SliceWorker, StreamStatus, WorkerState};
use equipoise_basics::rough;

use super::super::action::Target;
use super::super::figures::{number, percent};
use super::super::reading::Reading;
use super::super::sheet::{Row, Sheet, Value, left, right};
use crate::slice::status::time;
use crate::table::Tone;

pub(super) fn slices(streams: &[StreamStatus]) -> Sheet {
    let mut sheet = Sheet::new(&[
        left("STREAM/WORKER", 0),
        left("STATE", 0),
        right("SLICES", 1),
        right("LOAD", 2),
        right("ITEMS/S", 0),
        right("QUEUED", 0),
        right("OLDEST", 3),
        left("HOST", 4),
        left("WHY", 0),
    ]);
    for stream in streams {
        for worker in &stream.workers {
            sheet.add(worker_row(stream, worker));
        }
        if !stream.leading {
            let why = match &stream.leader {
                Some(leader) => format!("{leader} leads it, and knows its workers"),
                None => "no controller leads it".into(),
            };
            let mut values = vec![Value::text(&stream.name), Value::text("-")];
            values.extend((2..7).map(|_| Value::maybe(None, |_| String::new())));
            values.extend([Value::text("-"), Value::text(why)]);
            let (id, question) = (stream.name.clone(), String::new());
            sheet.add(Row { id, values, trouble: 5, target: None, question });
        }
    }
    sheet
}

fn worker_row(stream: &StreamStatus, worker: &SliceWorker) -> Row {
    let id = format!("{}/{}", stream.name, worker.name);
    let (tone, trouble) = match worker.state {
        WorkerState::Lost | WorkerState::Stuck | WorkerState::Refused => (Tone::Bad, 0),
        WorkerState::Draining | WorkerState::Awaited => (Tone::Warning, 1),
        WorkerState::Drained => (Tone::Warning, 2),
        WorkerState::Joining => (Tone::Plain, 3),
        WorkerState::Active => (Tone::Good, 5),
        WorkerState::Standby => (Tone::Plain, 6),
    };
    let why: Vec<&str> =
        [&worker.problem, &worker.reason].into_iter().flatten().map(|text| &**text).collect();
    Row {
        values: vec![
            Value::text(&id),
            Value::text(worker.state.word()).toned(tone),
            Value::count(worker.slices.into()),
            Value::figure(worker.load, format!("{:.2}", worker.load)),
            Value::figure(worker.items_per_second, number(worker.items_per_second)),
            Value::count(worker.queued),
            Value::figure(worker.queue_age_seconds, time(worker.queue_age_seconds)),
            Value::text(worker.host.as_deref().unwrap_or("-")),
            Value::text(why.join("; ")),
        ],
        trouble: if worker.problem.is_some() { 0 } else { trouble },
        target: Some(Target::Worker {
            stream: stream.name.clone(),
            name: worker.name.clone(),
            is_drained: worker.drained,
        }),
        question: format!("item {} 0", stream.name),
        id,
    }
}

/// The members that report here; on a node, itself.
pub(super) fn nodes(reading: &Reading) -> Sheet {
    let mut sheet = Sheet::new(&[
        left("NODE", 0),
        left("STATE", 0),
        right("CPU", 0),
        right("MEMORY", 2),
        right("NET", 3),
        right("L1", 1),
        right("L2", 1),
        right("KEEP", 4),
        right("HEARD", 5),
        left("KIND", 6),
        left("VERSION", 7),
        left("WHY", 0),
    ]);
    for node in &reading.nodes {
        sheet.add(node_row(node));
    }
    if reading.nodes.is_empty() {
        sheet.rows.extend(own_row(reading));
    }
    sheet
}

fn figure(value: Option<f64>) -> Value {
    Value::maybe(value, |value| format!("{value:.0} %"))
}

fn node_row(node: &NodeStatus) -> Row {
    let (tone, trouble) = match (&*node.state, node.admin) {
        ("alive", Admin::Up) => (Tone::Good, 5),
        ("alive", _) => (Tone::Warning, 2),
        ("late", _) => (Tone::Warning, 1),
        ("evicted", _) => (Tone::Bad, 4),
        _ => (Tone::Bad, 0),
    };
    let drained = (node.admin != Admin::Up).then(|| "drained by an operator".to_owned());
    let why: Vec<String> = [drained, node.standing.clone()].into_iter().flatten().collect();
    Row {
        id: node.name.clone(),
        values: vec![
            Value::text(&node.name),
            Value::text(&node.state).toned(tone),
            figure(node.cpu_percent),
            figure(node.memory_percent),
            figure(node.net_percent),
            figure(node.l1),
            figure(node.l2),
            Value::maybe(node.keep, percent),
            Value::maybe(node.report_age_seconds, |age| format!("{} ago", rough(age as u64))),
            Value::text(&node.kind),
            Value::text(&node.version),
            Value::text(why.join("; ")),
        ],
        trouble,
        target: Some(Target::Node { name: node.name.clone(), admin: node.admin }),
        question: String::new(),
    }
}

fn own_row(reading: &Reading) -> Option<Row> {
    let status = &reading.status;
    let cluster = status.cluster.as_ref()?;
    let load = cluster.load.unwrap_or_default();
    let state = match &cluster.following {
        Some(_) => Value::text("alive").toned(Tone::Good),
        None => Value::text("alone").toned(Tone::Bad),
    };
    let why = match (&cluster.following, &cluster.problems[..]) {
        (_, [problem, ..]) => problem.clone(),
        (Some(controller), _) => format!("follows {controller}"),
        (None, _) => "no controller can be reached".into(),
    };
    Some(Row {
        id: status.instance.clone(),
        values: vec![
            Value::text(&status.instance),
            state,
            figure(load.cpu_percent),
            figure(load.memory_percent),
            figure(load.net_percent),
            figure(load.l1),
            figure(load.l2),
            Value::maybe(None, percent),
            Value::maybe(cluster.heard_seconds, |age| format!("{} ago", rough(age as u64))),
            Value::text(&cluster.kind),
            Value::text(&status.version),
            Value::text(why),
        ],
        trouble: 5,
        target: None,
        question: String::new(),
    })
}
