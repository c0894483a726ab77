//! The reasons why an order brings no certificate.

use std::io;
use std::path::Path;

use instant_acme::{Error, Problem};

use crate::options::Method;
use crate::pace::Fault;

/// The reason why an attempt brought no certificate.
#[derive(Debug, thiserror::Error)]
pub(crate) enum OrderError {
    #[error("{}", of_directory(.0))]
    Directory(#[from] Error),
    #[error("the directory could not verify the name by {}: {reason}", method.name())]
    Unverified { method: Method, reason: String },
    #[error("the directory offers no way of verification that this process has")]
    NoMethod,
    #[error("the directory sent a certificate that cannot be used: {0}")]
    Certificate(String),
    #[error("{0}")]
    Local(String),
}

impl OrderError {
    pub(crate) fn file(done: &str, path: &Path, error: &io::Error) -> OrderError {
        OrderError::Local(format!("\"{}\" cannot be {done}: {error}", path.display()))
    }

    /// The kind of the failure.
    pub(crate) fn fault(&self) -> Fault {
        match self {
            OrderError::Directory(Error::Api(problem)) => fault_of(problem),
            OrderError::Directory(_) | OrderError::Local(_) => Fault::Temporary,
            OrderError::Unverified { .. } | OrderError::NoMethod | OrderError::Certificate(_) => {
                Fault::Refused
            }
        }
    }

    /// Whether the directory does not know the account, so that another has to be created.
    pub(crate) fn is_unknown_account(&self) -> bool {
        matches!(self, OrderError::Directory(Error::Api(it)) if kind(it) == "accountDoesNotExist")
    }
}

/// The type of a problem without the prefix of RFC 8555, section 6.7.
pub(crate) fn kind(problem: &Problem) -> &str {
    let kind = problem.r#type.as_deref().unwrap_or_default();
    kind.strip_prefix("urn:ietf:params:acme:error:").unwrap_or(kind)
}

pub(crate) fn fault_of(problem: &Problem) -> Fault {
    match kind(problem) {
        "rateLimited" => Fault::Limited,
        "badNonce" | "serverInternal" | "accountDoesNotExist" => Fault::Temporary,
        _ if problem.status.is_some_and(|status| status >= 500) => Fault::Temporary,
        _ => Fault::Refused,
    }
}

pub(crate) fn of_directory(error: &Error) -> String {
    match error {
        Error::Api(problem) => {
            let detail = problem.detail.as_deref().unwrap_or("no details");
            format!("the directory refused: {detail} ({})", kind(problem))
        }
        Error::Json(_) => "the directory sent an answer that is not of ACME".into(),
        error => error.to_string(),
    }
}

pub(crate) fn local(error: impl std::fmt::Display) -> OrderError {
    OrderError::Local(error.to_string())
}
