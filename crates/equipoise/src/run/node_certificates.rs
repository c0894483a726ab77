//! Certificates that nodes get from the controllers of their cluster, in the cluster's messages.

use std::sync::Arc;

use async_trait::async_trait;
use equipoise_acme::{Controllers, NodeAnswer, NodeDesk, NodeQuestion};
use equipoise_basics::with_causes;
use equipoise_cluster::{CertificateDesk, CertificateQuestions};
use serde_json::Value;

/// A controller's desk.
#[derive(Debug)]
pub(super) struct Desk(pub(super) Arc<NodeDesk>);

#[async_trait]
impl CertificateDesk for Desk {
    async fn answer(&self, node: &str, question: Value) -> Option<Value> {
        let question = serde_json::from_value(question).ok()?;
        serde_json::to_value(self.0.answer(node, question).await).ok()
    }
}

/// A node's questions.
pub(super) struct Questions(pub(super) CertificateQuestions);

#[async_trait]
impl Controllers for Questions {
    async fn ask(&mut self, question: &NodeQuestion) -> Result<NodeAnswer, String> {
        self.0.ask(question).await.map_err(|error| with_causes(&error))
    }
}
