//! A capture of packets, as a file that grows.

use http_body_util::BodyExt;
use hyper::body::{Bytes, Incoming};

use super::{Client, ClientError};
use crate::routes::packet::CAPTURE;
use crate::wire::packet::CaptureQuestion;

/// A pcapng file, as it grows. Dropping it ends the capture.
#[derive(Debug)]
pub struct CaptureStream {
    body: Incoming,
}

impl CaptureStream {
    /// The next part; `None` at the end of the capture.
    ///
    /// # Errors
    /// The connection broke before the end.
    pub async fn next(&mut self) -> Result<Option<Bytes>, hyper::Error> {
        while let Some(frame) = self.body.frame().await.transpose()? {
            if let Ok(data) = frame.into_data() {
                return Ok(Some(data));
            }
        }
        Ok(None)
    }
}

impl Client {
    /// [`CAPTURE`] as a stream, which lasts as long as the capture.
    ///
    /// # Errors
    /// [`ClientError`].
    pub async fn capture(&self, question: &CaptureQuestion) -> Result<CaptureStream, ClientError> {
        let body = self.open_stream(CAPTURE, question, "application/octet-stream").await?;
        Ok(CaptureStream { body })
    }
}
