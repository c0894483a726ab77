use std::error::Error;
use std::io;
use std::sync::Arc;
use std::time::Duration;

use equipoise_tls::Fault;

/// Reason why a check failed.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum CheckError {
    /// No process listens on the address.
    #[error("connection refused")]
    Refused,
    /// The TCP handshake did not complete within the timeout.
    #[error("no connection within {0:?}")]
    ConnectTimeout(Duration),
    /// Any other failure to connect.
    #[error("cannot connect: {0}")]
    Connect(String),
    /// The answer and its body were not complete within the timeout.
    #[error("no answer within {0:?}")]
    AnswerTimeout(Duration),
    /// The backend closed or reset the connection before its answer was complete.
    #[error("connection closed before the answer was complete")]
    Closed,
    /// The TLS handshake failed, or TLS failed after it.
    #[error("TLS failed: {0}")]
    Tls(String),
    /// The answer is not of the protocol of the check.
    #[error("the answer is not HTTP: {0}")]
    NotHttp(String),
    /// The answer does not consist of frames of HTTP/2.
    #[error(
        "the answer is not HTTP/2: {0}; the check uses HTTP/2, as `upstream` and gRPC checks do"
    )]
    NotHttp2(String),
    /// The response has a status that is not accepted.
    #[error("status {got}, wanted {}", ranges(.wanted))]
    Status {
        /// The response's status.
        got: u16,
        /// First and last status of each accepted range.
        wanted: Arc<[(u16, u16)]>,
    },
    /// The answer does not pass for a reason that only one type of checks has, in its words.
    #[error("{0}")]
    Answer(String),
    /// The check's path or host does not make a valid request.
    #[error("the check's path or host does not make a request: {0}")]
    Unaskable(String),
    /// This machine could not run the check. The result has no information about the backend.
    #[error("not checked: {0}")]
    NotChecked(&'static str),
}

impl CheckError {
    /// Whether the error is evidence against the backend. If this machine runs out of descriptors
    /// or ports, that must not take all backends out at once.
    pub fn blames_backend(&self) -> bool {
        !matches!(self, CheckError::NotChecked(_))
    }

    pub(super) fn connecting(error: &io::Error) -> CheckError {
        match (error.raw_os_error(), error.kind()) {
            (Some(libc::EMFILE | libc::ENFILE), _) => {
                CheckError::NotChecked("no file descriptor left on this machine")
            }
            (Some(libc::ENOBUFS | libc::ENOMEM), _) => {
                CheckError::NotChecked("no memory left for sockets on this machine")
            }
            (_, io::ErrorKind::AddrNotAvailable) => {
                CheckError::NotChecked("no local address or port left on this machine")
            }
            (_, io::ErrorKind::ConnectionRefused) => CheckError::Refused,
            (_, kind) => CheckError::Connect(kind.to_string()),
        }
    }

    pub(super) fn exchanging(error: &hyper::Error) -> CheckError {
        if let Some(fault) = fault_below(error) {
            CheckError::Tls(fault.text)
        } else if error.is_parse() {
            CheckError::NotHttp(error.to_string())
        } else if error.is_user() {
            CheckError::Unaskable(error.to_string())
        } else {
            // All other errors concern the connection: incomplete, closed, or an I/O error. On an
            // established connection, that is a reset or a timeout of the kernel.
            CheckError::Closed
        }
    }
}

/// The fault of TLS that caused an error.
fn fault_below(error: &hyper::Error) -> Option<Fault> {
    Fault::within(error.source()?.downcast_ref()?)
}

fn ranges(wanted: &[(u16, u16)]) -> String {
    let range = |(first, last): &(u16, u16)| {
        if first == last { first.to_string() } else { format!("{first}-{last}") }
    };
    wanted.iter().map(range).collect::<Vec<_>>().join(",")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn resource_exhaustion_on_this_machine_does_not_blame_the_backend() {
        let rows = [
            (libc::EMFILE, false, "not checked: no file descriptor left on this machine"),
            (libc::ENFILE, false, "not checked: no file descriptor left on this machine"),
            (libc::ENOBUFS, false, "not checked: no memory left for sockets on this machine"),
            (
                libc::EADDRNOTAVAIL,
                false,
                "not checked: no local address or port left on this machine",
            ),
            (libc::ECONNREFUSED, true, "connection refused"),
            (libc::EHOSTUNREACH, true, "cannot connect: host unreachable"),
            (libc::ENETUNREACH, true, "cannot connect: network unreachable"),
        ];
        for (number, blames, text) in rows {
            let error = CheckError::connecting(&io::Error::from_raw_os_error(number));
            assert_eq!(error.blames_backend(), blames, "{text}");
            assert_eq!(error.to_string(), text);
        }
    }

    #[test]
    fn error_texts_name_the_status_and_accepted_ranges_or_the_timeout() {
        let status = |wanted: &[(u16, u16)]| {
            CheckError::Status { got: 503, wanted: wanted.into() }.to_string()
        };
        assert_eq!(status(&[(200, 299)]), "status 503, wanted 200-299");
        assert_eq!(status(&[(200, 200)]), "status 503, wanted 200");
        assert_eq!(status(&[(200, 299), (401, 401)]), "status 503, wanted 200-299,401");
        let second = Duration::from_secs(1);
        assert_eq!(CheckError::AnswerTimeout(second).to_string(), "no answer within 1s");
        assert_eq!(
            CheckError::ConnectTimeout(second / 4).to_string(),
            "no connection within 250ms"
        );
    }
}
