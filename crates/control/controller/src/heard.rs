use std::sync::Arc;
use std::time::Duration;

use tokio::time::Instant;

use crate::hearing::{Verdict, Witnesses};

/// Which members this controller and the others hear.
#[derive(Debug, Default)]
pub(crate) struct Hearing {
    pub(crate) witnesses: Arc<Witnesses>,
    /// True once the store has listed the controllers.
    pub(crate) is_read: bool,
    pub(crate) verdict: Verdict,
    /// When the verdict changed to its present kind.
    pub(crate) since: Option<Instant>,
}

impl Hearing {
    /// The present problem, and how long it has lasted.
    pub(crate) fn problem(&self) -> Option<(Duration, String)> {
        Some((self.since?.elapsed(), self.verdict.problem()?))
    }

    /// Sets the verdict, and logs a change of its kind.
    pub(crate) fn conclude(&mut self, verdict: Verdict) {
        let kind = |verdict: &Verdict| match verdict {
            Verdict::Hears => 0,
            Verdict::Unheard { .. } => 1,
            Verdict::Deaf { other: None, .. } => 2,
            Verdict::Deaf { other: Some(_), .. } => 3,
        };
        let (before, now) = (kind(&self.verdict), kind(&verdict));
        if before != now {
            self.since = Some(Instant::now());
            match verdict.problem() {
                Some(problem) => tracing::warn!("{problem}"),
                None => tracing::info!("this controller receives reports from nodes again"),
            }
        }
        self.verdict = verdict;
    }
}
