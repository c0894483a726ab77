//! Classifies etcd's errors.

use std::time::Duration;

use etcd_client::Error;

use crate::{LeaseId, Outcome, StoreError};

/// gRPC status codes with a special meaning here.
/// # Source
/// grpc.io, "Status codes and their use in gRPC".
mod code {
    pub(super) const INVALID_ARGUMENT: i32 = 3;
    pub(super) const NOT_FOUND: i32 = 5;
    pub(super) const PERMISSION_DENIED: i32 = 7;
    pub(super) const RESOURCE_EXHAUSTED: i32 = 8;
    pub(super) const FAILED_PRECONDITION: i32 = 9;
    pub(super) const UNAUTHENTICATED: i32 = 16;
}

/// Decision about a failed request.
#[derive(Debug)]
pub(super) enum Verdict {
    /// A retry may succeed. The outcome is that of this attempt, if it was a write.
    TryAgain(Outcome),
    /// A retry cannot succeed.
    GiveUp(StoreError),
}

/// Classifies `error`. `lease` is the lease that the request refers to, if any.
pub(super) fn judge(error: Error, lease: Option<LeaseId>) -> (Verdict, Error) {
    let verdict = match &error {
        Error::GRpcStatus(status) => {
            let message = status.message();
            match status.code() as i32 {
                code::NOT_FOUND if message.contains("lease not found") => {
                    return give_up(error, |_| StoreError::LeaseEnded(lease.unwrap_or(LeaseId(0))));
                }
                code::PERMISSION_DENIED | code::UNAUTHENTICATED => {
                    return give_up(error, StoreError::Denied);
                }
                code::INVALID_ARGUMENT | code::FAILED_PRECONDITION
                    if message.contains("auth") || message.contains("user") =>
                {
                    return give_up(error, StoreError::Denied);
                }
                code::RESOURCE_EXHAUSTED if message.contains("space exceeded") => {
                    let limit = "etcd's --quota-backend-bytes is reached; compact, defragment, \
                        then disarm the NOSPACE alarm"
                        .to_string();
                    return give_up(error, |_| StoreError::Full { limit });
                }
                code::INVALID_ARGUMENT => return give_up(error, StoreError::Other),
                _ if is_refused_by_tls(status) => return give_up(error, StoreError::Denied),
                _ => Verdict::TryAgain(outcome(&error)),
            }
        }
        Error::LeaseKeepAliveError(message) if message.contains("not found") => {
            return give_up(error, |_| StoreError::LeaseEnded(lease.unwrap_or(LeaseId(0))));
        }
        Error::TransportError(_) | Error::IoError(_) => Verdict::TryAgain(outcome(&error)),
        Error::WatchError(_) | Error::LeaseKeepAliveError(_) => Verdict::TryAgain(Outcome::Unknown),
        _ => return give_up(error, StoreError::Other),
    };
    (verdict, error)
}

fn give_up(error: Error, to: impl FnOnce(crate::Cause) -> StoreError) -> (Verdict, Error) {
    let text = error.to_string();
    (Verdict::GiveUp(to(Box::new(error))), Error::Internal(text))
}

/// Returns the texts of an error and all its causes. The client does not export the error types of
/// hyper, tonic and rustls, so only their texts are available.
fn texts<'a>(error: &'a (dyn std::error::Error + 'static)) -> impl Iterator<Item = String> + 'a {
    std::iter::successors(Some(error), |error| error.source()).map(ToString::to_string)
}

/// Whether a TLS certificate was rejected, by us or by the peer.
fn is_refused_by_tls(status: &(dyn std::error::Error + 'static)) -> bool {
    texts(status).any(|text| text.contains("peer certificate") || text.contains("fatal alert"))
}

/// Returns whether a write that failed with this error may have been done.
///
/// It was not done if no connection was established, or if the member had no leader. Otherwise it
/// may have reached the leader.
fn outcome(error: &Error) -> Outcome {
    let cause: &(dyn std::error::Error + 'static) = match error {
        Error::GRpcStatus(status) if status.message() == "etcdserver: no leader" => {
            return Outcome::NotDone;
        }
        Error::GRpcStatus(status) => status,
        Error::TransportError(error) => error,
        _ => return Outcome::Unknown,
    };
    let no_connection =
        |text: String| text == "tcp connect error" || text.starts_with("Connection refused");
    if texts(cause).any(no_connection) { Outcome::NotDone } else { Outcome::Unknown }
}

/// Makes the error of a request that was tried until its timeout.
pub(super) fn unavailable(patience: Duration, outcome: Outcome, last: Option<Error>) -> StoreError {
    let source: crate::Cause = match last {
        Some(error) => Box::new(error),
        None => "no answer at all".into(),
    };
    StoreError::Unavailable { patience, outcome, source }
}
