//! Questions of a node to any controller.

use std::sync::Arc;

use hyper::Method;
use serde::Serialize;
use serde::de::DeserializeOwned;

use super::Inner;
use super::credentials::Credentials;
use crate::client::{ClientError, Connection, json};
use crate::wire::CERTIFICATES;

/// Asks the controllers for certificates of front doors.
pub struct CertificateQuestions {
    inner: Arc<Inner>,
    open: Option<(Connection, Arc<Credentials>)>,
    /// The place of the controller that is asked first.
    first: usize,
}

impl CertificateQuestions {
    pub(super) fn new(inner: Arc<Inner>) -> CertificateQuestions {
        CertificateQuestions { inner, open: None, first: 0 }
    }

    /// Asks one controller, the others if it does not answer. Waits until this node has joined.
    ///
    /// # Errors
    /// None answers.
    pub async fn ask<T: DeserializeOwned>(
        &mut self,
        question: &impl Serialize,
    ) -> Result<T, ClientError> {
        let body = json(question);
        let mut credentials = self.inner.credentials.subscribe();
        let shown = credentials.wait_for(Option::is_some).await.map(|one| one.clone());
        let Ok(Some(shown)) = shown else { return Err(ClientError::Nobody(Vec::new())) };
        // A new certificate needs a new connection.
        let kept = self.open.take();
        let kept = kept.filter(|(one, with)| one.is_open() && Arc::ptr_eq(with, &shown));
        if let Some((mut connection, with)) = kept
            && let Ok(answer) = connection.ask(Method::POST, CERTIFICATES, body.clone()).await
        {
            self.open = Some((connection, with));
            return Ok(answer);
        }
        let controllers = &self.inner.options.controllers;
        let mut errors = Vec::new();
        for place in (0..controllers.len()).map(|at| (self.first + at) % controllers.len()) {
            let patience = self.inner.options.patience;
            match Connection::open(&controllers[place], &shown.tls, patience).await {
                Ok(mut connection) => {
                    match connection.ask(Method::POST, CERTIFICATES, body.clone()).await {
                        Ok(answer) => {
                            (self.open, self.first) = (Some((connection, shown)), place);
                            return Ok(answer);
                        }
                        Err(error) => errors.push(error),
                    }
                }
                Err(error) => errors.push(error),
            }
        }
        Err(ClientError::Nobody(errors))
    }
}

impl std::fmt::Debug for CertificateQuestions {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("CertificateQuestions").finish_non_exhaustive()
    }
}
