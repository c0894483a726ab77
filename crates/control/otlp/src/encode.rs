//! Spans as OTLP writes them in JSON.
//!
//! # Source
//! OTLP 1.x, "JSON Protobuf Encoding": ids are hexadecimal, 64-bit numbers are texts, enumerations
//! are numbers. Attributes: OpenTelemetry semantic conventions 1.x for HTTP spans.

use std::net::SocketAddr;
use std::time::Duration;

use equipoise_core::trace::{AttemptTrace, RequestTrace, write_hex};
use serde_json::{Value, json};

/// `SpanKind` of a request, and of an attempt at a backend.
const SERVER: u8 = 2;
const CLIENT: u8 = 3;
/// `StatusCode` of a span that failed.
const ERROR: u8 = 2;
/// Flags of a span with a parent of another process, and of this one.
const REMOTE_PARENT: u32 = 0x300;
const LOCAL_PARENT: u32 = 0x100;

/// Methods that the conventions name (RFC 9110, RFC 5789).
const METHODS: [&str; 9] =
    ["GET", "HEAD", "POST", "PUT", "DELETE", "OPTIONS", "PATCH", "TRACE", "CONNECT"];

/// Parameters of a query that are secrets by the conventions.
const SECRETS: [&str; 4] = ["AWSAccessKeyId", "Signature", "sig", "X-Goog-Signature"];

/// The process that makes the spans.
pub(crate) struct Resource {
    pub(crate) service: String,
    pub(crate) instance: String,
    pub(crate) version: String,
}

/// The body of a request with these traces.
pub(crate) fn body(resource: &Resource, traces: &[RequestTrace]) -> Vec<u8> {
    let Resource { service, instance, version } = resource;
    let mut of_process = Attributes::default();
    of_process.text("service.name", service);
    of_process.text("service.instance.id", instance);
    of_process.text("service.version", version);
    let spans: Vec<Value> = traces.iter().flat_map(spans).collect();
    let scope = json!({ "name": "equipoise", "version": version });
    let of_scope = json!({ "scope": scope, "spans": spans });
    let body = json!({ "resourceSpans": [{
        "resource": { "attributes": of_process.0 },
        "scopeSpans": [of_scope],
    }] });
    body.to_string().into_bytes()
}

/// The span of a request, and those of its attempts.
fn spans(trace: &RequestTrace) -> Vec<Value> {
    let attempts = trace.attempts.iter().enumerate();
    let attempts = attempts.map(|(number, attempt)| attempt_span(trace, number, attempt));
    std::iter::once(server_span(trace)).chain(attempts).collect()
}

fn server_span(trace: &RequestTrace) -> Value {
    let mut attributes = Attributes::default();
    attributes.method(&trace.method);
    attributes.text("url.scheme", trace.scheme);
    let (path, query) = parts(&trace.target);
    attributes.text("url.path", path);
    if let Some(query) = query {
        attributes.text("url.query", &without_secrets(query));
    }
    if let Some((host, port)) = trace.host.as_deref().map(host_and_port) {
        attributes.text("server.address", host);
        attributes.number_if_any("server.port", port.map(u64::from));
    }
    attributes.text("client.address", &trace.client.ip().to_canonical().to_string());
    attributes.peer(trace.client);
    attributes.text("network.protocol.version", trace.version);
    if let Some(agent) = &trace.user_agent {
        attributes.text("user_agent.original", agent);
    }
    attributes.text("equipoise.front_door", &trace.front_door);
    if let Some(route) = &trace.route {
        attributes.text("equipoise.route", route);
    }
    // A client's own mistakes are no errors of this server.
    let is_error = trace.status >= 500 || (trace.status == 0 && trace.error.is_some());
    attributes.outcome(trace.status, trace.error, is_error);
    let parent = trace.parent_id.as_ref();
    let flags = if parent.is_some() { REMOTE_PARENT } else { LOCAL_PARENT };
    let mut span = span(trace, (&trace.span_id, parent), SERVER, attributes, is_error);
    span["flags"] = (flags | u32::from(trace.flags)).into();
    times(&mut span, trace.began, trace.ended);
    span
}

fn attempt_span(trace: &RequestTrace, number: usize, attempt: &AttemptTrace) -> Value {
    let mut attributes = Attributes::default();
    attributes.method(&trace.method);
    let scheme = if attempt.is_tls { "https" } else { "http" };
    let (path, query) = parts(&trace.upstream_target);
    let query = query.map(|query| format!("?{}", without_secrets(query))).unwrap_or_default();
    attributes.text("url.full", &format!("{scheme}://{}{path}{query}", attempt.address));
    attributes.text("server.address", &attempt.address.ip().to_string());
    attributes.number_if_any("server.port", Some(attempt.address.port().into()));
    attributes.peer(attempt.address);
    attributes.number_if_any("http.request.resend_count", Some(number as u64).filter(|it| *it > 0));
    attributes.text("equipoise.pool", &attempt.pool);
    attributes.text("equipoise.backend", &attempt.backend);
    let is_error = attempt.status >= 400 || attempt.error.is_some();
    attributes.outcome(attempt.status, attempt.error, is_error);
    let ids = (&attempt.span_id, Some(&trace.span_id));
    let mut span = span(trace, ids, CLIENT, attributes, is_error);
    span["flags"] = (LOCAL_PARENT | u32::from(trace.flags)).into();
    times(&mut span, attempt.began, attempt.ended);
    span
}

