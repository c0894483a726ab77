//! Reading a backend's response head, and writing the head that the client gets.

use std::mem::MaybeUninit;

use equipoise_core::delegation::{UNDONE, announced_room, write_room};

use super::edits::ResponseEdits;
use super::grpc;
use super::head::{Connection, Field, Framing, HeadScanner, Lengths, LineCopier, is_nominated};
use super::request::{HEADERS_PARSED_MAX, RequestHead, write_via};

/// A response head is refused beyond this.
pub(crate) const HEAD_BYTES_MAX: usize = 64 << 10;

/// A response that is not HTTP/1.x, or has an ambiguous length.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct BadResponse;

/// Facts about a response that the proxy needs after it has read the head.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct ResponseHead {
    /// Bytes of the head, its empty line included.
    pub(crate) bytes: usize,
    /// 100..=999.
    pub(crate) status: u16,
    /// How long its body is.
    pub(crate) framing: Framing,
    /// The backend allows another request on the session.
    pub(crate) keep_alive: bool,
    /// The client's connection closes after this response, and the head says so.
    pub(crate) closes_client: bool,
    /// It announces a body although its status permits none, so that where the next response begins
    /// is uncertain.
    pub(crate) is_doubtful: bool,
    /// It says that the request was not done and can be done elsewhere: to be believed of a peer
    /// that it was delegated to.
    pub(crate) is_undone: bool,
    /// The room that it announces: to be believed of a peer alone.
    pub(crate) room: Option<u32>,
    /// The status of a gRPC call, of a response with trailers alone.
    pub(crate) grpc_status: Option<u8>,
}

impl ResponseHead {
    /// Whether another head follows for the same request.
    pub(crate) fn is_interim(&self) -> bool {
        self.status < 200 && self.status != 101
    }
}

/// Parts of the client's response that do not come from the backend.
pub(crate) struct Reply<'a> {
    pub(crate) request: &'a RequestHead,
    /// The client's connection closes after this response.
    pub(crate) close: bool,
    /// Add `Via`, under this name.
    pub(crate) via: Option<&'a str>,
    /// Lines that are added, some in the place of the backend's.
    pub(crate) edits: ResponseEdits<'a>,
    pub(crate) node_fields: NodeFields,
}

/// Fields that nodes send each other in responses.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum NodeFields {
    /// Passed on as any other field: the front door is not in node mode.
    Passed,
    /// Removed, since they end at this node.
    Removed,
    /// The backend's are removed, and this room is announced to the delegating peer.
    Room(u32),
}

impl NodeFields {
    /// The same with at most the `free` room; `None`: there is no limit to announce.
    pub(crate) fn within(self, free: impl FnOnce() -> Option<u32>) -> NodeFields {
        match self {
            NodeFields::Room(most) => {
                free().map_or(NodeFields::Removed, |free| NodeFields::Room(free.min(most)))
            }
            other => other,
        }
    }
}

impl Reply<'_> {
    /// Whether the client's connection closes after a response with this framing: a client of
    /// HTTP/1.0 knows no chunks, and so learns the end of a body without a length by the close.
    fn closes(&self, framing: Framing) -> bool {
        self.close || (self.request.http10 && !matches!(framing, Framing::Length(_)))
    }
}

