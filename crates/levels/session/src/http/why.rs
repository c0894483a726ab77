//! Where a request goes at an HTTP front door, by the functions that serve requests.

use std::sync::Arc;

use equipoise_routes::Unmet;

use super::challenge;
use super::head::HeadScanner;
use super::redirect::{RequestLine, to_https};
use super::request::{Marker, Origin, RequestHead, read_request, unmet_by_route};
use super::routed::pool_of;
use super::routing::{Hit, pool_hash};
use super::version::ClientVersion;
use crate::affinity::{fields, parameter};
use crate::reason::Reason;
use crate::route::{Action, RouteConfig};
use crate::snapshot::{FrontDoorView, Snapshot};
use crate::why::{DecisionStep, Explainer, Goes, MirrorStep, Question, RouteStep};
use crate::worker::{ClientHashes, explain_dispatch};

/// Adds the decisions about a request. Returns its pools, unless the proxy answers it.
pub(crate) fn explain(
    explainer: &Explainer,
    snapshot: &Snapshot,
    view: &FrontDoorView,
    question: &Question,
    steps: &mut Vec<DecisionStep>,
) -> Option<Goes> {
    let origin = Origin {
        client: question.client,
        door: &view.config,
        challenges: &explainer.challenges,
        instance: &explainer.instance,
        peer: None,
        identity: None,
        version: ClientVersion::Http1,
    };
    let mut out = Vec::new();
    let read = read_request(&question.head, &mut HeadScanner::default(), &origin, &mut out);
    let head = match read.and_then(|head| head.ok_or(Reason::RequestMalformed)) {
        Ok(head) => head,
        Err(reason) => return refused(reason, steps),
    };
    if challenge::answer_of(&out, &explainer.challenges).is_some() {
        steps.push(DecisionStep::Challenge);
        return None;
    }
    let hit = head.route.and_then(|hit| view.config.routes.routes().get(hit.at as usize));
    let of_route = hit.and_then(|route| route.options.body_bytes_max);
    if head.framing.exceeds(of_route.or(view.config.limits.body_bytes_max)) {
        return refused(Reason::RequestBodyTooLarge, steps);
    }
    let is_peer = view.is_of_peer(question.client);
    if !is_peer && !view.explain_access(question.client, steps) {
        return None;
    }
    let taken = head.route.map(|hit| hit.at as usize);
    if let Err(reason) = routes(view, question, &origin, taken, steps) {
        return refused(reason, steps);
    }
    if !is_peer && !view.explain_limits(question.client, &question.head, taken, steps) {
        return None;
    }
    if let Some((port, request)) = to_https(&view.config, &out) {
        let Some(moved) = request.moved(port, false) else {
            return refused(Reason::RequestHost, steps);
        };
        steps.push(DecisionStep::Redirect(moved.status));
        return None;
    }
    match hit.map(|route| &route.action) {
        Some(Action::Answer(answer)) => {
            steps.push(DecisionStep::Answer(answer.status));
            return None;
        }
        Some(Action::Redirect(redirect)) => {
            steps.push(DecisionStep::Redirect(redirect.status));
            return None;
        }
        Some(Action::Pools(_)) | None => {}
    }
    steps.extend(hit.and_then(|route| mirrored(route, &head)));
    rewritten(&question.head, &out, steps);
    dispatched(explainer, snapshot, view, &head, is_peer, steps);
    let source = ClientHashes::new(question.client(), view.config.listen).source;
    let pools = pools(view, head.route, source);
    let by = match hit.map(|route| &route.action) {
        Some(Action::Pools(pools)) if pools.names.len() > 1 => pools.sticky.clone(),
        _ => None,
    };
    Some(Goes { pools, by, work: head.class.into(), head: out })
}

fn refused(reason: Reason, steps: &mut Vec<DecisionStep>) -> Option<Goes> {
    steps.push(DecisionStep::Refused(reason));
    None
}

/// Unmet routes that are explained one by one. Of more, the first one and their number are.
const UNMET_MAX: usize = 10;

