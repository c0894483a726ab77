//! Backends that speak another protocol than their pool.

use std::sync::Mutex;

use equipoise_basics::{OncePerMinute, lock};

use crate::config::Upstream;

/// Limits the log lines about the wrong protocol of a backend.
#[derive(Debug, Default)]
pub(crate) struct WrongProtocol(Mutex<OncePerMinute>);

/// The likely reason why an answer is not that of the pool's protocol. `answer`: its first bytes,
/// if they are known.
fn likely_cause(upstream: Upstream, answer: &[u8]) -> Option<&'static str> {
    match (upstream, answer) {
        (_, [0x15 | 0x16, 3, 0..=4, ..]) => {
            Some("it speaks TLS; check whether the pool needs `tls`")
        }
        (Upstream::Http2, _) => Some(
            "it does not speak HTTP/2; check whether it speaks HTTP/1.1 (then `upstream` is \"exclusive\"), or TLS (then the pool needs `tls`)",
        ),
        // A frame of SETTINGS on stream 0.
        (_, [0, 0, _, 4, _, 0, 0, 0, 0, ..]) => {
            Some("it speaks HTTP/2; check whether the pool needs `upstream = \"http2\"`")
        }
        _ => None,
    }
}

impl WrongProtocol {
    /// Logs the likely reason of a malformed answer, if the last line about this backend is not
    /// recent. `backend` is its name.
    #[cold]
    pub(crate) fn say(&self, backend: impl FnOnce() -> String, upstream: Upstream, answer: &[u8]) {
        let Some(cause) = likely_cause(upstream, answer) else { return };
        if lock(&self.0).may_write() {
            let backend = backend();
            tracing::warn!(backend, "backend {backend}: malformed answer: {cause}");
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_first_bytes_of_an_answer_show_its_protocol() {
        let alert = [0x15, 3, 3, 0, 2, 2, 40];
        let settings = [0, 0, 18, 4, 0, 0, 0, 0, 0, 0];
        let rows: [(_, &[u8], _); 6] = [
            (Upstream::Exclusive, &alert, Some("it speaks TLS")),
            (Upstream::Multiplexed, &settings, Some("it speaks HTTP/2")),
            (Upstream::Exclusive, b"SSH-2.0-OpenSSH", None),
            (Upstream::Exclusive, b"", None),
            (Upstream::Http2, &alert, Some("it speaks TLS")),
            (Upstream::Http2, b"", Some("it does not speak HTTP/2")),
        ];
        for (upstream, answer, begin) in rows {
            let cause = likely_cause(upstream, answer);
            let fits = cause.map(|cause| begin.is_some_and(|begin| cause.starts_with(begin)));
            assert_eq!(fits, begin.map(|_| true), "{answer:?}: {cause:?}");
        }
    }
}
