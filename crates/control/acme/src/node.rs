//! A node that is not a controller: takes certificates from the controllers, and gives their
//! answers to challenges.

use std::time::Duration;

use async_trait::async_trait;
use equipoise_basics::OncePerMinute;
use equipoise_tls::ChallengeAnswer;

use crate::answer::Answer;
use crate::desk::{Edition, NodeAnswer, NodeQuestion};
use crate::member::{Effects, learn, take};
use crate::names::Stage;
use crate::options::Acme;

/// Wait after a question without an answer.
const AGAIN: Duration = Duration::from_secs(2);

/// The controllers of the cluster.
#[async_trait]
pub trait Controllers: Send {
    /// Asks one of them.
    ///
    /// # Errors
    /// None answers; with the reasons.
    async fn ask(&mut self, question: &NodeQuestion) -> Result<NodeAnswer, String>;
}

/// Follows what the controllers give; never ends. Without them, the last certificates stay in use.
pub(crate) async fn follow(options: &Acme, effects: &Effects<'_>, from: &mut dyn Controllers) {
    let mut node = Node { options, effects, given: Vec::new(), has: None };
    let mut lines = OncePerMinute::default();
    let names: Vec<_> = options.names.iter().map(|name| name.name.clone()).collect();
    loop {
        match from.ask(&NodeQuestion { names: names.clone(), has: node.has }).await {
            Ok(answer) if node.has == Some(answer.edition) => {}
            Ok(answer) => node.apply(answer).await,
            Err(error) => {
                if lines.may_write() {
                    tracing::warn!("the last certificates stay in use: {error}");
                }
                tokio::time::sleep(AGAIN).await;
            }
        }
    }
}

struct Node<'n> {
    options: &'n Acme,
    effects: &'n Effects<'n>,
    given: Vec<(Answer, Option<ChallengeAnswer>)>,
    has: Option<Edition>,
}

impl Node<'_> {
    async fn apply(&mut self, answer: NodeAnswer) {
        self.given.retain(|(given, _)| answer.answers.contains(given));
        for wanted in answer.answers {
            if self.given.iter().all(|(given, _)| *given != wanted) {
                let guard = wanted.give(self.effects.challenges);
                let guard =
                    guard.map_err(|error| tracing::error!("no answer to a challenge: {error}"));
                self.given.push((wanted, guard.ok()));
            }
        }
        self.effects.text_records.publish().await;
        for name in &self.options.names {
            let name = &name.name;
            let Some(record) = answer.names.get(name) else {
                self.effects.names.set(&self.options.folder, name, |status| {
                    let reason = "the controllers do not have it in `[acme] for-nodes`";
                    status.last_error = Some(reason.into());
                    if status.stage == Stage::Ordering {
                        status.stage = Stage::Waiting;
                    }
                });
                continue;
            };
            learn(self.effects.names, self.options, name, record);
            let Some(pem) = &record.pem else { continue };
            match take(self.options, name, pem).await {
                Ok(true) => {
                    tracing::info!(name, "certificate received from a controller");
                    self.effects.issued.send_modify(|count| *count += 1);
                }
                Ok(false) => {}
                Err(error) => {
                    tracing::error!(name, "the controllers' certificate is not used: {error}");
                }
            }
        }
        self.has = Some(answer.edition);
    }
}
