//! Decisions in words, a line each.

use std::time::Duration;

use equipoise_session::Reason;
use equipoise_session::config::{HashBy, LimitBy, Rate};
use equipoise_session::registry::Status;
use equipoise_session::route::{Action, Unmet};
use equipoise_session::why::{
    AffinityStep, CertificateStep, DecisionStep, DispatchStep, DoorStep, MirrorStep, PoolStep,
    QueueStep, RouteStep,
};
use equipoise_session::{LimitState, config::Protocol};

use crate::session::{leads_to, protocol, scheduler};

/// A share in per cent.
pub(super) fn percent(share: f64) -> String {
    let percent = share * 100.0;
    match percent.fract() == 0.0 || percent >= 10.0 {
        true => format!("{percent:.0} %"),
        false => format!("{percent:.1} %"),
    }
}

/// A decision of the front door.
pub(super) fn of_door(step: &DecisionStep) -> String {
    match step {
        DecisionStep::NoFrontDoor { asked, known } => no_door(asked.as_deref(), known),
        DecisionStep::FrontDoor(it) => format!("front door {} takes it", door(it)),
        DecisionStep::OtherFrontDoor(name) => {
            format!("front door \"{name}\" has the same port at another address")
        }
        DecisionStep::Certificate(it) => certificate(it),
        DecisionStep::NoCertificate { is_awaited: true } => {
            "no certificate yet: the first one for this name is ordered".into()
        }
        DecisionStep::NoCertificate { is_awaited: false } => {
            "no certificate has this name: the handshake fails".into()
        }
        DecisionStep::NoTls => "the front door has no TLS: the client's handshake fails".into(),
        DecisionStep::NeedsRequest => {
            "the front door chooses a backend for each request: ask for a URL".into()
        }
        DecisionStep::Refused(reason) => refused(*reason),
        DecisionStep::Challenge => "answered: a challenge of an ACME directory".into(),
        DecisionStep::Allowed => "access: the client's address is allowed".into(),
        DecisionStep::Limit(state) => limit(state),
        DecisionStep::Route(it) => route(it),
        DecisionStep::OtherRoutes(count) => {
            format!("{count} more routes do not match (--all explains each)")
        }
        DecisionStep::Mirror(it) => mirror(it),
        DecisionStep::NoRoute => "no route matches: the pool of the front door".into(),
        DecisionStep::Rewritten { target, host } => {
            format!("the backend gets {target}, Host {host}")
        }
        DecisionStep::ServerName(Some(name), pool) => format!("server name {name}: pool {pool}"),
        DecisionStep::ServerName(None, pool) => format!("no server name: pool {pool}"),
        DecisionStep::Redirect(status) => format!("answered: redirect {status}"),
        DecisionStep::Answer(status) => format!("answered: fixed answer {status}"),
        DecisionStep::Affinity(it) => affinity(it),
        // These have functions of their own.
        DecisionStep::Dispatch(_)
        | DecisionStep::Pool(_)
        | DecisionStep::Backend(_)
        | DecisionStep::Queue(_)
        | DecisionStep::NoBackend => String::new(),
    }
}

fn door(door: &DoorStep) -> String {
    let protocol = match (door.protocol, door.is_tls) {
        (Protocol::Http, true) => "https",
        (Protocol::Tcp, true) => "tcp with TLS",
        (other, _) => protocol(other),
    };
    format!("\"{}\" at {} ({protocol})", door.name, door.listen)
}

fn no_door(asked: Option<&str>, known: &[DoorStep]) -> String {
    let doors: Vec<_> = known.iter().map(door).collect();
    let doors = doors.join(", ");
    match asked {
        _ if known.is_empty() => "no front door takes it: there is none of this protocol".into(),
        Some(name) => format!("no front door has the name \"{name}\"; there are {doors}"),
        None => {
            format!("no front door listens there: name one with --front-door; there are {doors}")
        }
    }
}

fn certificate(step: &CertificateStep) -> String {
    let CertificateStep { asked, subject, fits, names: _ } = step;
    match (asked, fits) {
        (Some(name), true) => format!("certificate \"{subject}\" has the name {name}"),
        (Some(name), false) => {
            format!("certificate \"{subject}\" is the default: no other has the name {name}")
        }
        (None, _) => format!("certificate \"{subject}\" is the default: no name is asked for"),
    }
}

fn refused(reason: Reason) -> String {
    let why = match reason {
        Reason::SourceDenied => "the client's address is not allowed",
        Reason::RateLimited => "the client has sent too many requests",
        Reason::ConnectionsLimited => "the client has too many connections",
        Reason::ConcurrencyLimited => "the client has too many requests in flight",
        Reason::TlsMissing => "the front door speaks TLS, and the client does not",
        reason => reason.name(),
    };
    match reason.status() {
        0 => format!("refused: {why}"),
        status => format!("refused with {status}: {why}"),
    }
}

fn limit(state: &LimitState) -> String {
    let by = match &state.by {
        LimitBy::All => "all clients".to_owned(),
        LimitBy::Source(mask) => {
            format!("each client (/{} of IPv4, /{} of IPv6)", mask.bits4, mask.bits6)
        }
        LimitBy::Header(name) => format!("each value of the header {name}"),
    };
    let mut parts = Vec::new();
    if let Some((Rate { count, per, burst }, wait)) = &state.rate {
        let now = match wait.is_zero() {
            true => "not exceeded".to_owned(),
            false => format!("exceeded, for {} more", seconds(*wait)),
        };
        parts.push(format!("{count} in {} with bursts of {burst}: {now}", seconds(*per)));
    }
    if let Some((open, most)) = state.concurrency {
        let what = if state.is_of_route { "requests in flight" } else { "connections open" };
        parts.push(format!("{open} of {most} {what}"));
    }
    let of = if state.is_of_route { "route's limit" } else { "limit" };
    format!("{of} of {by}: {}", parts.join("; "))
}

