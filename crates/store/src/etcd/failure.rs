//! What etcd's errors mean.

use std::time::Duration;

use etcd_client::Error;

use crate::{LeaseId, Outcome, StoreError};

/// gRPC's numbers of the codes that are told apart here.
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

/// What to do about a failed request.
#[derive(Debug)]
pub(super) enum Verdict {
    /// Another try may succeed. The outcome is that of this try, if it was a write.
    TryAgain(Outcome),
    /// It will not.
    GiveUp(StoreError),
}

/// What `error` means; `lease` is the one that the request was about, if it was.
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

/// The texts of an error and all its causes. hyper's, tonic's and rustls' types are not public through the
/// client, so their texts are all there is.
fn texts<'a>(error: &'a (dyn std::error::Error + 'static)) -> impl Iterator<Item = String> + 'a {
    std::iter::successors(Some(error), |error| error.source()).map(ToString::to_string)
}

/// Whether a certificate was not accepted, ours or theirs.
fn is_refused_by_tls(status: &(dyn std::error::Error + 'static)) -> bool {
    texts(status).any(|text| text.contains("peer certificate") || text.contains("fatal alert"))
}

/// Whether a write that failed so may have been done.
///
/// It was not if no connection came about, or if the member had no leader to give it to; everything else may
/// have reached the leader.
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

/// What a request that was tried until the end of its time fails with.
pub(super) fn unavailable(patience: Duration, outcome: Outcome, last: Option<Error>) -> StoreError {
    let source: crate::Cause = match last {
        Some(error) => Box::new(error),
        None => "no answer at all".into(),
    };
    StoreError::Unavailable { patience, outcome, source }
}
