//! Header fields and bounds of checks by every protocol.

/// Header field of every HTTP check, in lower case. A node in node mode never delegates a request
/// with this field: it answers from its own application, or with 503. Other monitors may send it,
/// too.
pub const CHECK_FIELD: &str = "equipoise-check";

/// `User-Agent` of checks.
pub(crate) const USER_AGENT: &str = "equipoise-health";

/// Size of the head and connection buffers, bytes; also the maximum size of a body chunk.
pub(crate) const BUFFER_BYTES: usize = 16 << 10;
/// Maximum number of body bytes that a check reads. With the buffers, a check uses at most 64 KB.
pub(crate) const BODY_BYTES: usize = 32 << 10;
const _: () = assert!(BODY_BYTES + 2 * BUFFER_BYTES <= 64 << 10);
