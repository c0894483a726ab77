use std::fmt::Error;

use prometheus_client::collector::Collector;
use prometheus_client::encoding::{DescriptorEncoder, MetricEncoder, NoLabelSet};
use prometheus_client::metrics::MetricType;
use prometheus_client::registry::Unit;

use super::{BackendReading, FrontDoorReading, Reading, TimeReading};
use super::{dispatch, machine, planning, slice, source, tls};
use super::{dns as dns_level, packet as packet_level};
use crate::wire::{Admin, BackendState, Health, Region};

/// The figures of one scrape.
#[derive(Debug)]
pub(super) struct Collected(pub(super) Reading);

const CLASSES: [&str; 5] = ["1xx", "2xx", "3xx", "4xx", "5xx"];

type Labels<'a> = [(&'a str, &'a str)];

impl Collector for Collected {
    fn encode(&self, mut encoder: DescriptorEncoder<'_>) -> Result<(), Error> {
        let out = &mut encoder;
        self.process(out)?;
        self.access(out)?;
        self.spans(out)?;
        self.front_door_counters(out)?;
        self.front_door_gauges(out)?;
        self.front_door_by_label(out)?;
        self.routes(out)?;
        dispatch::encode(&self.0.front_doors, out)?;
        tls::encode(&self.0.front_doors, out)?;
        tls::encode_backends(&self.0.pools, out)?;
        self.0.api_tls.as_ref().map_or(Ok(()), |it| tls::encode_api(it, out))?;
        self.backend_states(out)?;
        self.queues(out)?;
        source::encode(&self.0.pools, out)?;
        self.backend_counters(out)?;
        self.backend_by_label(out)?;
        self.0.packet.as_ref().map_or(Ok(()), |packet| packet_level::encode(packet, out))?;
        self.0.machine.as_ref().map_or(Ok(()), |it| machine::encode(it, out))?;
        self.0.planning.as_ref().map_or(Ok(()), |it| planning::encode(it, out))?;
        self.0.dns.as_ref().map_or(Ok(()), |dns| dns_level::encode(dns, out))?;
        slice::encode(&self.0.streams, out)
    }
}

impl Collected {
    fn routes(&self, out: &mut DescriptorEncoder<'_>) -> Result<(), Error> {
        let doors = self.0.front_doors.iter();
        let mut routes =
            doors.flat_map(|door| door.routes.iter().map(|it| (&*door.name, it))).peekable();
        if routes.peek().is_none() {
            return Ok(());
        }
        let help = "Requests that took a route of a front door";
        let mut family = describe(out, "route_requests", help, None, MetricType::Counter)?;
        for (door, route) in routes {
            let labels = [("front_door", door), ("route", route.name.as_str())];
            counter(&mut family, &labels, route.requests_total)?;
        }
        self.mirrors(out)
    }

    fn mirrors(&self, out: &mut DescriptorEncoder<'_>) -> Result<(), Error> {
        let mirrored = self.0.front_doors.iter().flat_map(|door| {
            let routes = door.routes.iter();
            routes.filter_map(|route| Some((&*door.name, &*route.name, route.mirror.as_ref()?)))
        });
        if mirrored.clone().next().is_none() {
            return Ok(());
        }
        let help = "Copies of a route's requests, and requests that were not copied, by outcome";
        let mut family = describe(out, "mirrored_requests", help, None, MetricType::Counter)?;
        for (door, route, mirror) in mirrored.clone() {
            for (outcome, count) in &mirror.outcomes {
                let labels = [("front_door", door), ("route", route), ("outcome", &**outcome)];
                counter(&mut family, &labels, *count)?;
            }
        }
        let help = "Copies of a route's requests in flight";
        let mut family =
            describe(out, "mirrored_requests_in_flight", help, None, MetricType::Gauge)?;
        for (door, route, mirror) in mirrored {
            let labels = [("front_door", door), ("route", route)];
            gauge(&mut family, &labels, mirror.in_flight.into())?;
        }
        Ok(())
    }