/// Reads the head at the start of `input` if it is whole, and appends to `out` the head that the
/// client gets. `Ok(None)`: more bytes are needed.
pub(crate) fn read_response(
    input: &[u8],
    scanner: &mut HeadScanner,
    reply: &Reply<'_>,
    out: &mut Vec<u8>,
) -> Result<Option<ResponseHead>, BadResponse> {
    let Some(bytes) = scanner.find_end(input).map_err(|_| BadResponse)? else {
        let odd = !b"HTTP/1.".starts_with(&input[..input.len().min(7)]);
        return if odd || input.len() > HEAD_BYTES_MAX { Err(BadResponse) } else { Ok(None) };
    };
    let head = &input[..bytes];
    let mut headers = [const { MaybeUninit::uninit() }; HEADERS_PARSED_MAX];
    let mut response = httparse::Response::new(&mut []);
    let parsed = httparse::ParserConfig::default().parse_response_with_uninit_headers(
        &mut response,
        head,
        &mut headers,
    );
    if !matches!(parsed, Ok(httparse::Status::Complete(_))) {
        return Err(BadResponse);
    }
    let (Some(version), Some(status)) = (response.version, response.code) else {
        return Err(BadResponse);
    };
    // A backend must not switch to a protocol without a request for it.
    if status < 100 || (status == 101 && !reply.request.upgrade) {
        return Err(BadResponse);
    }
    let mut connection = Connection::default();
    let mut lengths = Lengths::default();
    let (mut is_undone, mut room) = (false, None);
    let mut kinds = [Field::Other; HEADERS_PARSED_MAX];
    for (header, kind) in response.headers.iter().zip(&mut kinds) {
        *kind = Field::of(header.name);
        match *kind {
            Field::Connection => connection.read(header.value),
            Field::ContentLength => {
                lengths.content_length(header.value).map_err(|_| BadResponse)?
            }
            Field::TransferEncoding => {
                lengths.transfer_encoding(header.value).map_err(|_| BadResponse)?;
            }
            Field::Delegated => is_undone |= header.value == UNDONE.as_bytes(),
            Field::Room => room = announced_room(header.value),
            _ => {}
        }
    }
    let stated = lengths.framing(version == 0).map_err(|_| BadResponse)?;
    let bodiless = reply.request.is_head || matches!(status, 100..=199 | 204 | 304);
    let framing = if bodiless { Framing::EMPTY } else { stated.unwrap_or(Framing::UntilClose) };
    // RFC 9110, section 8.6, and RFC 9112, section 6.1, forbid it. 304 and responses to HEAD may
    // state another's length.
    let announces = stated.is_some_and(|stated| stated != Framing::EMPTY);
    let is_doubtful = announces && has_never_a_body(status) && status != 101;
    let persistent = if version == 0 { connection.keep_alive } else { true };
    let result = ResponseHead {
        bytes,
        status,
        framing,
        keep_alive: persistent
            && !connection.close
            && framing != Framing::UntilClose
            && !is_doubtful,
        closes_client: reply.closes(framing),
        is_doubtful,
        is_undone,
        room,
        grpc_status: match reply.request.grpc {
            Some(_) if framing == Framing::EMPTY => grpc::status(response.headers),
            _ => None,
        },
    };
    write_response(head, &response, &kinds, connection, &result, reply, out);
    Ok(Some(result))
}

/// Whether no response with this status has a body, whatever the request.
fn has_never_a_body(status: u16) -> bool {
    matches!(status, 100..=199 | 204)
}

fn write_response(
    head: &[u8],
    response: &httparse::Response<'_, '_>,
    kinds: &[Field],
    connection: Connection,
    read: &ResponseHead,
    reply: &Reply<'_>,
    out: &mut Vec<u8>,
) {
    out.extend_from_slice(b"HTTP/1.1 ");
    out.extend_from_slice(itoa::Buffer::new().format(read.status).as_bytes());
    out.push(b' ');
    out.extend_from_slice(response.reason.unwrap_or_default().as_bytes());
    out.extend_from_slice(b"\r\n");
    let http10 = reply.request.http10;
    let mut lines = LineCopier::new(head);
    for (header, &field) in response.headers.iter().zip(kinds) {
        let keep = match field {
            Field::Connection | Field::HopByHop => false,
            Field::Upgrade => read.status == 101 || read.status == 426,
            Field::ContentLength => !has_never_a_body(read.status),
            // An HTTP/1.0 client gets the payload alone, up to the close.
            Field::TransferEncoding => !http10 && !has_never_a_body(read.status),
            Field::Delegated | Field::Room => reply.node_fields == NodeFields::Passed,
            Field::StrictTransport => reply.edits.hsts.is_none(),
            _ => true,
        };
        let nominated = connection.nominates
            && field.may_be_nominated()
            && is_nominated(header.name, response.headers);
        let dropped = nominated || !read.is_interim() && reply.edits.drops(header.name);
        lines.line(header, keep && !dropped, out);
    }
    lines.finish(out);
    if read.framing == Framing::UntilClose && !http10 {
        out.extend_from_slice(b"Transfer-Encoding: chunked\r\n");
    }
    if read.status == 101 {
        out.extend_from_slice(b"Connection: upgrade\r\n");
    } else if !read.is_interim() {
        match (read.closes_client, http10) {
            (true, _) => out.extend_from_slice(b"Connection: close\r\n"),
            (false, true) => out.extend_from_slice(b"Connection: keep-alive\r\n"),
            (false, false) => {}
        }
    }
    if let Some(instance) = reply.via {
        write_via("1.1", instance, out);
    }
    if !read.is_interim() {
        let has = |name: &str| response.headers.iter().any(|it| it.name.eq_ignore_ascii_case(name));
        reply.edits.write(has, out);
    }
    if let NodeFields::Room(room) = reply.node_fields
        && !read.is_interim()
    {
        write_room(room, out);
    }
    out.extend_from_slice(b"\r\n");
}
