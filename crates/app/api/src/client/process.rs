//! The process: its state, and its configuration file.

use hyper::Method;
use hyper::body::Bytes;

use super::{Client, ClientError};
use crate::wire::config::ReloadPreview;
use crate::wire::{Liveness, Reloaded, Status, Upgrade, Upgraded};

impl Client {
    /// `GET /v1/status`.
    ///
    /// # Errors
    /// [`ClientError`].
    pub async fn status(&self) -> Result<Status, ClientError> {
        self.ask(Method::GET, "/v1/status", Bytes::new()).await
    }

    /// `GET /v1/health`.
    ///
    /// # Errors
    /// [`ClientError`], also while the process stops.
    pub async fn health(&self) -> Result<Liveness, ClientError> {
        self.ask(Method::GET, "/v1/health", Bytes::new()).await
    }

    /// `POST /v1/reload`.
    ///
    /// # Errors
    /// [`ClientError`]; [`ClientError::Refused`] has every error of the file.
    pub async fn reload(&self) -> Result<Reloaded, ClientError> {
        self.ask(Method::POST, "/v1/reload", Bytes::new()).await
    }

    /// `POST /v1/config/preview`.
    ///
    /// # Errors
    /// [`ClientError`]; [`ClientError::Refused`] has every error of the file.
    pub async fn preview_reload(&self) -> Result<ReloadPreview, ClientError> {
        self.ask(Method::POST, "/v1/config/preview", Bytes::new()).await
    }

    /// `POST /v1/upgrade`.
    ///
    /// # Errors
    /// [`ClientError`]; [`ClientError::Refused`] has the reason why the new process did not get
    /// ready.
    pub async fn upgrade(&self, how: &Upgrade) -> Result<Upgraded, ClientError> {
        self.ask(Method::POST, "/v1/upgrade", super::to_json(how)).await
    }
}