    fn process(&self, out: &mut DescriptorEncoder<'_>) -> Result<(), Error> {
        let Reading { version, instance, threads, memory, reload, .. } = &self.0;
        let mut family =
            describe(out, "build", "Version and instance of the process", None, MetricType::Info)?;
        family.encode_info(&[("version", version.as_str()), ("instance", instance.as_str())])?;
        let help = "Data-plane threads";
        let mut gauge = describe(out, "threads", help, None, MetricType::Gauge)?;
        gauge.encode_gauge(&(*threads as u64))?;
        let help = "Memory that the process has allocated and uses";
        let unit = Some(&Unit::Bytes);
        let mut gauge = describe(out, "memory_allocated", help, unit, MetricType::Gauge)?;
        gauge.encode_gauge(&memory.allocated_bytes)?;
        let help = "Allocated memory beyond which no work of clients is accepted";
        let mut gauge = describe(out, "memory_max", help, unit, MetricType::Gauge)?;
        gauge.encode_gauge(&memory.max_bytes)?;
        let help = "Reads of the configuration file, by result, the read at start included";
        let mut family = describe(out, "config_reloads", help, None, MetricType::Counter)?;
        for (result, count) in [("success", reload.succeeded), ("failure", reload.failed)] {
            counter(&mut family, &[("result", result)], count)?;
        }
        let help = "Whether the last read of the configuration file took effect";
        let mut gauge =
            describe(out, "config_last_reload_successful", help, None, MetricType::Gauge)?;
        gauge.encode_gauge(&u64::from(reload.last_succeeded))?;
        let help = "When the configuration file last took effect, since 1970";
        let name = "config_last_reload_success_timestamp";
        let mut gauge = describe(out, name, help, Some(&Unit::Seconds), MetricType::Gauge)?;
        gauge.encode_gauge(&reload.last_success_unix_seconds)
    }

    fn access(&self, out: &mut DescriptorEncoder<'_>) -> Result<(), Error> {
        let access = &self.0.access;
        let help = "Rejected requests to the API, by reason";
        let mut family = describe(out, "api_turned_away", help, None, MetricType::Counter)?;
        for (reason, count) in &access.turned_away {
            counter(&mut family, &[("reason", reason)], *count)?;
        }
        let help = "Lines that could not be written to the audit log; the process's log has them";
        let mut family = describe(out, "audit_lines_lost", help, None, MetricType::Counter)?;
        family.encode_counter::<NoLabelSet, _, u64>(&access.audit_lines_lost, None)?;
        let help = "Lines of the audit log that are not written yet: its file system may hang";
        let mut gauge = describe(out, "audit_lines_waiting", help, None, MetricType::Gauge)?;
        gauge.encode_gauge(&access.audit_lines_waiting)?;
        let help = "Lines of the log that were lost because standard error did not accept them";
        let mut family = describe(out, "log_lines_lost", help, None, MetricType::Counter)?;
        family.encode_counter::<NoLabelSet, _, u64>(&access.log_lines_lost, None)
    }

    fn spans(&self, out: &mut DescriptorEncoder<'_>) -> Result<(), Error> {
        let Some(spans) = &self.0.spans else { return Ok(()) };
        let help = "Spans of requests that the collector accepted";
        let mut family = describe(out, "spans_exported", help, None, MetricType::Counter)?;
        family.encode_counter::<NoLabelSet, _, u64>(&spans.exported, None)?;
        let help = "Spans of requests that were lost, by reason";
        let mut family = describe(out, "spans_lost", help, None, MetricType::Counter)?;
        let counts = [("queue_full", spans.queue_full), ("not_accepted", spans.not_accepted)];
        for (reason, count) in counts {
            counter(&mut family, &[("reason", reason)], count)?;
        }
        Ok(())
    }

