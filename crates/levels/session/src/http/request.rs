//! Reading a client's request head, and writing the head that the backend gets.

use std::mem::MaybeUninit;
use std::net::IpAddr;
use std::time::Duration;

use equipoise_core::delegation::{EachField, SignedHead, read_question};
use equipoise_core::load::RequestClass;
use equipoise_routes::Unmet;
use equipoise_tls::PeerIdentity;

use super::grpc::{self, GrpcCall};
use super::head::{
    BadLength, Connection, Field, Framing, HeadScanner, Lengths, LineCopier, is_nominated, tokens,
};
use super::origin::{Claims, OriginFields, tells_client, tells_origin};
use super::routing::{self, Decision, Hit};
use super::version::ClientVersion;
use crate::config::{Challenges, FrontDoor, NodeMode, Scheme, ServerTls, Underscores};
use crate::reason::Reason;
use crate::route::Edits;

/// Header fields that can be parsed at all, in a request or a response.
pub(crate) const HEADERS_PARSED_MAX: usize = crate::config::HEADERS_MAX;

/// Facts about a request that the proxy needs after it has forwarded the head.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct RequestHead {
    /// Bytes of the head, its empty line included.
    pub(crate) bytes: usize,
    /// HEAD: the response has no body, whatever its header says.
    pub(crate) is_head: bool,
    /// True if it may be sent again without knowing whether it arrived (RFC 9110, section 9.2.2).
    pub(crate) is_idempotent: bool,
    /// The client speaks HTTP/1.0: no chunks, no 1xx.
    pub(crate) http10: bool,
    /// The client allows another request on the connection.
    pub(crate) keep_alive: bool,
    /// How long its body is.
    pub(crate) framing: Framing,
    /// The client waits for a 100 before it sends the body.
    pub(crate) expects_continue: bool,
    /// It asks for another protocol.
    pub(crate) upgrade: bool,
    /// The route that it takes.
    pub(crate) route: Option<Hit>,
    /// It is of gRPC.
    pub(crate) grpc: Option<GrpcCall>,
    /// Its class.
    pub(crate) class: RequestClass,
    /// It asks after this node itself, and no peer answers it.
    pub(crate) is_check: bool,
    /// Whether a peer has delegated it to this node.
    pub(crate) marker: Marker,
    /// How long it may wait for room here before it goes back to the peer that has delegated it.
    /// `None`: as long as a client's.
    pub(crate) may_wait: Option<Duration>,
}

/// The marker of a request, as far as it has one.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Marker {
    /// Nothing.
    None,
    /// A peer has delegated it, so it is served here.
    Believed,
    /// It has a marker without a valid signature.
    Refused,
}

/// The origin that is added to a request.
pub(crate) struct Origin<'a> {
    pub(crate) client: IpAddr,
    pub(crate) door: &'a FrontDoor,
    /// Answers that routes leave alone.
    pub(crate) challenges: &'a Challenges,
    pub(crate) instance: &'a str,
    /// Which peer, if it came from one, encrypted.
    pub(crate) peer: Option<&'a PeerIdentity>,
    /// Header lines about the client's certificate.
    pub(crate) identity: Option<&'a [u8]>,
    /// The version of HTTP that the client speaks.
    pub(crate) version: ClientVersion,
}

