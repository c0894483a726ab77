//! The API's entrance: access, and the log of changes.

use std::sync::Arc;

use equipoise_api::Gate;
use equipoise_api::audit::{Audit, AuditError, Elsewhere};
use equipoise_api::metrics::AccessReading;
use equipoise_cluster::{Deed, Journal};

use crate::config::Operations;
use crate::run::logs;

/// State shared by the API's listeners and reloads.
#[derive(Clone, Debug)]
pub(crate) struct Entrance {
    pub(crate) gate: Arc<Gate>,
    pub(crate) audit: Arc<Audit>,
}

impl Entrance {
    /// As configured at the start.
    ///
    /// # Errors
    /// The audit log cannot be opened: nothing is to be changed that cannot be noted.
    pub(crate) fn open(operations: &Operations) -> Result<Entrance, AuditError> {
        Ok(Entrance {
            gate: Arc::new(Gate::new(operations.api_policy.clone())),
            audit: Arc::new(Audit::open(&operations.audit)?),
        })
    }

    /// The audit log, for the cluster API.
    pub(crate) fn journal(&self) -> Arc<dyn Journal> {
        Arc::new(AuditJournal(Arc::clone(&self.audit)))
    }

    /// For metrics.
    pub(crate) fn reading(&self) -> AccessReading {
        AccessReading {
            turned_away: self.gate.turned_away(),
            audit_lines_lost: self.audit.lost(),
            audit_lines_waiting: self.audit.waiting() as u64,
            log_lines_lost: logs::lines_lost(),
        }
    }

    /// Applies the configuration. An audit log that cannot be opened leaves the previous one.
    pub(crate) fn follow(&self, operations: &Operations) {
        self.gate.set(operations.api_policy.clone());
        self.audit.reopen(&operations.audit);
    }
}

/// Requests to the cluster API are logged with those to the API.
#[derive(Debug)]
struct AuditJournal(Arc<Audit>);

impl Journal for AuditJournal {
    fn note(&self, deed: Deed) {
        let Deed { who, from, method, path, status, detail, after } = deed;
        let from = Some(from);
        self.0.note(Elsewhere { who, from, method, path, status, detail, after });
    }

    fn count(&self) {
        self.0.count();
    }
}