fn route(step: &RouteStep) -> String {
    let RouteStep { number, name, unmet, is_missing, action } = step;
    let name = match **name == *number.to_string() {
        true => format!("route {number}"),
        false => format!("route {number} \"{name}\""),
    };
    let what = match is_missing {
        true => "is missing",
        false => "has another value",
    };
    match unmet {
        None => format!("{name}: yes: {}", action_words(action)),
        Some(Unmet::Host) => format!("{name}: no: the host does not match"),
        Some(Unmet::Path) => format!("{name}: no: the path does not match"),
        Some(Unmet::Method) => format!("{name}: no: the method does not match"),
        Some(Unmet::Header(header)) => format!("{name}: no: header {header} {what}"),
        Some(Unmet::Query(query)) => format!("{name}: no: parameter {query} {what}"),
        Some(Unmet::Source) => format!("{name}: no: the client's address does not match"),
    }
}

fn action_words(action: &Action) -> String {
    match action {
        Action::Pools(_) => format!("pool {}", leads_to(action)),
        Action::Redirect(_) | Action::Answer(_) => leads_to(action),
    }
}

fn mirror(step: &MirrorStep) -> String {
    let MirrorStep { pool, share, is_left_out } = step;
    match (is_left_out, *share >= 1.0) {
        (true, _) => format!("mirror: no copy to pool {pool}: an upgrade, or a larger body"),
        (false, true) => format!("mirror: a copy to pool {pool}"),
        (false, false) => format!("mirror: a copy of {} to pool {pool}", percent(*share)),
    }
}

fn affinity(step: &AffinityStep) -> String {
    match step {
        AffinityStep::NoCookie(name) => format!("affinity: no cookie {name}"),
        AffinityStep::Cookie { cookie, backend: None, .. } => {
            format!("affinity: cookie {cookie} names no backend that may be picked")
        }
        AffinityStep::Cookie { cookie, backend: Some(backend), has_room: true } => {
            format!("affinity: cookie {cookie} names backend {backend}")
        }
        AffinityStep::Cookie { cookie, backend: Some(backend), has_room: false } => {
            format!("affinity: cookie {cookie} names backend {backend}, which is at its limit")
        }
        AffinityStep::Hash { by, is_found: true } => format!("affinity: hash of the {}", part(by)),
        AffinityStep::Hash { by, is_found: false } => {
            format!("affinity: no {}, so the client's address is hashed", part(by))
        }
    }
}

fn part(by: &HashBy) -> String {
    match by {
        HashBy::Source => "client's address".into(),
        HashBy::Header(name) => format!("header {name}"),
        HashBy::Cookie(name) => format!("cookie {name}"),
        HashBy::Query(name) => format!("parameter {name}"),
    }
}

/// A pool.
pub(super) fn pool(step: &PoolStep, status: &Status) -> String {
    let chosen = match &step.by {
        Some(by) => format!(" by the {}", part(by)),
        None if step.share < 1.0 => {
            format!(" for {} of requests, at random", percent(step.share))
        }
        None => String::new(),
    };
    let Some(found) = status.pools.iter().find(|pool| pool.name == step.name) else {
        return format!("pool {}{chosen}", step.name);
    };
    let eligible = found.backends.iter().filter(|it| it.eligibility.is_eligible());
    let (eligible, all) = (eligible.count(), found.backends.len());
    let fails_open = match step.fails_open {
        true => "; all are unhealthy, and serve only what no peer can",
        false => "",
    };
    format!(
        "pool {}{chosen}: {} over {eligible} of {all} backends{fails_open}",
        step.name,
        scheduler(found.scheduler)
    )
}

/// Delegation.
pub(super) fn dispatch(step: &DispatchStep) -> String {
    let named = step.peers.iter().filter(|(_, share)| *share > 0.0);
    let peers: Vec<_> =
        named.map(|(name, share)| format!("peer {name} {}", percent(*share))).collect();
    let refused = match step.refuse > 0.0 {
        true => format!("; {} are refused first", percent(step.refuse)),
        false => String::new(),
    };
    let peers = match peers.is_empty() {
        true => String::new(),
        false => format!(", {}", peers.join(", ")),
    };
    format!(
        "class {}: this node serves {}{peers} (instructions: keep {}){refused}",
        step.class,
        percent(step.here),
        percent(step.keep)
    )
}

/// The queue of a pool.
pub(super) fn queue(step: &QueueStep) -> String {
    let QueueStep { waiting, length, wait, .. } = step;
    let wait = seconds(*wait);
    match (step.waits, step.awaits_backend) {
        (true, true) => format!("queue: waits at most {wait} for the first backend"),
        (true, false) => {
            format!("queue: {waiting} of at most {length} requests wait; it waits at most {wait}")
        }
        (false, _) => format!("queue: {waiting} of at most {length} requests wait"),
    }
}

/// The outcome of a request that waits.
pub(super) fn waits(step: &QueueStep) -> String {
    format!("waits at most {} in the queue", seconds(step.wait))
}

fn seconds(duration: Duration) -> String {
    format!("{} s", (duration.as_secs_f64() * 1000.0).ceil() / 1000.0)
}