/// Reads the head at the start of `input` if it is whole, and writes into `out` (emptied first) the
/// head that goes upstream. `Ok(None)`: more bytes are needed.
///
/// # Errors
/// The reason to refuse the request and close the connection.
pub(crate) fn read_request(
    input: &[u8],
    scanner: &mut HeadScanner,
    origin: &Origin<'_>,
    out: &mut Vec<u8>,
) -> Result<Option<RequestHead>, Reason> {
    let limits = &origin.door.limits;
    let Some(bytes) = scanner.find_end(input).map_err(|_| Reason::RequestMalformed)? else {
        // A lone CR may be half of an empty line.
        let first_is_odd =
            input != b"\r" && input.first().is_some_and(|byte| !byte.is_ascii_alphabetic());
        return match input.len() > limits.head_bytes_max {
            true => Err(Reason::RequestHeadTooLarge),
            false if first_is_odd => Err(Reason::RequestMalformed),
            false => Ok(None),
        };
    };
    if bytes > limits.head_bytes_max {
        return Err(Reason::RequestHeadTooLarge);
    }
    let head = &input[..bytes];
    let mut headers = [const { MaybeUninit::uninit() }; HEADERS_PARSED_MAX];
    let mut request = httparse::Request::new(&mut []);
    match request.parse_with_uninit_headers(head, &mut headers) {
        Ok(httparse::Status::Complete(_)) => {}
        Ok(httparse::Status::Partial) => return Err(Reason::RequestMalformed),
        Err(httparse::Error::TooManyHeaders) => return Err(Reason::RequestHeadTooLarge),
        Err(httparse::Error::Version) if names_http_version(head) => {
            return Err(Reason::VersionNotSupported);
        }
        Err(_) => return Err(Reason::RequestMalformed),
    }
    if request.headers.len() > limits.headers_max {
        return Err(Reason::RequestHeadTooLarge);
    }
    // A complete parse has all three.
    let (Some(method), Some(target), Some(version)) =
        (request.method, request.path, request.version)
    else {
        return Err(Reason::RequestMalformed);
    };
    let http10 = version == 0;
    let mut kinds = [Field::Other; HEADERS_PARSED_MAX];
    let fields = read_fields(request.headers, &mut kinds, origin.door)?;
    let framing = fields.lengths.framing(http10).map_err(Reason::from)?;
    let framing = framing.unwrap_or(Framing::EMPTY);
    let target = Target::read(method, target, &fields, http10, origin.door.scheme())?;
    let decision = Decision::of(method, &target, request.headers, origin)?;
    let of_route = decision.route.and_then(|route| route.options.body_bytes_max);
    // A call of gRPC is refused in its own form, once its head is read.
    if framing.exceeds(of_route.or(limits.body_bytes_max)) && !fields.is_grpc {
        return Err(Reason::RequestBodyTooLarge);
    }
    let classify = |node: &NodeMode| class_of(node, method, target.path, framing, out);
    let mut parsed = RequestHead {
        bytes,
        is_head: method == "HEAD",
        is_idempotent: matches!(method, "GET" | "HEAD" | "OPTIONS" | "TRACE" | "PUT" | "DELETE"),
        http10,
        keep_alive: fields.connection.stays_open(http10),
        framing,
        expects_continue: fields.expects_continue && !http10,
        upgrade: fields.connection.upgrade && fields.upgrade && !http10,
        route: decision.hit,
        grpc: fields.is_grpc.then_some(GrpcCall { timeout: fields.grpc_timeout }),
        class: origin.door.dispatch.as_ref().map_or(RequestClass::default(), classify),
        is_check: fields.is_check,
        marker: Marker::None,
        may_wait: None,
    };
    begin_request(method, &decision.changed(&target), out);
    parsed.marker = marker_of(origin, &fields, request.headers, &kinds, out);
    parsed.may_wait = fields.may_wait.filter(|_| parsed.marker == Marker::Believed);
    let edits = decision.route.map(|route| &route.request);
    write_request(head, &target, request.headers, &kinds, &fields, &parsed, origin, edits, out);
    Ok(Some(parsed))
}

