//! Explanations.

use hyper::Method;

use super::{Client, ClientError, to_json};
use crate::wire::why::{WhyAnswer, WhyQuestion};

impl Client {
    /// `POST /v1/why`.
    ///
    /// # Errors
    /// [`ClientError`].
    pub async fn why(&self, question: &WhyQuestion) -> Result<WhyAnswer, ClientError> {
        self.ask(Method::POST, "/v1/why", to_json(question)).await
    }
}