/// Adds the routes up to the one that the request takes.
fn routes(
    view: &FrontDoorView,
    question: &Question,
    origin: &Origin<'_>,
    taken: Option<usize>,
    steps: &mut Vec<DecisionStep>,
) -> Result<(), Reason> {
    let routes = view.config.routes.routes();
    if routes.is_empty() {
        return Ok(());
    }
    let unmet = unmet_by_route(&question.head, origin)?;
    let mut all = (1..).zip(routes.iter().zip(unmet));
    let step = |(number, (route, unmet))| route_step(number, route, unmet, &question.head);
    let before = taken.unwrap_or(routes.len());
    let explained = match question.all_routes || before <= UNMET_MAX {
        true => before,
        false => 1,
    };
    steps.extend(all.by_ref().take(explained).map(step).map(DecisionStep::Route));
    if explained < before {
        steps.push(DecisionStep::OtherRoutes(before - explained));
    }
    let taken = taken.and_then(|at| all.nth(at - explained));
    steps.push(taken.map_or(DecisionStep::NoRoute, |taken| DecisionStep::Route(step(taken))));
    Ok(())
}

/// The copies of a route's requests.
fn mirrored(route: &RouteConfig, head: &RequestHead) -> Option<DecisionStep> {
    let mirror = route.mirror.as_ref()?;
    let is_left_out = head.upgrade || head.framing.exceeds(Some(mirror.body_bytes_max));
    let (pool, share) = (Arc::clone(&mirror.pool), mirror.share);
    Some(DecisionStep::Mirror(MirrorStep { pool, share, is_left_out }))
}

fn route_step(number: usize, route: &RouteConfig, unmet: Option<Unmet>, head: &[u8]) -> RouteStep {
    let is_missing = match &unmet {
        Some(Unmet::Header(name)) => fields(head, name).next().is_none(),
        Some(Unmet::Query(name)) => parameter(head, name).is_none(),
        _ => false,
    };
    let (name, action) = (Arc::clone(&route.name), route.action.clone());
    RouteStep { number, name, unmet, is_missing, action }
}

/// Adds target and host of the backend's head, if they are not those that the client sends.
fn rewritten(sent: &[u8], out: &[u8], steps: &mut Vec<DecisionStep>) {
    let Some(request) = RequestLine::of(out) else { return };
    let target = sent.split(|byte| *byte == b' ').nth(1);
    let host = fields(sent, "host").next();
    if (target, host) != (Some(request.target), Some(request.host)) {
        let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
        steps.push(DecisionStep::Rewritten {
            target: text(request.target),
            host: text(request.host),
        });
    }
}

/// Adds the decision about peers, in node mode.
fn dispatched(
    explainer: &Explainer,
    snapshot: &Snapshot,
    view: &FrontDoorView,
    head: &RequestHead,
    is_peer: bool,
    steps: &mut Vec<DecisionStep>,
) {
    let may_be_delegated = match head.marker {
        _ if head.is_check => false,
        Marker::None => true,
        Marker::Believed => false,
        Marker::Refused => !is_peer,
    };
    if may_be_delegated {
        steps.extend(
            explain_dispatch(explainer, snapshot, view, head.class).map(DecisionStep::Dispatch),
        );
    }
}

/// The pools of the request, with their shares.
fn pools(view: &FrontDoorView, hit: Option<Hit>, source: u64) -> Vec<(usize, f64)> {
    let Some(hit) = hit else { return vec![(view.pool, 1.0)] };
    let at = hit.at as usize;
    let several = view.routes.get(at).map(|route| &route.pools[..]).unwrap_or_default();
    let action = view.config.routes.routes().get(at).map(|route| &route.action);
    match (pool_hash(view, hit, source), action) {
        (None, Some(Action::Pools(pools))) if several.len() > 1 => {
            let weights: Vec<_> = pools.split.weights().collect();
            let sum = weights.iter().sum::<u64>() as f64;
            let shares = weights.iter().map(|weight| *weight as f64 / sum);
            several.iter().map(|pool| pool.at).zip(shares).filter(|(_, it)| *it > 0.0).collect()
        }
        (hash, _) => vec![(pool_of(view, at, || hash.unwrap_or(0)), 1.0)],
    }
}