/// For each route of the front door, in their order, the first condition that a request does not
/// meet.
///
/// # Errors
/// As [`read_request`].
pub(super) fn unmet_by_route(
    head: &[u8],
    origin: &Origin<'_>,
) -> Result<Vec<Option<Unmet>>, Reason> {
    let mut headers = [httparse::EMPTY_HEADER; HEADERS_PARSED_MAX];
    let mut request = httparse::Request::new(&mut headers);
    let is_whole = request.parse(head).is_ok_and(|status| status.is_complete());
    let (true, Some(method), Some(target), Some(version)) =
        (is_whole, request.method, request.path, request.version)
    else {
        return Err(Reason::RequestMalformed);
    };
    let mut kinds = [Field::Other; HEADERS_PARSED_MAX];
    let fields = read_fields(request.headers, &mut kinds, origin.door)?;
    let target = Target::read(method, target, &fields, version == 0, origin.door.scheme())?;
    routing::unmet(method, &target, request.headers, origin)
}

impl From<BadLength> for Reason {
    fn from(bad: BadLength) -> Reason {
        match bad {
            BadLength::Ambiguous => Reason::RequestFraming,
            BadLength::UnknownCoding => Reason::CodingNotImplemented,
        }
    }
}

/// The class of a request; `scratch` is the buffer into which its head is written afterwards.
fn class_of(
    node: &NodeMode,
    method: &str,
    path: &str,
    framing: Framing,
    scratch: &mut Vec<u8>,
) -> RequestClass {
    let body_bytes = match framing {
        Framing::Length(length) => Some(length),
        Framing::Chunked | Framing::UntilClose => None,
    };
    node.delegation.classify(method, path, body_bytes, scratch)
}

/// The marker of a request with its first lines in `out`.
fn marker_of(
    origin: &Origin<'_>,
    fields: &Fields<'_>,
    headers: &[httparse::Header<'_>],
    kinds: &[Field],
    out: &[u8],
) -> Marker {
    let (Some(node), Some(value)) = (&origin.door.dispatch, fields.delegated) else {
        return Marker::None;
    };
    let sender = origin.peer.map(PeerIdentity::nodes);
    let signed = |each: EachField<'_>| {
        for (header, kind) in headers.iter().zip(kinds) {
            if let Some(field) = kind.origin() {
                each(field, header.value);
            }
        }
    };
    let head = SignedHead { lines: out, origin: &signed };
    let is_believed = fields.delegations == 1 && node.delegation.verify(value, &head, sender);
    if is_believed { Marker::Believed } else { Marker::Refused }
}

/// Whether the request line is well-formed but for the number of its version.
fn names_http_version(head: &[u8]) -> bool {
    let line = head.split(|byte| *byte == b'\r').next().unwrap_or_default();
    let mut words = line.split(|byte| *byte == b' ').skip(2);
    match (words.next(), words.next()) {
        (Some([b'H', b'T', b'T', b'P', b'/', major, b'.', minor]), None) => {
            major.is_ascii_digit() && minor.is_ascii_digit()
        }
        _ => false,
    }
}

/// Header fields of a request that concern the proxy.
#[derive(Default)]
struct Fields<'a> {
    connection: Connection,
    lengths: Lengths,
    host: Option<&'a [u8]>,
    expects_continue: bool,
    /// To a protocol that the front door lets through.
    upgrade: bool,
    /// To HTTP/2 in the clear, among others.
    upgrades_to_h2c: bool,
    te_trailers: bool,
    is_grpc: bool,
    grpc_timeout: Option<Duration>,
    origin: OriginFields<'a>,
    is_check: bool,
    /// Of a marker; there may be more than one, and then none is believed.
    delegated: Option<&'a [u8]>,
    delegations: u32,
    may_wait: Option<Duration>,
}

