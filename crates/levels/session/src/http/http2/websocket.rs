//! WebSockets over HTTP/2 (RFC 8441): the fields that only HTTP/1.1 has.

use aws_lc_rs::digest::{SHA1_FOR_LEGACY_USE_ONLY, digest};
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;

/// The protocol in `:protocol` and in `Upgrade`.
pub(super) const WEBSOCKET: &str = "websocket";

/// A random `Sec-WebSocket-Key` (RFC 6455, section 4.1).
pub(super) fn key() -> String {
    STANDARD.encode(rand::random::<[u8; 16]>())
}

/// The `Sec-WebSocket-Accept` for this key (RFC 6455, section 4.2.2).
pub(super) fn accept(key: &[u8]) -> String {
    const GUID: &[u8] = b"258EAFA5-E914-47DA-95CA-C5AB0DC85B11";
    STANDARD.encode(digest(&SHA1_FOR_LEGACY_USE_ONLY, &[key, GUID].concat()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn websocket_keys_and_accept_values_follow_rfc_6455() {
        assert_eq!(accept(b"dGhlIHNhbXBsZSBub25jZQ=="), "s3pPLMBiTxaQ9kYGzzhZRbK+xOo=");
        let key = key();
        assert!(key.len() == 24 && key.ends_with("=="), "{key}");
    }
}
