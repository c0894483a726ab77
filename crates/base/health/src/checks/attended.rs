use std::time::Duration;

use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt};

use super::{Check, Origin};
use crate::CheckError;

/// Passes if a TCP connection opens and the peer closes it after we have closed our half. This
/// shows that the process runs: the kernel accepts connections for a hung process, but does not
/// close them. For servers that close in this case, such as front doors for HTTP. The check sends
/// no data.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct AttendedCheck {
    /// Timeout of the close, from the opened connection.
    pub within: Duration,
}

impl Check for AttendedCheck {
    fn within(&self) -> Option<Duration> {
        Some(self.within)
    }

    /// A reset fails the check: it does not show that the process is alive.
    async fn ask(
        &self,
        mut stream: impl AsyncRead + AsyncWrite + Unpin,
        _: Origin<'_>,
    ) -> Result<(), CheckError> {
        let closed = |_| CheckError::Closed;
        stream.shutdown().await.map_err(closed)?;
        let mut said = [0; 512];
        while stream.read(&mut said).await.map_err(closed)? > 0 {}
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use tokio::net::TcpListener;

    use super::*;
    use crate::checks::HealthCheck;
    use crate::checks::tests::{PATIENT, SHORT, backend, probed};

    #[tokio::test]
    async fn where_a_process_attends_it_closes_after_us_and_a_kernel_alone_does_not() {
        let check = |within| HealthCheck::Attended(AttendedCheck { within });
        let (address, task) = backend(Vec::new(), true).await;
        assert_eq!(probed(&check(PATIENT), address, SHORT).await, Ok(()));
        assert_eq!(task.await.unwrap(), "", "it was asked nothing");
        // The kernel completes the handshake, and no process accepts the connection.
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        let unattended = probed(&check(SHORT), address, PATIENT).await;
        assert_eq!(unattended, Err(CheckError::AnswerTimeout(SHORT)));
        drop(listener);
        assert_eq!(probed(&check(PATIENT), address, PATIENT).await, Err(CheckError::Refused));
    }
}
