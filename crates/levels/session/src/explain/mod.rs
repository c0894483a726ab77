//! Explanations: the front door that takes a connection, and its decisions before it picks a
//! backend.

mod pool;

use std::net::IpAddr;
use std::sync::Arc;

use crate::config::Protocol;
use crate::http;
use crate::permits::Work;
use crate::reason::Reason;
use crate::snapshot::{FrontDoorView, Snapshot};
use crate::why::{CertificateStep, DecisionStep, DoorStep, Explainer, Goes, Question};
use pool::explain_pool;

impl Explainer {
    /// The decisions about a request or connection, in their order. The last ones are the backends
    /// that may serve it, unless an earlier step ends it.
    pub fn explain(&self, snapshot: &Snapshot, question: &Question) -> Vec<DecisionStep> {
        let mut steps = Vec::new();
        explain(self, snapshot, question, &mut steps);
        steps
    }
}

fn explain(
    explainer: &Explainer,
    snapshot: &Snapshot,
    question: &Question,
    steps: &mut Vec<DecisionStep>,
) {
    let Some(view) = find(&snapshot.front_doors, question, steps) else { return };
    if !is_tls_right(view, question, steps) {
        return;
    }
    let goes = match (view.config.protocol, question.protocol) {
        (Protocol::Http, Protocol::Http) => {
            http::explain(explainer, snapshot, view, question, steps)
        }
        (Protocol::Http, _) => {
            if is_let_in(view, question, steps) {
                steps.push(DecisionStep::NeedsRequest);
            }
            None
        }
        _ => connection(snapshot, view, question, steps),
    };
    let Some(goes) = goes else { return };
    for (at, share) in &goes.pools {
        explain_pool(explainer, snapshot, view, question, &goes, (*at, *share), steps);
    }
}

/// The pools of a connection or datagram.
fn connection(
    snapshot: &Snapshot,
    view: &FrontDoorView,
    question: &Question,
    steps: &mut Vec<DecisionStep>,
) -> Option<Goes> {
    if !is_let_in(view, question, steps) {
        return None;
    }
    let name = question.server_name.as_deref();
    let pool = view.pool_for(name);
    if !view.sni.is_empty() {
        let name = snapshot.pools.get(pool).map(|pool| Arc::clone(&pool.name));
        steps
            .push(DecisionStep::ServerName(question.server_name.clone(), name.unwrap_or_default()));
    }
    let (pools, head) = (vec![(pool, 1.0)], Vec::new());
    Some(Goes { pools, by: None, work: Work::Usual, head })
}

/// Whether access list and limits of the front door let a connection in.
fn is_let_in(view: &FrontDoorView, question: &Question, steps: &mut Vec<DecisionStep>) -> bool {
    view.explain_access(question.client, steps)
        && view.explain_limits(question.client, b"", None, steps)
}

/// The front door that takes it.
fn find<'s>(
    doors: &'s [Arc<FrontDoorView>],
    question: &Question,
    steps: &mut Vec<DecisionStep>,
) -> Option<&'s FrontDoorView> {
    let is_udp = |protocol: Protocol| protocol == Protocol::Udp;
    let of_transport =
        |door: &&Arc<FrontDoorView>| is_udp(door.config.protocol) == is_udp(question.protocol);
    let doors: Vec<_> = doors.iter().filter(of_transport).collect();
    let is_named = |door: &&&Arc<FrontDoorView>| match &question.front_door {
        Some(name) => *door.config.name == **name,
        None => listens_at(door, question),
    };
    let mut found: Vec<_> = doors.iter().filter(is_named).copied().collect();
    // The kernel prefers a socket of the address to one of every address.
    found.sort_by_key(|door| {
        let has_other_tls = question.tls.is_some_and(|tls| tls != door.config.tls.is_some());
        (has_other_tls, door.config.listen.ip().is_unspecified())
    });
    let Some((first, others)) = found.split_first() else {
        let known = doors.iter().map(|door| shown(door)).collect();
        steps.push(DecisionStep::NoFrontDoor { asked: question.front_door.clone(), known });
        return None;
    };
    steps.push(DecisionStep::FrontDoor(shown(first)));
    let others = others.iter().filter(|_| question.address.is_none());
    steps.extend(others.map(|door| DecisionStep::OtherFrontDoor(Arc::clone(&door.config.name))));
    Some(first)
}

fn listens_at(door: &FrontDoorView, question: &Question) -> bool {
    let listen = door.config.listen;
    let is_address = |asked: IpAddr| {
        let is_every = listen.ip().is_unspecified() && listen.is_ipv4() == asked.is_ipv4();
        listen.ip() == asked || is_every
    };
    listen.port() == question.port && question.address.is_none_or(is_address)
}

fn shown(door: &FrontDoorView) -> DoorStep {
    let config = &door.config;
    DoorStep {
        name: Arc::clone(&config.name),
        listen: config.listen,
        protocol: config.protocol,
        is_tls: config.tls.is_some(),
    }
}

/// Whether the client and the front door agree about TLS.
fn is_tls_right(view: &FrontDoorView, question: &Question, steps: &mut Vec<DecisionStep>) -> bool {
    let asked = question.server_name.as_deref();
    match (&view.config.tls, question.tls) {
        (Some(_), Some(false)) => {
            steps.push(DecisionStep::Refused(Reason::TlsMissing));
            false
        }
        (Some(tls), _) => {
            let Some(certificate) = tls.certificate_for(asked) else {
                steps.push(DecisionStep::NoCertificate { is_awaited: tls.awaits(asked) });
                return false;
            };
            let fits = |name: &String| match name.strip_prefix("*.") {
                Some(parent) => {
                    asked.and_then(|it| it.split_once('.')).map(|it| it.1) == Some(parent)
                }
                None => asked == Some(name),
            };
            steps.push(DecisionStep::Certificate(CertificateStep {
                asked: question.server_name.clone(),
                subject: certificate.subject().to_owned(),
                names: certificate.names().to_vec(),
                fits: certificate.names().iter().any(fits),
            }));
            true
        }
        (None, Some(true)) if view.config.protocol == Protocol::Http => {
            steps.push(DecisionStep::NoTls);
            false
        }
        (None, _) => true,
    }
}
