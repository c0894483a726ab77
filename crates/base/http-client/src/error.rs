use std::io;
use std::time::Duration;

use hyper::Uri;

/// The reason why a request has no whole answer.
#[derive(Debug, thiserror::Error)]
pub enum HttpError {
    /// The URL has another scheme, or none.
    #[error("{0} is not a URL of http or https")]
    Url(Uri),
    /// The request is for https, and no authorities were given.
    #[error("{0} is a URL of https, and no authority is trusted")]
    NoAuthorities(Uri),
    /// There is no connection: the name is unknown, nothing listens there, or TLS failed.
    #[error("{host} cannot be reached")]
    Connect {
        /// Host and port.
        host: String,
        /// The cause.
        #[source]
        source: io::Error,
    },
    /// The answer, or the next part of it, did not come in time.
    #[error("{host} did not answer within {within:?}")]
    Late {
        /// Host and port.
        host: String,
        /// The longest time.
        within: Duration,
    },
    /// The connection ended, or has something else than HTTP.
    #[error("{host} did not answer in HTTP")]
    Exchange {
        /// Host and port.
        host: String,
        /// The cause.
        #[source]
        source: hyper::Error,
    },
    /// The answer is too large.
    #[error("{host} sent more than {bytes_max} bytes")]
    Large {
        /// Host and port.
        host: String,
        /// The largest size.
        bytes_max: u64,
    },
}
