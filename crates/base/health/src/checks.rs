//! The types of active checks, a file each: its settings, its exchange with the backend, its tests.

mod attended;
mod grpc;
mod http;
mod http2;
mod tcp;
#[cfg(test)]
pub(crate) mod tests;

use std::time::Duration;

use tokio::io::{AsyncRead, AsyncWrite};

use crate::CheckError;

pub use attended::AttendedCheck;
pub use grpc::GrpcCheck;
pub use http::{CheckMethod, HttpCheck};
pub use tcp::TcpCheck;

/// A type of checks.
pub(crate) trait Check {
    /// Timeout of [`Check::ask`] alone; `None`: the timeout of the whole check.
    fn within(&self) -> Option<Duration> {
        None
    }

    /// Runs the check over an open connection, after the TLS handshake if the check is encrypted.
    ///
    /// # Errors
    /// The [`CheckError`] that describes the backend's failure.
    async fn ask(
        &self,
        stream: impl AsyncRead + AsyncWrite + Unpin,
        origin: Origin<'_>,
    ) -> Result<(), CheckError>;
}

/// The backend in requests.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Origin<'a> {
    /// "http", or "https" over TLS.
    pub(crate) scheme: &'static str,
    /// Its `Host`, unless the check sets one.
    pub(crate) host: &'a str,
}

/// Declares the enum of all types.
macro_rules! types {
    ($($variant:ident($check:ty),)*) => {
        /// An active check, by its type.
        #[derive(Clone, Debug, PartialEq, Eq)]
        pub enum HealthCheck {
            $(
                #[doc = concat!("A [`", stringify!($check), "`].")]
                $variant($check),
            )*
        }

        impl Check for HealthCheck {
            fn within(&self) -> Option<Duration> {
                match self {
                    $(HealthCheck::$variant(check) => check.within(),)*
                }
            }

            async fn ask(
                &self,
                stream: impl AsyncRead + AsyncWrite + Unpin,
                origin: Origin<'_>,
            ) -> Result<(), CheckError> {
                match self {
                    $(HealthCheck::$variant(check) => check.ask(stream, origin).await,)*
                }
            }
        }
    };
}

types! {
    Tcp(TcpCheck),
    Attended(AttendedCheck),
    Http(HttpCheck),
    Grpc(GrpcCheck),
}
