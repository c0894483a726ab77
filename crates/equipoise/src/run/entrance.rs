//! Access to the API, and the audit log.

use std::sync::Arc;

use equipoise_api::audit::{Audit, AuditError, Elsewhere};
use equipoise_api::metrics::AccessReading;
use equipoise_api::{ApiTls, Gate};
use equipoise_cluster::{Deed, Journal};

use equipoise_cli::logs;
use equipoise_config::Operations;

/// State shared by the API's listeners and reloads.
#[derive(Clone, Debug)]
pub(crate) struct Entrance {
    pub(crate) gate: Arc<Gate>,
    pub(crate) audit: Arc<Audit>,
    /// TLS of the API's address.
    pub(crate) tls: Arc<ApiTls>,
}

impl Entrance {
    /// Opens them as configured at the start.
    ///
    /// # Errors
    /// The audit log cannot be opened. A process that cannot log changes must not accept any.
    pub(crate) fn open(operations: &Operations) -> Result<Entrance, AuditError> {
        Ok(Entrance {
            gate: Arc::new(Gate::new(operations.api_policy.clone())),
            audit: Arc::new(Audit::open(&operations.audit)?),
            tls: Arc::new(ApiTls::new(operations.api_tls.clone())),
        })
    }

    /// The audit log, for the cluster API.
    pub(crate) fn journal(&self) -> Arc<dyn Journal> {
        Arc::new(AuditJournal(Arc::clone(&self.audit)))
    }

    /// The figures of access, for metrics.
    pub(crate) fn reading(&self) -> AccessReading {
        AccessReading {
            turned_away: self.gate.turned_away(),
            audit_lines_lost: self.audit.lost(),
            audit_lines_waiting: self.audit.waiting() as u64,
            log_lines_lost: logs::lines_lost(),
        }
    }

    /// Applies a configuration. If its audit log cannot be opened, the previous one stays in use.
    pub(crate) fn follow(&self, operations: &Operations) {
        self.gate.set(operations.api_policy.clone());
        self.tls.set(operations.api_tls.clone());
        self.audit.reopen(&operations.audit);
    }
}

/// Logs requests to the cluster API in the same audit log as requests to the API.
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
