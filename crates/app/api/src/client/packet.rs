//! The packet level: flows and pins.

use http_body_util::BodyExt;
use hyper::Method;
use hyper::body::{Bytes, Incoming};

use super::{Client, ClientError, encoded, to_json};
use crate::wire::packet::{
    CaptureQuestion, FlowAnswer, FlowQuestion, Pin, PinKey, Pins, SourceFlows,
};

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
    /// `GET /v1/flow`.
    ///
    /// # Errors
    /// [`ClientError`].
    pub async fn explain_flow(&self, question: &FlowQuestion) -> Result<FlowAnswer, ClientError> {
        let FlowQuestion { source, vip, mac } = question;
        let mut path = format!("/v1/flow?source={}&vip={}", encoded(source), encoded(vip));
        if let Some(mac) = mac {
            path.push_str(&format!("&mac={}", encoded(mac)));
        }
        self.ask(Method::GET, &path, Bytes::new()).await
    }

    /// `GET /v1/flow/clients`.
    ///
    /// # Errors
    /// [`ClientError`].
    pub async fn flows_of_source(&self, source: &str) -> Result<SourceFlows, ClientError> {
        let path = format!("/v1/flow/clients?source={}", encoded(source));
        self.ask(Method::GET, &path, Bytes::new()).await
    }

    /// `POST /v1/capture`.
    ///
    /// # Errors
    /// [`ClientError`].
    pub async fn capture(&self, question: &CaptureQuestion) -> Result<CaptureStream, ClientError> {
        let (path, media_type) = ("/v1/capture", "application/octet-stream");
        let response = self.send(Method::POST, path, media_type, to_json(question));
        Ok(CaptureStream { body: self.in_time(response).await?.into_body() })
    }

    /// `GET /v1/pins`.
    ///
    /// # Errors
    /// [`ClientError`].
    pub async fn pins(&self) -> Result<Pins, ClientError> {
        self.ask(Method::GET, "/v1/pins", Bytes::new()).await
    }

    /// `POST /v1/pins`.
    ///
    /// # Errors
    /// [`ClientError`].
    pub async fn add_pin(&self, pin: &Pin) -> Result<Pin, ClientError> {
        self.ask(Method::POST, "/v1/pins", to_json(pin)).await
    }

    /// `PUT /v1/pins`.
    ///
    /// # Errors
    /// [`ClientError`].
    pub async fn move_pin(&self, pin: &Pin) -> Result<Pin, ClientError> {
        self.ask(Method::PUT, "/v1/pins", to_json(pin)).await
    }

    /// `DELETE /v1/pins`. Returns the remaining pins.
    ///
    /// # Errors
    /// [`ClientError`].
    pub async fn remove_pin(&self, key: &PinKey) -> Result<Pins, ClientError> {
        let path = format!("/v1/pins?vip={}&flow={}", encoded(&key.vip), encoded(&key.flow));
        self.ask(Method::DELETE, &path, Bytes::new()).await
    }
}
