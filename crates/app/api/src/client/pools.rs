//! Backends of pools.

use hyper::Method;
use hyper::body::Bytes;

use super::{Client, ClientError, encoded, to_json};
use crate::wire::backends::{AddBackend, ChangeBackend};
use crate::wire::{Changed, SetWeight};

impl Client {
    /// `POST .../drain`, `undrain`, `enable` or `disable`; `action` is this last part.
    ///
    /// # Errors
    /// [`ClientError`].
    pub async fn change(
        &self,
        pool: &str,
        backend: &str,
        action: &str,
    ) -> Result<Changed, ClientError> {
        self.ask(Method::POST, &backend_path(pool, backend, action), Bytes::new()).await
    }

    /// `PUT .../weight`.
    ///
    /// # Errors
    /// [`ClientError`].
    pub async fn set_weight(
        &self,
        pool: &str,
        backend: &str,
        weight: u16,
    ) -> Result<Changed, ClientError> {
        let body = to_json(&SetWeight { weight });
        self.ask(Method::PUT, &backend_path(pool, backend, "weight"), body).await
    }
}

impl Client {
    /// `PUT` of a backend.
    ///
    /// # Errors
    /// [`ClientError`].
    pub async fn add_backend(
        &self,
        pool: &str,
        backend: &str,
        wish: &AddBackend,
    ) -> Result<Changed, ClientError> {
        self.ask(Method::PUT, &path_of(pool, backend), to_json(wish)).await
    }

    /// `PATCH` of a backend.
    ///
    /// # Errors
    /// [`ClientError`].
    pub async fn change_backend(
        &self,
        pool: &str,
        backend: &str,
        wish: &ChangeBackend,
    ) -> Result<Changed, ClientError> {
        self.ask(Method::PATCH, &path_of(pool, backend), to_json(wish)).await
    }

    /// `DELETE` of a backend.
    ///
    /// # Errors
    /// [`ClientError`].
    pub async fn remove_backend(
        &self,
        pool: &str,
        backend: &str,
        now: bool,
    ) -> Result<Changed, ClientError> {
        let path = format!("{}?now={now}", path_of(pool, backend));
        self.ask(Method::DELETE, &path, Bytes::new()).await
    }
}

fn path_of(pool: &str, backend: &str) -> String {
    format!("/v1/pools/{}/backends/{}", encoded(pool), encoded(backend))
}

fn backend_path(pool: &str, backend: &str, action: &str) -> String {
    format!("{}/{action}", path_of(pool, backend))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_of_any_characters_fit_in_one_segment() {
        assert_eq!(
            backend_path("web", "[::1]:80/x y", "drain"),
            "/v1/pools/web/backends/%5B%3A%3A1%5D%3A80%2Fx%20y/drain"
        );
    }
}
