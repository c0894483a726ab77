//! Certificates and keys of session tickets that nodes get from the controllers of their cluster,
//! in the cluster's messages.

use std::sync::Arc;

use async_trait::async_trait;
use equipoise_acme::{Controllers, NodeAnswer, NodeDesk, NodeQuestion};
use equipoise_basics::with_causes;
use equipoise_cluster::{CertificateDesk, CertificateQuestions};
use equipoise_tickets::{TicketQuestion, Tickets};
use serde_json::Value;

/// A controller's desk.
#[derive(Debug)]
pub(super) struct Desk {
    certificates: Arc<NodeDesk>,
    tickets: Tickets,
}

impl Desk {
    pub(super) fn new(certificates: &Arc<NodeDesk>, tickets: &Tickets) -> Arc<Desk> {
        Arc::new(Desk { certificates: Arc::clone(certificates), tickets: tickets.clone() })
    }
}

#[async_trait]
impl CertificateDesk for Desk {
    async fn answer(&self, node: &str, question: Value) -> Option<Value> {
        let certificates = &self.certificates;
        if let Ok(question) = serde_json::from_value::<TicketQuestion>(question.clone()) {
            let answer = question.answer(&self.tickets, |name| certificates.gives(name));
            return serde_json::to_value(answer).ok();
        }
        let question = serde_json::from_value(question).ok()?;
        serde_json::to_value(certificates.answer(node, question).await).ok()
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
