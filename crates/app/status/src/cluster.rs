//! The state of a member in its cluster.

use std::net::IpAddr;
use std::time::{Duration, SystemTime};

use equipoise_api::metrics::PlanningReading;
use equipoise_api::wire::cluster::{ClusterStanding, ControllerContact, OwnLoad};
use equipoise_cluster::{ControllerAddress, NodeStatus, ReportStatus};
use equipoise_controller::NodeKind;
use equipoise_core::load::{Coefficients, Signals};
use equipoise_monitor::Utilisation;
use equipoise_planning::capacity;

/// The state of a node or agent in its cluster, in the API's form.
pub fn standing(kind: NodeKind, status: &NodeStatus, load: Option<OwnLoad>) -> ClusterStanding {
    let reports = status.reports.values().filter_map(|one| one.problem.as_ref());
    let problems = [&status.certificate_problem, &status.follow_problem, &status.keep_problem];
    let problems = problems.into_iter().flatten();
    let mut problems: Vec<String> = problems.chain(reports).cloned().collect();
    problems.sort();
    problems.dedup();
    let left = |until: SystemTime| until.duration_since(SystemTime::now()).unwrap_or_default();
    let seconds = |ago: Option<Duration>| ago.map(|ago| ago.as_secs_f64());
    let contact = |(address, one): (&String, &ReportStatus)| ControllerContact {
        address: address.clone(),
        tried_seconds: seconds(one.tried),
        heard_seconds: seconds(one.heard),
        reports_taken_total: one.taken,
        reports_failed_total: one.failed,
        problem: one.problem.clone(),
    };
    ClusterStanding {
        kind: kind.to_string(),
        following: status.following.clone(),
        term: status.edition.map(|edition| edition.term),
        generation: status.edition.map(|edition| edition.generation),
        age_seconds: seconds(status.instructions_age),
        heard_seconds: seconds(status.heard()),
        controllers: status.reports.iter().map(contact).collect(),
        load,
        kept: status.is_kept,
        certificate_seconds: status.certificate_until.map(|until| left(until).as_secs_f64()),
        problems,
        stale: status.stale,
        not_understood: status.not_understood,
    }
}

/// The load of this machine by its own measurement.
pub fn own_load(used: &Utilisation, weigh: &Coefficients) -> OwnLoad {
    let signals = used.cpu_percent.zip(used.memory_percent);
    let signals = signals.map(|(cpu, memory)| Signals { cpu, memory, net: used.net_percent });
    OwnLoad {
        capacity: capacity(Some(used)),
        cpu_percent: used.cpu_percent,
        machine_cpu_percent: used.cpu_machine_percent,
        memory_percent: used.memory_percent,
        net_percent: used.net_percent,
        l1: signals.map(|signals| weigh.l1(&signals).get()),
        l2: signals.map(|signals| weigh.l2(&signals)),
    }
}

/// Where to run a command that a node cannot serve: at the controller that it follows, or else at
/// the first one.
pub fn ask_there(status: &NodeStatus, command: &str) -> String {
    let first = status.following.as_deref();
    let first = first.or(status.reports.keys().next().map(String::as_str));
    let first = first.and_then(|address| address.parse::<ControllerAddress>().ok());
    let on_this_machine = |host: &str| {
        host == "localhost" || host.parse::<IpAddr>().is_ok_and(|host| host.is_loopback())
    };
    let line = match first {
        Some(it) if on_this_machine(it.host()) => {
            format!("equipoise {command} --api SOCKET, with the `api.socket` of {it}")
        }
        Some(it) => format!("ssh {} equipoise {command}", it.host()),
        None => format!("`equipoise {command}` on a controller's machine"),
    };
    format!("run it on a controller: {line}; the controllers are {}", names(status))
}

/// The controllers in a node's file.
pub fn names(status: &NodeStatus) -> String {
    status.reports.keys().map(String::as_str).collect::<Vec<_>>().join(", ")
}

/// A node's figures about its cluster, for metrics. `up` is the time in which it could have
/// received instructions.
pub fn reading(status: &NodeStatus, up: Duration) -> PlanningReading {
    let edition = status.edition.unwrap_or_default();
    PlanningReading {
        term: edition.term,
        generation: edition.generation,
        age_seconds: status.instructions_age.unwrap_or(up).as_secs_f64(),
        cluster: vec![
            ("instructions_stale".to_string(), status.stale),
            ("instructions_not_understood".to_string(), status.not_understood),
            ("reports_taken".to_string(), status.reports.values().map(|it| it.taken).sum()),
            ("reports_failed".to_string(), status.reports.values().map(|it| it.failed).sum()),
        ],
        ..PlanningReading::default()
    }
}
