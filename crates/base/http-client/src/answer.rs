//! An answer: its head, and its body in pieces or as a whole.

use std::time::Duration;

use http_body_util::BodyExt;
use hyper::body::{Bytes, Incoming};
use hyper::http::response::Parts;
use hyper::{Response, StatusCode};
use tokio::task::AbortHandle;
use tokio::time::timeout;

use crate::HttpError;

/// The head of an answer, and its body as it arrives. Dropping it closes the connection.
pub struct HttpAnswer {
    parts: Parts,
    body: Incoming,
    host: String,
    /// Bytes that were read and not taken.
    read: Vec<u8>,
    _connection: Connection,
}

/// The task of a connection, which ends with it.
pub(crate) struct Connection(pub(crate) AbortHandle);

impl Drop for Connection {
    fn drop(&mut self) {
        self.0.abort();
    }
}

impl HttpAnswer {
    pub(crate) fn new(
        response: Response<Incoming>,
        host: String,
        connection: Connection,
    ) -> HttpAnswer {
        let (parts, body) = response.into_parts();
        HttpAnswer { parts, body, host, read: Vec::new(), _connection: connection }
    }

    /// The status.
    pub fn status(&self) -> StatusCode {
        self.parts.status
    }

    /// A field of the head, as text.
    pub fn header(&self, name: &str) -> Option<&str> {
        self.parts.headers.get(name)?.to_str().ok()
    }

    /// Host and port of the URL.
    pub fn host(&self) -> &str {
        &self.host
    }

    /// The rest of the body, of at most `bytes_max` bytes, within a time.
    ///
    /// # Errors
    /// [`HttpError::Large`], [`HttpError::Late`], [`HttpError::Exchange`].
    pub async fn body(self, bytes_max: u64, within: Duration) -> Result<Bytes, HttpError> {
        let late = HttpError::Late { host: self.host.clone(), within };
        let whole = timeout(within, self.whole(bytes_max)).await.unwrap_or(Err(late))?;
        Ok(whole.into_body())
    }

    /// The next line of the body, of at most `bytes_max` bytes; `None` at its end. May be
    /// cancelled.
    ///
    /// # Errors
    /// [`HttpError::Large`], [`HttpError::Exchange`].
    pub async fn line(&mut self, bytes_max: u64) -> Result<Option<Vec<u8>>, HttpError> {
        loop {
            if let Some(end) = self.read.iter().position(|byte| *byte == b'\n') {
                let rest = self.read.split_off(end + 1);
                return Ok(Some(std::mem::replace(&mut self.read, rest)));
            }
            if !self.more(bytes_max).await? {
                return Ok(None);
            }
        }
    }

    /// The head, and the rest of the body.
    pub(crate) async fn whole(mut self, bytes_max: u64) -> Result<Response<Bytes>, HttpError> {
        while self.more(bytes_max).await? {}
        Ok(Response::from_parts(self.parts, self.read.into()))
    }

    /// Reads more of the body; `false` at its end.
    async fn more(&mut self, bytes_max: u64) -> Result<bool, HttpError> {
        let Some(frame) = self.body.frame().await else { return Ok(false) };
        let failed = |source| HttpError::Exchange { host: self.host.clone(), source };
        if let Ok(data) = frame.map_err(failed)?.into_data() {
            if (self.read.len() + data.len()) as u64 > bytes_max {
                return Err(HttpError::Large { host: self.host.clone(), bytes_max });
            }
            self.read.extend_from_slice(&data);
        }
        Ok(true)
    }
}