/// Reads the header fields, noting in `kinds` which each is.
fn read_fields<'a>(
    headers: &[httparse::Header<'a>],
    kinds: &mut [Field],
    door: &FrontDoor,
) -> Result<Fields<'a>, Reason> {
    let mut fields = Fields::default();
    for (header, kind) in headers.iter().zip(kinds) {
        let value = header.value;
        *kind = Field::of(header.name);
        match *kind {
            Field::Connection => fields.connection.read(value),
            Field::ContentLength => {
                fields.lengths.content_length(value).map_err(|_| Reason::RequestFraming)?;
            }
            Field::TransferEncoding => {
                fields.lengths.transfer_encoding(value).map_err(|_| Reason::RequestFraming)?;
            }
            Field::Host => {
                if fields.host.replace(value).is_some() || !is_authority(value) {
                    return Err(Reason::RequestHost);
                }
            }
            Field::Expect => {
                if !value.eq_ignore_ascii_case(b"100-continue") {
                    return Err(Reason::ExpectationFailed);
                }
                fields.expects_continue = true;
            }
            Field::Upgrade => {
                for protocol in permitted(value, door) {
                    fields.upgrade = true;
                    fields.upgrades_to_h2c |= protocol.eq_ignore_ascii_case(b"h2c");
                }
            }
            Field::Check => fields.is_check = true,
            Field::ContentType => fields.is_grpc = grpc::is_grpc(value),
            Field::GrpcTimeout => fields.grpc_timeout = grpc::timeout(value),
            Field::Te => fields.te_trailers |= value.eq_ignore_ascii_case(b"trailers"),
            Field::Forwarded
            | Field::OtherOrigin
            | Field::XForwardedFor
            | Field::XForwardedHost
            | Field::XForwardedProto
            | Field::XRealIp => fields.origin.read(*kind, value),
            Field::Underscored if door.underscores == Underscores::Refuse => {
                return Err(Reason::HeaderUnderscore);
            }
            Field::Underscored => fields.origin.any |= tells_origin(header.name),
            Field::Delegated => {
                fields.delegated = Some(value);
                fields.delegations += 1;
            }
            Field::Room => fields.may_wait = read_question(value),
            Field::HopByHop
            | Field::Http2Settings
            | Field::Mirrored
            | Field::StrictTransport
            | Field::Via
            | Field::Other => {}
        }
    }
    Ok(fields)
}

/// The protocols of an `Upgrade` value that the front door lets through; a version behind `/` does
/// not matter.
fn permitted<'a>(value: &'a [u8], door: &FrontDoor) -> impl Iterator<Item = &'a [u8]> {
    tokens(value).filter(|protocol| {
        let name = protocol.split(|byte| *byte == b'/').next().unwrap_or_default();
        door.upgrades.iter().any(|known| name.eq_ignore_ascii_case(known.as_bytes()))
    })
}

/// Whether a `Host` value is `host [":" port]` and nothing that another reader might take for more.
fn is_authority(value: &[u8]) -> bool {
    value.iter().all(|byte| byte.is_ascii_alphanumeric() || b"-._~!$&'()*+,;=:[]%".contains(byte))
}

/// A request target as it goes upstream.
pub(super) struct Target<'a> {
    /// Origin form, or `*`.
    pub(super) path: &'a str,
    /// True if a slash must precede `path` (absolute form without a path).
    pub(super) needs_slash: bool,
    /// The value of `Host`.
    pub(super) host: &'a [u8],
}

impl<'a> Target<'a> {
    /// Reads the target of any form (RFC 9112, section 3.2). The authority of an absolute target
    /// must equal `Host`: a reader that uses the other would see another site.
    fn read(
        method: &str,
        target: &'a str,
        fields: &Fields<'a>,
        http10: bool,
        scheme: Scheme,
    ) -> Result<Self, Reason> {
        if method == "CONNECT" {
            return Err(Reason::MethodNotAllowed);
        }
        let host = match fields.host {
            Some(host) => host,
            // RFC 9112 asks HTTP/1.1 alone for it; 1.0 clients may have none.
            None if http10 => b"",
            None => return Err(Reason::RequestHost),
        };
        if target.starts_with('/') || (target == "*" && method == "OPTIONS") {
            return Ok(Target { path: target, needs_slash: false, host });
        }
        let rest = strip_scheme(target).ok_or(Reason::RequestMalformed)?;
        let end = rest.find(['/', '?', '#']).unwrap_or(rest.len());
        let (authority, path) = rest.split_at(end);
        if authority.is_empty() || !is_authority(authority.as_bytes()) {
            return Err(Reason::RequestMalformed);
        }
        let same = without_default_port(authority.as_bytes(), scheme)
            .eq_ignore_ascii_case(without_default_port(host, scheme));
        if fields.host.is_some() && !same {
            return Err(Reason::RequestHost);
        }
        // OPTIONS without a path asks about the server as a whole (RFC 9112, section 3.2.4).
        let path = if path.is_empty() && method == "OPTIONS" { "*" } else { path };
        let needs_slash = !path.starts_with(['/', '*']);
        Ok(Target { path, needs_slash, host: authority.as_bytes() })
    }
}

