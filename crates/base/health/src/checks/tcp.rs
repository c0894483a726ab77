use tokio::io::{AsyncRead, AsyncWrite, AsyncWriteExt};

use super::{Check, Origin};
use crate::CheckError;

/// Passes if a TCP connection opens, and with TLS if its handshake succeeds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TcpCheck;

impl Check for TcpCheck {
    async fn ask(
        &self,
        mut stream: impl AsyncRead + AsyncWrite + Unpin,
        _: Origin<'_>,
    ) -> Result<(), CheckError> {
        // TLS announces the end. A backend that has closed already has passed.
        let _ = stream.shutdown().await;
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use tokio::net::TcpListener;

    use super::*;
    use crate::checks::HealthCheck;
    use crate::checks::tests::{PATIENT, probed};

    #[tokio::test]
    async fn a_tcp_check_passes_on_an_open_port_and_reports_refusal() {
        let check = HealthCheck::Tcp(TcpCheck);
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        assert_eq!(probed(&check, address, PATIENT).await, Ok(()));
        drop(listener);
        assert_eq!(probed(&check, address, PATIENT).await, Err(CheckError::Refused));
    }
}
