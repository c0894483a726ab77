//! The versions of HTTP that clients speak.

/// The version of HTTP that a client speaks. The engine reads each as HTTP/1.1.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum ClientVersion {
    /// HTTP/1.0 or HTTP/1.1.
    Http1,
    Http2,
    #[cfg_attr(not(feature = "http3"), expect(dead_code))]
    Http3,
}

impl ClientVersion {
    /// Whether each request is a stream of the client's connection.
    pub(crate) fn has_streams(self) -> bool {
        self != ClientVersion::Http1
    }
}