    fn front_door_counters(&self, out: &mut DescriptorEncoder<'_>) -> Result<(), Error> {
        type Of = fn(&FrontDoorReading) -> u64;
        let families: [(&str, &str, Option<&Unit>, Of); 8] = [
            ("connections", "Connections accepted, or client addresses seen (UDP)", None, |d| {
                d.connections
            }),
            ("received", "Bytes from clients", Some(&Unit::Bytes), |d| d.bytes_in),
            ("sent", "Bytes to clients", Some(&Unit::Bytes), |d| d.bytes_out),
            ("retries", "Tries on another backend or session", None, |d| d.retries),
            (
                "hedges",
                "Requests put to a second backend, because the first response was late",
                None,
                |d| d.hedges,
            ),
            ("hedges_won", "Hedged requests that the second backend answered", None, |d| {
                d.hedges_won
            }),
            ("accept_pauses", "Pauses in accepting for lack of descriptors or room", None, |d| {
                d.accept_pauses
            }),
            ("access_log_dropped", "Access-log lines dropped", None, |d| d.access_log_dropped),
        ];
        for (name, help, unit, of) in families {
            let mut family = describe(out, name, help, unit, MetricType::Counter)?;
            for door in &self.0.front_doors {
                counter(&mut family, &door_labels(door), of(door))?;
            }
        }
        Ok(())
    }

    fn front_door_gauges(&self, out: &mut DescriptorEncoder<'_>) -> Result<(), Error> {
        let help = "Connections, or client addresses (UDP), open now";
        let mut family = describe(out, "connections_open", help, None, MetricType::Gauge)?;
        for door in &self.0.front_doors {
            gauge(&mut family, &door_labels(door), door.connections_open)?;
        }
        let help = "Requests being served now";
        let mut family = describe(out, "requests_in_flight", help, None, MetricType::Gauge)?;
        for door in self.http_front_doors() {
            gauge(&mut family, &door_labels(door), door.requests_in_flight)?;
        }
        Ok(())
    }

    fn front_door_by_label(&self, out: &mut DescriptorEncoder<'_>) -> Result<(), Error> {
        let help =
            "Requests answered, by class of the status, including answers of equipoise itself";
        let mut family = describe(out, "requests", help, None, MetricType::Counter)?;
        for door in self.http_front_doors() {
            for (code, count) in CLASSES.into_iter().zip(door.responses) {
                counter(&mut family, &with(door_labels(door), ("code", code)), count)?;
            }
        }
        let help = "From the end of a request's head to the last byte of its response";
        let name = "request_duration";
        let mut family = describe(out, name, help, Some(&Unit::Seconds), MetricType::Histogram)?;
        for door in self.http_front_doors() {
            histogram(&mut family, &door_labels(door), &door.request_time)?;
        }
        let help = "Refusals and losses, by reason";
        let mut family = describe(out, "drops", help, None, MetricType::Counter)?;
        for door in &self.0.front_doors {
            for (reason, count) in &door.drops {
                counter(&mut family, &with(door_labels(door), ("reason", reason)), *count)?;
            }
        }
        Ok(())
    }

    fn backend_states(&self, out: &mut DescriptorEncoder<'_>) -> Result<(), Error> {
        let help = "Whether the backend receives new work";
        let mut family = describe(out, "backend_up", help, None, MetricType::Gauge)?;
        for (pool, backend) in self.backends() {
            let up = u64::from(backend.state == BackendState::Up);
            gauge(&mut family, &backend_labels(pool, backend), up)?;
        }
        let help = "Health of the backend by checks and traffic; 1 for the current one";
        let mut family = describe(out, "backend_health", help, None, MetricType::Gauge)?;
        for (pool, backend) in self.backends() {
            for health in Health::ALL {
                let labels = with(backend_labels(pool, backend), ("health", health.word()));
                gauge(&mut family, &labels, u64::from(backend.health == *health))?;
            }
        }
        let help = "Admin state of the backend; 1 for the current one";
        let mut family = describe(out, "backend_admin", help, None, MetricType::Gauge)?;
        for (pool, backend) in self.backends() {
            for admin in Admin::ALL {
                let labels = with(backend_labels(pool, backend), ("admin", admin.word()));
                gauge(&mut family, &labels, u64::from(backend.admin == *admin))?;
            }
        }
        type Of = fn(&BackendReading) -> u64;
        let families: [(&str, &str, Of); 3] = [
            ("backend_weight", "The backend's weight", |b| b.weight.into()),
            ("backend_in_flight", "Requests, connections or client addresses in flight", |b| {
                b.in_flight
            }),
            ("backend_sessions_open", "Upstream sessions open now, idle ones included", |b| {
                b.sessions_open
            }),
        ];
        for (name, help, of) in families {
            let mut family = describe(out, name, help, None, MetricType::Gauge)?;
            for (pool, backend) in self.backends() {
                gauge(&mut family, &backend_labels(pool, backend), of(backend))?;
            }
        }
        Ok(())
    }

