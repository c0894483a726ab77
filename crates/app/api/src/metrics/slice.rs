//! Metrics of the slice level, for streams that this controller leads.

use std::fmt::Error;

use prometheus_client::encoding::DescriptorEncoder;
use prometheus_client::metrics::MetricType;
use prometheus_client::registry::Unit;

use super::TimeReading;
use super::collector::{counter, describe, gauge, histogram};
use crate::wire::slice::{SliceCheckpoints, SliceWorker, StreamStatus, WorkerState};

/// A stream's figures.
#[derive(Clone, Debug, PartialEq)]
pub struct StreamReading {
    /// Its status, with zero counts for workers' drops.
    pub status: StreamStatus,
    /// Duration of handovers that moved their slices.
    pub handover_time: TimeReading,
}

pub(super) fn encode(
    streams: &[StreamReading],
    out: &mut DescriptorEncoder<'_>,
) -> Result<(), Error> {
    if streams.is_empty() {
        return Ok(());
    }
    by_stream(streams, out)?;
    handovers(streams, out)?;
    by_worker(streams, out)
}

fn by_stream(streams: &[StreamReading], out: &mut DescriptorEncoder<'_>) -> Result<(), Error> {
    let help = "Whether this controller leads the stream; otherwise it has no other figures of it";
    let mut family = describe(out, "slice_leads", help, None, MetricType::Gauge)?;
    for StreamReading { status, .. } in streams {
        gauge(&mut family, &[("stream", &status.name)], u64::from(status.leading))?;
    }
    let help = "Workers of the stream, by state";
    let mut family = describe(out, "slice_workers", help, None, MetricType::Gauge)?;
    for status in leading(streams) {
        for state in WorkerState::ALL {
            let count = status.workers.iter().filter(|worker| worker.state == state).count();
            let labels = [("stream", status.name.as_str()), ("state", state.word())];
            gauge(&mut family, &labels, count as u64)?;
        }
    }
    let help = "Slices that no worker owns";
    let mut family = describe(out, "slice_unowned", help, None, MetricType::Gauge)?;
    for status in leading(streams) {
        let count = status.slices.iter().filter(|slice| slice.owner.is_none()).count();
        gauge(&mut family, &[("stream", &status.name)], count as u64)?;
    }
    let help = "Slices that are too large to be balanced";
    let mut family = describe(out, "slice_hot", help, None, MetricType::Gauge)?;
    for status in leading(streams) {
        gauge(&mut family, &[("stream", &status.name)], status.hot.len() as u64)?;
    }
    let help = "Publishers on the topic of items that no worker can read";
    let mut family = describe(out, "slice_publishers_unread", help, None, MetricType::Gauge)?;
    for status in leading(streams) {
        gauge(&mut family, &[("stream", &status.name)], status.unread.len() as u64)?;
    }
    let help = "Connections to the port for workers' connections that were refused";
    let mut family = describe(out, "slice_connections_strange", help, None, MetricType::Counter)?;
    for status in leading(streams) {
        counter(&mut family, &[("stream", &status.name)], status.connections_strange_total)?;
    }
    let help = "Load of the most loaded worker over the mean, as a share of the mean";
    let mut family = describe(out, "slice_imbalance_ratio", help, None, MetricType::Gauge)?;
    for status in leading(streams) {
        let labels = [("stream", status.name.as_str())];
        family.encode_family(&labels)?.encode_gauge(&status.imbalance)?;
    }
    Ok(())
}

fn handovers(streams: &[StreamReading], out: &mut DescriptorEncoder<'_>) -> Result<(), Error> {
    let help = "Completed handovers, by whether the slices moved or stayed";
    let mut family = describe(out, "slice_handovers", help, None, MetricType::Counter)?;
    for status in leading(streams) {
        for (result, count) in [
            ("moved", status.handovers_moved_total),
            ("called_off", status.handovers_called_off_total),
        ] {
            counter(&mut family, &[("stream", &status.name), ("result", result)], count)?;
        }
    }
    let help = "Handovers in progress";
    let mut family = describe(out, "slice_handovers_open", help, None, MetricType::Gauge)?;
    for status in leading(streams) {
        gauge(&mut family, &[("stream", &status.name)], status.handovers.len() as u64)?;
    }
    let help = "From the start of a handover until the new owner was active";
    let name = "slice_handover_duration";
    let mut family = describe(out, name, help, Some(&Unit::Seconds), MetricType::Histogram)?;
    for stream in streams.iter().filter(|stream| stream.status.leading) {
        let labels = [("stream", stream.status.name.as_str())];
        histogram(&mut family, &labels, &stream.handover_time)?;
    }
    Ok(())
}