fn without_default_port(authority: &[u8], scheme: Scheme) -> &[u8] {
    authority.strip_suffix(scheme.default_port()).unwrap_or(authority)
}

fn strip_scheme(target: &str) -> Option<&str> {
    let (scheme, rest) = target.split_once("://")?;
    (scheme.eq_ignore_ascii_case("http") || scheme.eq_ignore_ascii_case("https")).then_some(rest)
}

/// Writes the request line and `Host`, which a marker signs.
fn begin_request(method: &str, target: &Target<'_>, out: &mut Vec<u8>) {
    out.clear();
    out.extend_from_slice(method.as_bytes());
    out.push(b' ');
    if target.needs_slash {
        out.push(b'/');
    }
    out.extend_from_slice(target.path.as_bytes());
    out.extend_from_slice(b" HTTP/1.1\r\nHost: ");
    out.extend_from_slice(target.host);
    out.extend_from_slice(b"\r\n");
}

fn claims(fields: &Fields<'_>, parsed: &RequestHead, origin: &Origin<'_>) -> Claims {
    match parsed.marker {
        Marker::Believed => Claims::Signed { encrypted: origin.peer.is_some() },
        _ if fields.origin.any && origin.door.trusted.contains(origin.client) => Claims::Trusted,
        Marker::None | Marker::Refused => Claims::Untrusted,
    }
}