    fn queues(&self, out: &mut DescriptorEncoder<'_>) -> Result<(), Error> {
        let help = "The backend's concurrency limit; absent without one";
        let mut family = describe(out, "backend_limit", help, None, MetricType::Gauge)?;
        for (pool, backend) in self.backends() {
            if let Some(limit) = backend.limit {
                gauge(&mut family, &backend_labels(pool, backend), limit.into())?;
            }
        }
        let help = "1 for the region in which the backend works; absent without a limit";
        let mut family = describe(out, "backend_region", help, None, MetricType::Gauge)?;
        for (pool, backend) in self.backends() {
            let Some(now) = backend.region else { continue };
            for region in Region::ALL {
                let labels = with(backend_labels(pool, backend), ("region", region.word()));
                gauge(&mut family, &labels, u64::from(*region == now))?;
            }
        }
        let help = "Requests or connections that wait for a backend with room";
        let mut family = describe(out, "pool_queued", help, None, MetricType::Gauge)?;
        for pool in &self.0.pools {
            gauge(&mut family, &[("pool", &*pool.name)], pool.queued)?;
        }
        let help = "Wait of requests or connections for a backend with room";
        let name = "pool_queue_wait";
        let mut family = describe(out, name, help, Some(&Unit::Seconds), MetricType::Histogram)?;
        for pool in &self.0.pools {
            histogram(&mut family, &[("pool", &*pool.name)], &pool.queue_wait)?;
        }
        Ok(())
    }

    fn backend_counters(&self, out: &mut DescriptorEncoder<'_>) -> Result<(), Error> {
        type Of = fn(&BackendReading) -> u64;
        let families: [(&str, &str, Option<&Unit>, Of); 10] = [
            (
                "backend_requests",
                "Requests, connections or client addresses sent to the backend",
                None,
                |b| b.requests,
            ),
            ("backend_sessions_opened", "Upstream sessions opened", None, |b| b.sessions_opened),
            ("backend_sessions_reused", "Requests over an existing session", None, |b| {
                b.sessions_reused
            }),
            (
                "backend_multiplex_faults",
                "Responses with ambiguous framing, and unsolicited bytes",
                None,
                |b| b.multiplex_faults,
            ),
            (
                "backend_multiplex_shared",
                "Requests on a connection shared with other clients",
                None,
                |b| b.multiplex_shared,
            ),
            (
                "backend_multiplex_alone",
                "Requests that could share a connection and got one of their own",
                None,
                |b| b.multiplex_alone,
            ),
            (
                "backend_multiplex_handed_over",
                "Shared connections that a late or large response got for itself",
                None,
                |b| b.multiplex_handed_over,
            ),
            (
                "backend_multiplex_repeated",
                "Requests sent again because a late response was before them or their shared connection ended",
                None,
                |b| b.multiplex_repeated,
            ),
            ("backend_sent", "Bytes to the backend", Some(&Unit::Bytes), |b| b.bytes_out),
            ("backend_received", "Bytes from the backend", Some(&Unit::Bytes), |b| b.bytes_in),
        ];
        for (name, help, unit, of) in families {
            let mut family = describe(out, name, help, unit, MetricType::Counter)?;
            for (pool, backend) in self.backends() {
                counter(&mut family, &backend_labels(pool, backend), of(backend))?;
            }
        }
        Ok(())
    }