/// Of streams with checkpoints.
fn checkpoints(streams: &[StreamReading], out: &mut DescriptorEncoder<'_>) -> Result<(), Error> {
    let taken = || workers(streams).filter_map(|(s, it)| Some((s, it, it.checkpoints.as_ref()?)));
    if taken().next().is_none() {
        return Ok(());
    }
    let help = "Age of the oldest checkpoint of a worker's slices that lacks items";
    let name = "slice_checkpoint_age";
    let mut family = describe(out, name, help, Some(&Unit::Seconds), MetricType::Gauge)?;
    for (stream, worker, of) in taken() {
        let labels = [("stream", stream), ("worker", worker.name.as_str())];
        family.encode_family(&labels)?.encode_gauge(&of.age_seconds)?;
    }
    type Of = fn(&SliceCheckpoints) -> u64;
    let gauges: [(&str, &str, Of); 3] = [
        (
            "slice_checkpoint_items",
            "Items that a worker processed since the last checkpoints of their slices",
            |of| of.items_since,
        ),
        (
            "slice_checkpoint_exposed_slices",
            "Slices of a worker with a state that is in no checkpoint at its keeper",
            |of| of.slices_exposed.into(),
        ),
        (
            "slice_checkpoint_unstored_slices",
            "Slices of a worker with a state that is in no checkpoint in the folder",
            |of| of.slices_unstored.unwrap_or(0).into(),
        ),
    ];
    for (name, help, count) in gauges {
        let mut family = describe(out, name, help, None, MetricType::Gauge)?;
        for (stream, worker, of) in taken() {
            gauge(&mut family, &[("stream", stream), ("worker", &worker.name)], count(of))?;
        }
    }
    Ok(())
}

fn by_worker(streams: &[StreamReading], out: &mut DescriptorEncoder<'_>) -> Result<(), Error> {
    type Of = fn(&SliceWorker) -> u64;
    let gauges: [(&str, &str, Of); 2] = [
        ("slice_slices", "Slices that a worker owns", |it| u64::from(it.slices)),
        ("slice_queued", "Items that wait at a worker or are in progress", |it| it.queued),
    ];
    for (name, help, of) in gauges {
        let mut family = describe(out, name, help, None, MetricType::Gauge)?;
        for (stream, worker) in workers(streams) {
            gauge(&mut family, &[("stream", stream), ("worker", &worker.name)], of(worker))?;
        }
    }
    let help = "Load of a worker: cores that its slices occupy, or would occupy";
    let mut family = describe(out, "slice_worker_load_cores", help, None, MetricType::Gauge)?;
    for (stream, worker) in workers(streams) {
        let labels = [("stream", stream), ("worker", worker.name.as_str())];
        family.encode_family(&labels)?.encode_gauge(&worker.load)?;
    }
    type Seconds = fn(&SliceWorker) -> f64;
    let times: [(&str, &str, Seconds); 2] = [
        ("slice_queue_age", "Wait of the oldest item at a worker", |it| it.queue_age_seconds),
        (
            "slice_stalled",
            "Time for which a worker's program has had items and acknowledged none",
            |it| it.stalled_seconds,
        ),
    ];
    for (name, help, of) in times {
        let mut family = describe(out, name, help, Some(&Unit::Seconds), MetricType::Gauge)?;
        for (stream, worker) in workers(streams) {
            let labels = [("stream", stream), ("worker", worker.name.as_str())];
            family.encode_family(&labels)?.encode_gauge(&of(worker))?;
        }
    }
    checkpoints(streams, out)?;
    let help = "Items that a worker has processed since it started";
    let mut family = describe(out, "slice_items", help, None, MetricType::Counter)?;
    for (stream, worker) in workers(streams) {
        let labels = [("stream", stream), ("worker", worker.name.as_str())];
        counter(&mut family, &labels, worker.items_total)?;
    }
    let help = "Items that a worker dropped since it started, by reason";
    let mut family = describe(out, "slice_drops", help, None, MetricType::Counter)?;
    for (stream, worker) in workers(streams) {
        for (reason, count) in &worker.drops {
            let labels = [("stream", stream), ("worker", &worker.name), ("reason", reason)];
            counter(&mut family, &labels, *count)?;
        }
    }
    Ok(())
}

fn leading(streams: &[StreamReading]) -> impl Iterator<Item = &StreamStatus> {
    streams.iter().map(|stream| &stream.status).filter(|status| status.leading)
}

fn workers(streams: &[StreamReading]) -> impl Iterator<Item = (&str, &SliceWorker)> {
    leading(streams)
        .flat_map(|status| status.workers.iter().map(|worker| (status.name.as_str(), worker)))
}