fn span(
    trace: &RequestTrace,
    (id, parent): (&[u8; 8], Option<&[u8; 8]>),
    kind: u8,
    attributes: Attributes,
    is_error: bool,
) -> Value {
    let method = known_method(&trace.method).unwrap_or("HTTP");
    let mut span = json!({
        "traceId": hex(&trace.trace_id),
        "spanId": hex(id),
        "name": method,
        "kind": kind,
        "attributes": attributes.0,
        "status": if is_error { json!({ "code": ERROR }) } else { json!({}) },
    });
    if let Some(parent) = parent {
        span["parentSpanId"] = hex(parent).into();
    }
    span
}

fn times(span: &mut Value, began: Duration, ended: Duration) {
    span["startTimeUnixNano"] = began.as_nanos().to_string().into();
    span["endTimeUnixNano"] = ended.max(began).as_nanos().to_string().into();
}

/// Attributes of a span.
#[derive(Default)]
struct Attributes(Vec<Value>);

impl Attributes {
    fn text(&mut self, key: &str, value: &str) {
        self.0.push(json!({ "key": key, "value": { "stringValue": value } }));
    }

    fn number_if_any(&mut self, key: &str, value: Option<u64>) {
        if let Some(value) = value {
            self.0.push(json!({ "key": key, "value": { "intValue": value.to_string() } }));
        }
    }

    fn method(&mut self, method: &str) {
        self.text("http.request.method", known_method(method).unwrap_or("_OTHER"));
        if known_method(method).is_none() {
            self.text("http.request.method_original", method);
        }
    }

    fn peer(&mut self, peer: SocketAddr) {
        self.text("network.peer.address", &peer.ip().to_canonical().to_string());
        self.number_if_any("network.peer.port", Some(peer.port().into()));
    }

    fn outcome(&mut self, status: u16, reason: Option<&str>, is_error: bool) {
        let status = Some(u64::from(status)).filter(|status| *status > 0);
        self.number_if_any("http.response.status_code", status);
        if let Some(reason) = reason {
            self.text("equipoise.reason", reason);
        }
        if is_error {
            let status = status.map(|status| status.to_string());
            let kind = reason.map(str::to_owned).or(status);
            self.text("error.type", &kind.unwrap_or_default());
        }
    }
}

fn known_method(method: &str) -> Option<&str> {
    METHODS.contains(&method).then_some(method)
}

/// Path and query of a target, which may have a scheme and an authority.
fn parts(target: &str) -> (&str, Option<&str>) {
    let target = match target.split_once("://") {
        Some((scheme, rest)) if scheme.bytes().all(|byte| byte.is_ascii_alphabetic()) => {
            rest.find('/').map_or("/", |at| &rest[at..])
        }
        _ => target,
    };
    match target.split_once('?') {
        Some((path, query)) => (path, Some(query)),
        None => (target, None),
    }
}

fn without_secrets(query: &str) -> String {
    let parameter = |parameter| match str::split_once(parameter, '=') {
        Some((name, _)) if SECRETS.contains(&name) => format!("{name}=REDACTED"),
        _ => parameter.to_owned(),
    };
    query.split('&').map(parameter).collect::<Vec<_>>().join("&")
}

fn host_and_port(host: &str) -> (&str, Option<u16>) {
    match host.rsplit_once(':') {
        Some((name, port)) if !port.contains(']') => match port.parse() {
            Ok(port) => (name, Some(port)),
            Err(_) => (host, None),
        },
        _ => (host, None),
    }
}

fn hex(bytes: &[u8]) -> String {
    let mut digits = Vec::with_capacity(2 * bytes.len());
    write_hex(bytes, &mut digits);
    digits.into_iter().map(char::from).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_target_has_a_path_and_may_have_a_query() {
        for (target, path, query) in [
            ("/a?b=c", "/a", Some("b=c")),
            ("http://a.example:80/a", "/a", None),
            ("http://a.example", "/", None),
            ("/a?to=http://b/c", "/a", Some("to=http://b/c")),
            ("*", "*", None),
        ] {
            assert_eq!(parts(target), (path, query), "{target}");
        }
    }

    #[test]
    fn secrets_in_a_query_are_left_out() {
        let query = "a=b&sig=x&Signature=y&q";
        assert_eq!(without_secrets(query), "a=b&sig=REDACTED&Signature=REDACTED&q");
    }

    #[test]
    fn a_host_may_have_a_port() {
        for (host, expected) in [
            ("a.example", ("a.example", None)),
            ("a.example:8080", ("a.example", Some(8080))),
            ("[::1]:80", ("[::1]", Some(80))),
            ("[::1]", ("[::1]", None)),
        ] {
            assert_eq!(host_and_port(host), expected);
        }
    }
}