    fn backend_by_label(&self, out: &mut DescriptorEncoder<'_>) -> Result<(), Error> {
        let help = "Responses of the backend, by class of the status";
        let mut family = describe(out, "backend_responses", help, None, MetricType::Counter)?;
        for (pool, backend) in self.backends() {
            for (code, count) in CLASSES.into_iter().zip(backend.responses) {
                counter(&mut family, &with(backend_labels(pool, backend), ("code", code)), count)?;
            }
        }
        let help = "From a request sent to the backend to its response complete";
        let name = "backend_response_duration";
        let mut family = describe(out, name, help, Some(&Unit::Seconds), MetricType::Histogram)?;
        for (pool, backend) in self.backends() {
            histogram(&mut family, &backend_labels(pool, backend), &backend.response_time)?;
        }
        let help = "Time that the backend's requests had waited in the pool's queue";
        let name = "backend_queue_wait";
        let mut family = describe(out, name, help, Some(&Unit::Seconds), MetricType::Counter)?;
        for (pool, backend) in self.backends() {
            let labels = backend_labels(pool, backend);
            let mut family = family.encode_family(&labels)?;
            family.encode_counter::<NoLabelSet, _, u64>(&backend.queue_wait_seconds, None)?;
        }
        let help = "Failures of the backend, by reason";
        let mut family = describe(out, "backend_failures", help, None, MetricType::Counter)?;
        for (pool, backend) in self.backends() {
            for (reason, count) in &backend.failures {
                let labels = with(backend_labels(pool, backend), ("reason", reason));
                counter(&mut family, &labels, *count)?;
            }
        }
        Ok(())
    }

    fn http_front_doors(&self) -> impl Iterator<Item = &FrontDoorReading> {
        self.0.front_doors.iter().filter(|door| door.http)
    }

    fn backends(&self) -> impl Iterator<Item = (&str, &BackendReading)> {
        let pools = self.0.pools.iter();
        pools.flat_map(|pool| pool.backends.iter().map(|backend| (pool.name.as_str(), backend)))
    }
}

pub(super) fn describe<'a>(
    out: &'a mut DescriptorEncoder<'_>,
    name: &'a str,
    help: &str,
    unit: Option<&'a Unit>,
    kind: MetricType,
) -> Result<MetricEncoder<'a>, Error> {
    // The library writes the help text unchanged, and adds no full stop here.
    out.encode_descriptor(name, &format!("{help}."), unit, kind)
}

fn door_labels(door: &FrontDoorReading) -> [(&str, &str); 2] {
    [("front_door", &door.name), ("pool", &door.pool)]
}

fn backend_labels<'a>(pool: &'a str, backend: &'a BackendReading) -> [(&'a str, &'a str); 2] {
    [("pool", pool), ("backend", &backend.name)]
}

fn with<'a>([a, b]: [(&'a str, &'a str); 2], c: (&'a str, &'a str)) -> [(&'a str, &'a str); 3] {
    [a, b, c]
}

/// Converts per cent to the ratio that metrics use.
pub(super) fn ratio(percent: f64) -> f64 {
    percent / 100.0
}

pub(super) fn counter(
    family: &mut MetricEncoder<'_>,
    labels: &Labels<'_>,
    value: u64,
) -> Result<(), Error> {
    family.encode_family(&labels)?.encode_counter::<NoLabelSet, _, u64>(&value, None)
}

pub(super) fn gauge(
    family: &mut MetricEncoder<'_>,
    labels: &Labels<'_>,
    value: u64,
) -> Result<(), Error> {
    family.encode_family(&labels)?.encode_gauge(&value)
}

pub(super) fn histogram(
    family: &mut MetricEncoder<'_>,
    labels: &Labels<'_>,
    time: &TimeReading,
) -> Result<(), Error> {
    let mut metric = family.encode_family(&labels)?;
    metric.encode_histogram::<NoLabelSet>(time.sum_seconds, time.count(), &time.buckets, None)
}
