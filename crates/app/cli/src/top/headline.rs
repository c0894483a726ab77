//! The headline: "All well", or the worst fact and what to do.
//!
//! The dashboard judges by the same rules in `web/src/pure/headline.ts`. Both are tested with the
//! cases of `web/test/headline.json`.

use equipoise_api::wire::{
    Admin, BackendState, BackendStatus, FrontDoorStatus, Phase, PoolStatus, Status,
};
use equipoise_basics::{counted, two_units};

use super::figures::number;
use super::rates::{REFUSING, Rates};

/// How bad a fact is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Severity {
    /// Clients notice it.
    Bad,
    /// Clients may notice it soon, or a part does not work.
    Warn,
}

/// A fact that an operator has to know.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Fact {
    pub(super) severity: Severity,
    pub(super) text: String,
    /// The action that ends it.
    pub(super) remedy: String,
}

/// Days before the end of a certificate from which it is a fact.
const CERTIFICATE_DAYS: i64 = 14;

/// Part of the flow registry in use from which it is a fact.
const FLOWS_FULL: f64 = 0.9;

/// Rate of refusals, per second, from which they are a fact.
const REFUSED_MIN: f64 = 0.05;

/// Refusals that are normal on a public address, whose clients cause them.
const OF_CLIENTS: [&str; 25] = [
    "client_gone",
    "client_stalled",
    "idle_timeout",
    "header_timeout",
    "body_timeout",
    "request_malformed",
    "request_framing",
    "request_host",
    "request_path",
    "header_underscore",
    "request_head_too_large",
    "request_body_too_large",
    "method_not_allowed",
    "version_not_supported",
    "coding_not_implemented",
    "expectation_failed",
    "source_denied",
    "tls_missing",
    "tls_handshake",
    "tls_timeout",
    "http2_protocol",
    "http3_protocol",
    "proxy_untrusted",
    "client_evicted",
    "no_room",
];

fn remedy(reason: &str) -> &'static str {
    match reason {
        "queue_full" => "add backends, or raise `concurrency` or `queue.length`",
        "queue_timeout" => "add backends, or raise `concurrency` or `queue.wait`",
        "overloaded" => "add nodes, or change `load.admit`",
        "rate_limited" => "a client exceeds a limit: look at `rate` and `burst`",
        "concurrency_limited" => "a client exceeds the `concurrency` of a route's limit",
        "connections_limited" => "a client exceeds the `connections` of a limit",
        "out_of_resources" => "raise `LimitNOFILE`, or free local ports",
        "memory_short" => "add memory, or raise `instance.memory-max`",
        "connect_refused" => "start the backend",
        _ => "docs/operations/drops.md says what to look at",
    }
}

/// Every fact, the worst first.
pub(super) fn facts(status: &Status, degraded: &[String], rates: Option<&Rates>) -> Vec<Fact> {
    let mut facts = Facts::default();
    facts.of_process(status);
    facts.of_pools(&status.pools);
    facts.of_refusals(rates);
    facts.of_dns(status);
    facts.of_packet(status);
    facts.of_certificates(status);
    facts.of_control(status);
    facts.of_streams(status);
    facts.of_health(degraded, status);
    facts.0.sort_by_key(|fact| fact.severity);
    facts.0
}

/// The fact that the process has not answered for a while.
pub(super) fn silence(seconds: u64) -> Fact {
    Fact {
        severity: Severity::Bad,
        text: format!("No answer from equipoise for {}", two_units(seconds)),
        remedy: "the figures below are old; top tries again by itself".into(),
    }
}

#[derive(Default)]
struct Facts(Vec<Fact>);

impl Facts {
    fn bad(&mut self, text: impl Into<String>, remedy: impl Into<String>) {
        self.0.push(Fact { severity: Severity::Bad, text: text.into(), remedy: remedy.into() });
    }

    fn warn(&mut self, text: impl Into<String>, remedy: impl Into<String>) {
        self.0.push(Fact { severity: Severity::Warn, text: text.into(), remedy: remedy.into() });
    }

    fn of_process(&mut self, status: &Status) {
        if status.phase == Phase::Stopping {
            self.bad("The process is stopping", "it finishes its work and takes no more");
        }
        if let Some(reload) = status.last_reload.as_ref().filter(|reload| !reload.succeeded) {
            let first = reload.errors.first().map_or("no reason was given", |error| error);
            self.warn(
                format!("The last reload failed: {first}"),
                format!(
                    "the earlier configuration is in force; correct {} and reload",
                    status.config_file
                ),
            );
        }
    }

