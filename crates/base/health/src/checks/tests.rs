//! Backends of the tests of checks.

use std::net::SocketAddr;
use std::time::Duration;

use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpListener;
use tokio::task::JoinHandle;

use super::HealthCheck;
use crate::probe::{How, probe};
use crate::{CheckError, Place};

/// A timeout that no answered check reaches.
pub(crate) const PATIENT: Duration = Duration::from_secs(30);
/// Timeout of checks without an answer. It also bounds connecting, which a busy machine must manage
/// in this time.
pub(crate) const SHORT: Duration = Duration::from_secs(1);

/// Sends `answer` on one connection, then closes it if `close`. Returns the request that it
/// received.
pub(crate) async fn backend(answer: Vec<u8>, close: bool) -> (SocketAddr, JoinHandle<String>) {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    let task = tokio::spawn(async move {
        let (mut stream, _) = listener.accept().await.unwrap();
        let mut asked = Vec::new();
        while !asked.ends_with(b"\r\n\r\n") {
            if stream.read_buf(&mut asked).await.unwrap() == 0 {
                break;
            }
        }
        // The check may have ended already.
        let _ = stream.write_all(&answer).await;
        if !close {
            while stream.read_buf(&mut asked).await.is_ok_and(|n| n > 0) {}
        }
        String::from_utf8(asked).unwrap()
    });
    (address, task)
}

/// Runs a check of the backend at an address, in the clear.
pub(crate) async fn probed(
    check: &HealthCheck,
    address: SocketAddr,
    timeout: Duration,
) -> Result<(), CheckError> {
    probe(check, How::default(), address, &Place::Address, None, timeout).await
}
