//! Sends reports to one controller, the newest each time.

use std::sync::Arc;

use equipoise_basics::with_causes;
use equipoise_controller::Tallies;
use hyper::Method;
use hyper::body::Bytes;
use tokio::time::sleep;

use super::credentials::Credentials;
use super::{Inner, ReportStatus};
use crate::ControllerAddress;
use crate::backoff::Backoff;
use crate::client::{ClientError, Connection};
use crate::wire::REPORT;

struct Reporter {
    inner: Arc<Inner>,
    address: ControllerAddress,
    open: Option<(Connection, Arc<Credentials>)>,
}

/// Reports as long as the node lives.
pub(crate) async fn keep_reporting(inner: Arc<Inner>, address: ControllerAddress) {
    let mut reports = inner.newest_report.subscribe();
    let mut credentials = inner.credentials.subscribe();
    let (first, longest) = inner.options.pauses;
    let mut backoff = Backoff::new(first, longest);
    let mut reporter = Reporter { inner, address, open: None };
    loop {
        // The newest report replaces those that arrived during the wait.
        let Ok(shown) = credentials.wait_for(Option::is_some).await.map(|one| one.clone()) else {
            return;
        };
        if reports.changed().await.is_err() {
            return;
        }
        let newest = reports.borrow_and_update().clone();
        let (Some(shown), Some(body)) = (shown, newest) else { continue };
        let shown = credentials.borrow().clone().unwrap_or(shown);
        reporter.inner.note_tried(&reporter.address);
        let sent = reporter.send(shown, body).await;
        if sent.as_ref().err().is_none_or(|error| error.status().is_some()) {
            reporter.inner.note_heard(&reporter.address);
        }
        match sent {
            Ok(tallies) => {
                reporter.inner.hear_tallies(&reporter.address, tallies.unwrap_or_default());
                reporter.inner.note_let_in(&reporter.address);
                reporter.note(None);
                backoff.reset();
            }
            // The report is invalid; the connection is not.
            Err(error) if matches!(error.status(), Some(400 | 413 | 422)) => {
                reporter.note(Some(with_causes(&error)));
            }
            Err(error) => {
                reporter.open = None;
                reporter.inner.note_refusal(&reporter.address, &error);
                reporter.note(Some(with_causes(&error)));
                let pause = backoff.pause(&mut rand::rng());
                sleep(pause).await;
            }
        }
    }
}

/// Sends one report over a separate connection.
pub(crate) async fn report_once(
    inner: Arc<Inner>,
    address: ControllerAddress,
    shown: Arc<Credentials>,
    body: Bytes,
) {
    let sent = Reporter { inner, address, open: None }.send(shown, body).await;
    if let Err(error) = sent {
        tracing::debug!(
            error = with_causes(&error),
            "cannot announce to a controller that this node leaves"
        );
    }
}

impl Reporter {
    async fn send(
        &mut self,
        shown: Arc<Credentials>,
        body: Bytes,
    ) -> Result<Option<Tallies>, ClientError> {
        // A new certificate needs a new connection, because the old one ends with the old
        // certificate.
        let kept = self.open.take();
        let kept = kept.filter(|(one, with)| one.is_open() && Arc::ptr_eq(with, &shown));
        if let Some((mut connection, with)) = kept {
            match connection.ask(Method::POST, REPORT, body.clone()).await {
                // The controller may have closed the connection at this moment, which is not a
                // failure.
                Err(ClientError::Ended { .. }) => {}
                answered => {
                    self.open = Some((connection, with));
                    return answered;
                }
            }
        }
        let patience = self.inner.options.patience;
        let mut connection = Connection::open(&self.address, &shown.tls, patience).await?;
        let answered = connection.ask(Method::POST, REPORT, body).await;
        self.open = Some((connection, shown));
        answered
    }

    fn note(&self, problem: Option<String>) {
        let mut is_news = false;
        self.inner.note(|status| {
            let one: &mut ReportStatus =
                status.reports.entry(self.address.to_string()).or_default();
            match &problem {
                None => one.taken += 1,
                Some(_) => one.failed += 1,
            }
            is_news = one.problem.is_some() != problem.is_some();
            one.problem.clone_from(&problem);
        });
        match problem {
            Some(problem) if is_news => {
                tracing::warn!(event = "cluster.reports-lost", "reports do not arrive: {problem}")
            }
            None if is_news => {
                tracing::info!(event = "cluster.reports-arrive", controller = %self.address, "reports arrive again")
            }
            _ => {}
        }
    }
}