    fn of_pools(&mut self, pools: &[PoolStatus]) {
        for pool in pools {
            let name = &pool.name;
            self.of_backends(pool);
            if pool.queued > 0 {
                self.warn(
                    format!(
                        "{} wait for a backend of pool {name}",
                        counted(pool.queued, "request")
                    ),
                    "every backend is at its limit: add backends or raise `concurrency`",
                );
            }
            let source = pool.source.as_ref();
            if let Some((source, problem)) =
                source.and_then(|source| Some((&source.source, source.problem.as_ref()?)))
            {
                self.warn(
                    format!("The source of pool {name} fails: {problem}"),
                    format!("its last good set is in use; see {source}"),
                );
            }
            if let Some(lost) = pool.backends.iter().find(|backend| backend.multiplexing_lost) {
                self.warn(
                    format!(
                        "{name}/{} lost multiplexing: it sent bytes that cannot be framed",
                        lost.name
                    ),
                    "repair the backend, then drain and undrain it",
                );
            }
        }
    }

    fn of_backends(&mut self, pool: &PoolStatus) {
        let name = &pool.name;
        let is_failing = |backend: &&BackendStatus| backend.state == BackendState::Unhealthy;
        let failing: Vec<_> = pool.backends.iter().filter(is_failing).collect();
        let because = failing.first().map(|first| because(first)).unwrap_or_default();
        if !pool.backends.is_empty() && pool.backends_eligible == 0 {
            let drained = pool.backends.iter().find(|backend| backend.admin != Admin::Up);
            let remedy = match drained {
                Some(backend) => {
                    format!("undrain {name}/{}, or start a backend", backend.name)
                }
                None => "start a backend, or see what its checks get".into(),
            };
            self.bad(format!("Pool {name} has no backend that takes work{because}"), remedy);
        } else if !failing.is_empty() {
            let count = counted(failing.len() as u64, "backend");
            let verb = if failing.len() == 1 { "is" } else { "are" };
            let of = pool.backends.len();
            self.warn(
                format!("{count} of {of} in pool {name} {verb} unhealthy{because}"),
                "the others serve; see what its checks get",
            );
        }
    }

    fn of_refusals(&mut self, rates: Option<&Rates>) {
        let Some(rates) = rates else { return };
        for level in REFUSING {
            for (reason, rate) in rates.refused(level) {
                // A pool without backends is a fact already.
                let is_of_clients = OF_CLIENTS.contains(&reason) || reason == "no_backend";
                if is_of_clients || rate < REFUSED_MIN {
                    continue;
                }
                let words = reason.replace('_', " ");
                self.bad(
                    format!("The {level} level refuses {}/s: {words}", number(rate)),
                    remedy(reason),
                );
            }
        }
    }

    fn of_dns(&mut self, status: &Status) {
        let names = status.dns.iter().flat_map(|dns| &dns.names);
        for name in names.filter(|name| name.fail_open) {
            self.bad(
                format!(
                    "No backend of the name {} serves; its answers have backends that do not",
                    name.name
                ),
                "start one of its backends",
            );
        }
    }

    fn of_packet(&mut self, status: &Status) {
        let Some(packet) = &status.packet else { return };
        for interface in &packet.interfaces {
            if matches!(&*interface.state, "failed" | "absent") {
                let name = &interface.name;
                let detail = interface.detail.iter().map(|detail| format!(": {detail}"));
                self.bad(
                    format!("The packet program is not on {name}{}", detail.collect::<String>()),
                    format!("bring up the interface {name}"),
                );
            }
        }
        for vip in &packet.vips {
            let absent: Vec<_> =
                vip.source_addresses.iter().filter(|it| it.state == "absent").collect();
            let Some(first) = absent.first() else { continue };
            let remedy = format!("give {} to an interface: `ip addr add`", first.address);
            let name = &vip.vip;
            if vip.source_addresses.iter().any(|it| it.state == "own") {
                let text =
                    format!("This machine lacks the source address {} of {name}", first.address);
                self.warn(text, remedy);
            } else {
                self.bad(format!("This machine has no source address of {name}"), remedy);
            }
        }
        let (flows, max) = (packet.flows as f64, packet.flows_max as f64);
        if flows >= max * FLOWS_FULL {
            self.warn(
                format!("{} of {} flows are in use", number(flows), number(max)),
                "raise `[flows] max`",
            );
        }
    }

