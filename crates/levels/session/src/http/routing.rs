//! The route of a request: decided while its head is read, and the answers of routes that have no
//! pool.

use std::borrow::Cow;

use equipoise_routes::{Fields, RequestParts, Unmet, normal};

use super::answer::phrase;
use super::attempt::Outgoing;
use super::challenge;
use super::connection::ClientConnection;
use super::edits::ResponseEdits;
use super::redirect::{OwnResponse, RequestLine};
use super::request::{Origin, Target};
use super::routed::Routed;
use crate::reason::Reason;
use crate::route::{Action, FixedAnswer, Pools, Redirect, RouteConfig};
use crate::snapshot::FrontDoorView;

/// The route that a request takes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Hit {
    /// Its index.
    pub(crate) at: u32,
    /// The hash of the part that its pool depends on.
    pub(crate) key: Option<u64>,
}

/// The route of a request, and how it changes the target.
#[derive(Default)]
pub(super) struct Decision<'a> {
    pub(super) hit: Option<Hit>,
    pub(super) route: Option<&'a RouteConfig>,
    /// The new target; `None`: as it was.
    target: Option<String>,
}

impl<'a> Decision<'a> {
    /// Decides the route of a request.
    ///
    /// # Errors
    /// The path is ambiguous.
    pub(super) fn of(
        method: &str,
        target: &Target<'_>,
        headers: &[httparse::Header<'_>],
        origin: &Origin<'a>,
    ) -> Result<Decision<'a>, Reason> {
        let routes = &*origin.door.routes;
        if routes.is_empty() || challenge::is_ours(target.path, origin.challenges) {
            return Ok(Decision::default());
        }
        let target_parts = PathAndQuery::of(target)?;
        let headers = Headers(headers);
        let request = target_parts.parts(method, target, origin, &headers);
        let PathAndQuery { sent, query, path } = &target_parts;
        let at = routes.table().decide(&request);
        let route = at.and_then(|at| routes.routes().get(at));
        let rewrite = route.and_then(|route| route.rewrite.path.as_ref());
        let rewritten = at
            .zip(rewrite)
            .and_then(|(at, rewrite)| rewrite.apply(path, routes.table().prefix_of(at, path)));
        let target = match rewritten {
            Some(rewritten) => {
                // A replacement may have put slashes side by side, or dots.
                let path = normal::path(&rewritten).map_err(|_| Reason::RequestPath)?;
                Some(joined(&path, query)?)
            }
            None if **path == *sent.as_bytes() => None,
            None => Some(joined(path, query)?),
        };
        let hit = at.zip(route).map(|(at, route)| Hit {
            at: at as u32,
            key: match &route.action {
                Action::Pools(Pools { sticky: Some(by), .. }) => {
                    by.hash_in(|name| headers.values(name), || target_parts.query())
                }
                _ => None,
            },
        });
        Ok(Decision { hit, route, target })
    }

    /// The target with its new path and host.
    pub(super) fn changed<'t>(&'t self, target: &Target<'t>) -> Target<'t> {
        let host = self.route.and_then(|route| route.rewrite.host.as_deref());
        let host = host.map_or(target.host, str::as_bytes);
        match &self.target {
            Some(path) => Target { path, needs_slash: false, host },
            None => Target { path: target.path, needs_slash: target.needs_slash, host },
        }
    }
}

/// For each route of the front door, in their order, the first condition that a request does not
/// meet.
///
/// # Errors
/// The path is ambiguous.
pub(super) fn unmet(
    method: &str,
    target: &Target<'_>,
    headers: &[httparse::Header<'_>],
    origin: &Origin<'_>,
) -> Result<Vec<Option<Unmet>>, Reason> {
    let target_parts = PathAndQuery::of(target)?;
    let headers = Headers(headers);
    let request = target_parts.parts(method, target, origin, &headers);
    Ok(origin.door.routes.table().explain(&request))
}

/// Path and query of a target.
struct PathAndQuery<'t> {
    /// The path as it was sent.
    sent: &'t str,
    /// With its `?`, if there is one.
    query: &'t str,
    /// The path in its normal form.
    path: Cow<'t, [u8]>,
}

