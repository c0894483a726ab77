//! The packet level: flows and pins.

use hyper::Method;
use hyper::body::Bytes;

use super::{Client, ClientError, encoded, to_json};
use crate::wire::packet::{FlowAnswer, FlowQuestion, Pin, PinKey, Pins};

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