    fn of_certificates(&mut self, status: &Status) {
        let of_door = |door: &'_ FrontDoorStatus| (door.name.clone(), door.tls.clone());
        let doors = status.front_doors.iter().map(of_door);
        let api = [("the API".to_owned(), status.api_tls.clone())];
        for (name, tls) in doors.chain(api) {
            let Some(tls) = tls else { continue };
            for certificate in &tls.certificates {
                let (subject, chain) = (&certificate.subject, &certificate.chain);
                let days = certificate.days_left;
                let counted_days = counted(days.unsigned_abs(), "day");
                let replace = format!("replace {chain}");
                if days < 0 {
                    let text =
                        format!("The certificate {subject} of {name} expired {counted_days} ago");
                    self.bad(text, replace);
                } else if days < CERTIFICATE_DAYS {
                    let text =
                        format!("The certificate {subject} of {name} expires in {counted_days}");
                    self.warn(text, replace);
                }
                if let Some(problem) = &certificate.problem {
                    self.warn(
                        format!("The new certificate of {name} cannot be used: {problem}"),
                        format!("correct {chain}; the earlier one is in use"),
                    );
                }
            }
            for automatic in &tls.automatic {
                if let Some(error) = &automatic.last_error {
                    self.warn(
                        format!("The certificate of {} was not issued: {error}", automatic.name),
                        "it is tried again by itself",
                    );
                }
            }
        }
    }

    fn of_control(&mut self, status: &Status) {
        let controller = status.controller.as_ref();
        if let Some((controller, problem)) =
            controller.and_then(|controller| Some((controller, controller.problem.as_ref()?)))
        {
            self.warn(problem, controller.remedy.as_deref().unwrap_or("see the log"));
        }
        for problem in status.cluster.iter().flat_map(|cluster| &cluster.problems) {
            self.warn(problem, "see `equipoise cluster members`");
        }
    }

    fn of_streams(&mut self, status: &Status) {
        for stream in &status.streams {
            let name = &stream.name;
            if let Some(problem) = &stream.problem {
                self.warn(format!("Stream {name}: {problem}"), "see the slices");
            }
            if stream.leading && stream.slices_unowned > 0 {
                let slices = counted(stream.slices_unowned.into(), "slice");
                self.bad(format!("No worker owns {slices} of stream {name}"), "start a worker");
            }
        }
    }

    /// Degraded parts that no other fact explains.
    fn of_health(&mut self, degraded: &[String], status: &Status) {
        let is_explained = status.controller.as_ref().is_some_and(|it| it.problem.is_some());
        for part in degraded {
            if part == "discovery" || (part == "controller" && is_explained) {
                continue;
            }
            self.warn(format!("Degraded: {part}"), "traffic goes on; the log has the reason");
        }
    }
}

fn because(backend: &BackendStatus) -> String {
    match &backend.health_detail {
        Some(detail) => format!(": {}, {detail}", backend.name),
        None => format!(": {}", backend.name),
    }
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;
    use crate::top::samples::{backend, status};

    const CASES: &str = include_str!("../../../../../web/test/headline.json");

    #[test]
    fn the_dashboard_and_top_judge_alike() {
        let cases: Vec<Value> = serde_json::from_str(CASES).expect("it is JSON");
        for case in cases {
            let only = vec![json!({ "name": "b1" })];
            let backends = case["backends"].as_array().unwrap_or(&only).iter();
            let backends: Vec<_> = backends.map(|it| backend("", it)).collect();
            let none = json!({});
            let mut status = status(&backends, case.get("changes").unwrap_or(&none));
            let pool = &mut status.pools[0];
            pool.queued = case["pool"]["queued"].as_u64().unwrap_or(0);
            pool.source = serde_json::from_value(case["pool"]["source"].clone()).expect("a source");
            let texts = |value: &Value| -> Vec<String> {
                let texts = value.as_array().into_iter().flatten();
                texts.map(|text| text.as_str().expect("a text").to_owned()).collect()
            };
            let mut refused = Vec::new();
            for (level, reasons) in case["refused"].as_object().into_iter().flatten() {
                for (reason, rate) in reasons.as_object().into_iter().flatten() {
                    refused.push((&**level, &**reason, rate.as_f64().expect("a rate")));
                }
            }
            let rates = Rates::of_refusals(&refused);
            let found = facts(&status, &texts(&case["degraded"]), Some(&rates));
            let word = |severity| if severity == Severity::Bad { "bad" } else { "warn" };
            let found: Vec<_> =
                found.iter().map(|it| json!([word(it.severity), it.text, it.remedy])).collect();
            assert_eq!(Value::from(found), case["facts"], "{}", case["name"]);
        }
    }
}