impl<'t> PathAndQuery<'t> {
    fn of(target: &Target<'t>) -> Result<PathAndQuery<'t>, Reason> {
        let query_at = target.path.find('?').unwrap_or(target.path.len());
        let (sent, query) = target.path.split_at(query_at);
        let sent = if target.needs_slash { "/" } else { sent };
        let path = normal::path(sent.as_bytes()).map_err(|_| Reason::RequestPath)?;
        Ok(PathAndQuery { sent, query, path })
    }

    /// The query without its `?`.
    fn query(&self) -> &'t [u8] {
        self.query.strip_prefix('?').unwrap_or_default().as_bytes()
    }

    /// The parts of a request that routes have conditions of.
    fn parts<'p>(
        &'p self,
        method: &'p str,
        target: &'p Target<'_>,
        origin: &Origin<'_>,
        headers: &'p Headers<'_, '_>,
    ) -> RequestParts<'p> {
        RequestParts {
            method,
            host: target.host,
            path: &self.path,
            query: self.query(),
            source: origin.client,
            headers,
        }
    }
}

/// A target of path and query.
fn joined(path: &[u8], query: &str) -> Result<String, Reason> {
    let path = std::str::from_utf8(path).map_err(|_| Reason::RequestPath)?;
    Ok([path, query].concat())
}

/// The hash by which a request of a client with the hash `source` is given to one of the route's
/// pools; `None`: its pool is random.
pub(super) fn pool_hash(view: &FrontDoorView, hit: Hit, source: u64) -> Option<u64> {
    let route = view.config.routes.routes().get(hit.at as usize);
    // A route without pools takes none, so any hash will do.
    let is_random = route.is_some_and(is_random);
    (!is_random).then(|| hit.key.unwrap_or(source))
}

fn is_random(route: &RouteConfig) -> bool {
    matches!(&route.action, Action::Pools(pools) if pools.sticky.is_none())
}

/// Header fields as they were parsed.
struct Headers<'h, 'b>(&'h [httparse::Header<'b>]);

impl Fields for Headers<'_, '_> {
    fn any(&self, name: &str, fits: &mut dyn FnMut(&[u8]) -> bool) -> bool {
        self.values(name).any(fits)
    }
}

impl Headers<'_, '_> {
    fn values<'s>(&'s self, name: &'s str) -> impl Iterator<Item = &'s [u8]> {
        let named = self.0.iter().filter(move |field| field.name.eq_ignore_ascii_case(name));
        named.map(|field| field.value)
    }
}

/// The lines that a response gets at a front door, to a request that took this route.
pub(super) fn edits<'a>(view: &'a FrontDoorView, routed: Option<&'a Routed>) -> ResponseEdits<'a> {
    ResponseEdits {
        hsts: view.config.hsts.as_deref(),
        alt_svc: view.config.http3.as_deref(),
        security: view.config.security,
        route: routed.map(|routed| &routed.route().response),
        sticky: None,
        timing: None,
    }
}

impl ClientConnection {
    /// Notes the route that the request takes.
    pub(super) fn take_route(&mut self, hit: Option<Hit>) {
        self.routed = hit.map(|hit| {
            let (view, snapshot) = (self.door.view(), self.worker.snapshot_of(&self.door));
            let fixed = pool_hash(&view, hit, self.hashes.source);
            let hash = || fixed.unwrap_or_else(|| self.worker.random());
            Routed::new(view, hit.at as usize, snapshot, hash)
        });
    }