#[allow(clippy::too_many_arguments)]
fn write_request(
    head: &[u8],
    target: &Target<'_>,
    headers: &[httparse::Header<'_>],
    kinds: &[Field],
    fields: &Fields<'_>,
    parsed: &RequestHead,
    origin: &Origin<'_>,
    edits: Option<&Edits>,
    out: &mut Vec<u8>,
) {
    let door = origin.door;
    let claims = claims(fields, parsed, origin);
    // Where this door says what the client's certificate is, no other sender does.
    let asks_clients = door.tls.as_ref().is_some_and(ServerTls::asks_clients);
    let is_ours = |name: &str| asks_clients && tells_client(name);
    let to_h2c = parsed.upgrade && fields.upgrades_to_h2c;
    let mut lines = LineCopier::new(head);
    for (header, &field) in headers.iter().zip(kinds) {
        let keep = match field {
            Field::Host | Field::Connection | Field::HopByHop | Field::Te => false,
            // Written anew below, in front of nothing another hop could read otherwise.
            Field::TransferEncoding | Field::ContentLength | Field::Upgrade => false,
            Field::Http2Settings => to_h2c,
            Field::Forwarded
            | Field::OtherOrigin
            | Field::XForwardedFor
            | Field::XForwardedHost
            | Field::XForwardedProto
            | Field::XRealIp => {
                !is_ours(header.name)
                    && fields.origin.keeps(field, header.value, claims, door.forwarded)
            }
            Field::Underscored => {
                door.underscores == Underscores::Keep
                    && !is_ours(header.name)
                    && (claims.covers_unsigned() || !tells_origin(header.name))
            }
            Field::Expect => parsed.expects_continue,
            Field::Mirrored => door.trusted.contains(origin.client),
            Field::Delegated | Field::Room => door.dispatch.is_none(),
            Field::Via
            | Field::Check
            | Field::StrictTransport
            | Field::ContentType
            | Field::GrpcTimeout
            | Field::Other => true,
        };
        let nominated = fields.connection.nominates
            && field.may_be_nominated()
            && is_nominated(header.name, headers);
        let dropped = nominated || edits.is_some_and(|edits| edits.drops(header.name));
        lines.line(header, keep && !dropped, out);
    }
    lines.finish(out);
    out.extend_from_slice(edits.map(Edits::lines).unwrap_or_default());
    write_framing(parsed.framing, fields.lengths.is_stated(), out);
    if parsed.upgrade {
        write_upgrade(headers, kinds, door, out);
    }
    write_connection(parsed.upgrade, to_h2c, fields.te_trailers, out);
    let scheme = door.scheme().name();
    fields.origin.write(claims, door.forwarded, origin.client, scheme, target.host, out);
    out.extend_from_slice(origin.identity.unwrap_or_default());
    if door.via {
        let version = match (origin.version, parsed.http10) {
            (ClientVersion::Http2, _) => "2.0",
            (ClientVersion::Http3, _) => "3.0",
            (ClientVersion::Http1, true) => "1.0",
            (ClientVersion::Http1, false) => "1.1",
        };
        write_via(version, origin.instance, out);
    }
    out.extend_from_slice(b"\r\n");
}

/// Writes how long the body is. `is_stated`: the client has said so, too.
fn write_framing(framing: Framing, is_stated: bool, out: &mut Vec<u8>) {
    match framing {
        Framing::Chunked => out.extend_from_slice(b"Transfer-Encoding: chunked\r\n"),
        Framing::Length(length) if length > 0 || is_stated => {
            out.extend_from_slice(b"Content-Length: ");
            out.extend_from_slice(itoa::Buffer::new().format(length).as_bytes());
            out.extend_from_slice(b"\r\n");
        }
        Framing::Length(_) | Framing::UntilClose => {}
    }
}

/// Writes the permitted protocols that the client's `Upgrade` lines name.
fn write_upgrade(
    headers: &[httparse::Header<'_>],
    kinds: &[Field],
    door: &FrontDoor,
    out: &mut Vec<u8>,
) {
    let upgrades = headers.iter().zip(kinds).filter(|(_, kind)| **kind == Field::Upgrade);
    let mut before: &[u8] = b"Upgrade: ";
    for protocol in upgrades.flat_map(|(header, _)| permitted(header.value, door)) {
        out.extend_from_slice(before);
        out.extend_from_slice(protocol);
        before = b", ";
    }
    out.extend_from_slice(b"\r\n");
}

/// Writes the fields for the session to the backend that depend on this request.
fn write_connection(upgrade: bool, to_h2c: bool, te_trailers: bool, out: &mut Vec<u8>) {
    let options: [(bool, &[u8]); 3] =
        [(upgrade, b"upgrade"), (to_h2c, b"HTTP2-Settings"), (te_trailers, b"TE")];
    let mut before: &[u8] = b"Connection: ";
    for (_, option) in options.iter().filter(|(given, _)| *given) {
        out.extend_from_slice(before);
        out.extend_from_slice(option);
        before = b", ";
    }
    if upgrade || te_trailers {
        out.extend_from_slice(b"\r\n");
    }
    if te_trailers {
        out.extend_from_slice(b"TE: trailers\r\n");
    }
}

/// Adds a `Via` line (RFC 9110, section 7.6.3). `version`: of the protocol over which it came.
pub(crate) fn write_via(version: &str, instance: &str, out: &mut Vec<u8>) {
    out.extend_from_slice(b"Via: ");
    out.extend_from_slice(version.as_bytes());
    out.push(b' ');
    out.extend_from_slice(instance.as_bytes());
    out.extend_from_slice(b"\r\n");
}