    /// The answer of the request's route, if that has no pool.
    ///
    /// # Errors
    /// The request names no host to redirect to.
    pub(super) fn route_answer(&self, outgoing: &Outgoing) -> Result<Option<OwnResponse>, Reason> {
        let Some(routed) = &self.routed else { return Ok(None) };
        let view = self.door.view();
        let close = !outgoing.head.keep_alive || !outgoing.upload.is_done() || self.is_closing();
        let edits = edits(&view, Some(routed));
        let is_head = outgoing.head.is_head;
        match &routed.route().action {
            Action::Pools(_) => Ok(None),
            Action::Answer(answer) => Ok(Some(fixed(answer, is_head, close, &edits))),
            Action::Redirect(redirect) => {
                let request = RequestLine::of(&outgoing.first).ok_or(Reason::RequestMalformed)?;
                let to = place(redirect, view.config.scheme().name(), &request)?;
                Ok(Some(moved(redirect.status, &to, close, &edits)))
            }
        }
    }
}

/// The place of a redirect.
fn place(redirect: &Redirect, scheme: &str, request: &RequestLine<'_>) -> Result<Vec<u8>, Reason> {
    let target = if request.target == b"*" { b"/" } else { request.target };
    let query_at = target.iter().position(|byte| *byte == b'?').unwrap_or(target.len());
    let (path, query) = target.split_at(query_at);
    let host = normal::without_port(request.host);
    let mut place = Vec::new();
    for part in redirect.to.split_inclusive('}') {
        let (text, value) = match part.rfind('{').map(|at| part.split_at(at)) {
            Some((text, "{scheme}")) => (text, scheme.as_bytes()),
            Some((_, "{host}")) if host.is_empty() => return Err(Reason::RequestHost),
            Some((text, "{host}")) => (text, host),
            Some((text, "{path}")) => (text, path),
            Some((text, "{query}")) => (text, query),
            _ => (part, &b""[..]),
        };
        place.extend_from_slice(text.as_bytes());
        place.extend_from_slice(value);
    }
    Ok(place)
}

fn moved(status: u16, to: &[u8], close: bool, edits: &ResponseEdits<'_>) -> OwnResponse {
    let mut response = begin(status, close);
    response.extend_from_slice(b"Location: ");
    response.extend_from_slice(to);
    response.extend_from_slice(b"\r\nContent-Length: 0\r\n");
    edits.write(|_| false, &mut response);
    response.extend_from_slice(b"\r\n");
    OwnResponse { status, close, response }
}

fn fixed(
    answer: &FixedAnswer,
    is_head: bool,
    close: bool,
    edits: &ResponseEdits<'_>,
) -> OwnResponse {
    let status = answer.status;
    let has_body = !matches!(status, 204 | 304);
    let mut response = begin(status, close);
    if has_body {
        let (content_type, length) = (&answer.content_type, answer.body.len());
        let lines = format!("Content-Type: {content_type}\r\nContent-Length: {length}\r\n");
        response.extend_from_slice(lines.as_bytes());
    }
    edits.write(|_| false, &mut response);
    response.extend_from_slice(b"\r\n");
    if has_body && !is_head {
        response.extend_from_slice(answer.body.as_bytes());
    }
    OwnResponse { status, close, response }
}

/// The begin of a response.
fn begin(status: u16, close: bool) -> Vec<u8> {
    let last = if close { "Connection: close\r\n" } else { "" };
    format!("HTTP/1.1 {status} {}\r\n{last}", phrase(status)).into_bytes()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_redirect_has_the_parts_of_the_request() {
        let request = RequestLine { method: b"GET", target: b"/a/b?c=d", host: b"A.example:80" };
        let to = |to: &str, request: &RequestLine<'_>| {
            let place = place(&Redirect { status: 301, to: to.into() }, "http", request);
            place.map(|place| String::from_utf8(place).expect("text"))
        };
        for (template, expected) in [
            ("https://{host}{path}{query}", "https://A.example/a/b?c=d"),
            ("{scheme}://www.example/x{query}#top", "http://www.example/x?c=d#top"),
            ("/new", "/new"),
        ] {
            assert_eq!(to(template, &request).as_deref(), Ok(expected));
        }
        let nowhere = RequestLine { host: b"", ..request };
        assert_eq!(to("https://{host}/", &nowhere), Err(Reason::RequestHost));
        assert_eq!(to("https://a.example{path}", &nowhere).as_deref(), Ok("https://a.example/a/b"));
    }
}
