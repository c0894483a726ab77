//! State that the tasks of a controller share, and the handle of it.

use std::sync::{Arc, Mutex, MutexGuard};
use std::time::Duration;

use equipoise_basics::lock;
use equipoise_store::{Entry, Key, KeyError, Leader, Prefix, Store, StoreError};
use tokio::sync::{Notify, watch};
use tokio::task::JoinHandle;
use tokio::time::Instant;

use crate::counts::Counts;
use crate::failing::{Failing, Refused};
use crate::heard::Hearing;
use crate::hearing::HearingRecord;
use crate::instructions::Instructions;
use crate::options::{ControllerOptions, Premises, Source};
use crate::recorder::Recorder;
use crate::roll::Roll;
use crate::wishes::Wishes;

/// A handle of a running [`Controller`]. Clones refer to the same controller.
#[derive(Clone, Debug)]
pub struct ControllerHandle {
    pub(crate) shared: Arc<Shared>,
}

/// A controller that cannot start, or an operator's change that was not stored.
#[derive(Debug, thiserror::Error)]
pub enum ControllerError {
    /// The name cannot be a key of the store.
    #[error("{0:?} cannot be a name in the store")]
    Name(String, #[source] KeyError),
    /// The store did not accept the change.
    #[error("the store did not accept the change")]
    Store(#[from] StoreError),
    /// The store did not answer. The change may still take effect.
    #[error("the store has not taken the change; the change may still take effect")]
    Unanswered,
    /// The store failed during the change, which may take effect or have taken effect.
    #[error("the store did not confirm the change; the change may still take effect")]
    Unconfirmed(#[source] StoreError),
    /// The store has not answered an earlier change, so this one was not started.
    #[error("an earlier change waits for the store; this one was not made")]
    Busy,
}

/// State that the tasks of a controller share.
pub(crate) struct Shared {
    pub(crate) options: ControllerOptions,
    pub(crate) store: Arc<dyn Store>,
    pub(crate) source: Arc<dyn Source>,
    pub(crate) recorder: Arc<Recorder>,
    pub(crate) began: Instant,
    pub(crate) roll: Mutex<Roll>,
    pub(crate) known: Mutex<Known>,
    pub(crate) instructions: watch::Sender<Arc<Instructions>>,
    pub(crate) counts: Counts,
    /// Wakes the task to plan now, because an operator changed something.
    pub(crate) wake: Notify,
    /// Held while an operator's change is written.
    pub(crate) wish_turn: Arc<tokio::sync::Mutex<()>>,
    /// Notifies that other controllers joined or left, or hear other members.
    pub(crate) others_hear: Notify,
    /// This controller's record in the store, as it should be.
    pub(crate) record: watch::Sender<HearingRecord>,
    pub(crate) keys: Keys,
}

/// State of a controller that does not come from reports.
#[derive(Debug, Default)]
pub(crate) struct Known {
    pub(crate) premises: Premises,
    pub(crate) wishes: Wishes,
    pub(crate) leader: Option<Leader>,
    /// The previous leader, and the time since which there is no leader.
    pub(crate) led_last: Option<String>,
    pub(crate) vacant_since: Option<Instant>,
    pub(crate) hearing: Hearing,
    pub(crate) controllers: Vec<String>,
    /// The term in which this controller leads, if it does.
    pub(crate) leads_in: Option<u64>,
    /// When the newest instructions were published here.
    pub(crate) published: Option<Instant>,
    pub(crate) failing: Option<Failing>,
    /// An operator's write that the store did not answer in time.
    pub(crate) unanswered: Option<JoinHandle<()>>,
    /// The last error of the store that prevents leadership.
    pub(crate) cannot_lead: Option<Refused>,
    pub(crate) is_stopping: bool,
}

/// Keys of the controllers in the store.
pub(crate) struct Keys {
    pub(crate) plans: Prefix,
    pub(crate) plan: Key,
    pub(crate) wishes: Prefix,
    pub(crate) nodes: Prefix,
    pub(crate) office: Prefix,
    pub(crate) group: Prefix,
}

/// Names of the leadership, and of the group of its candidates.
pub(crate) const OFFICE: &str = "controller";
pub(crate) const GROUP: &str = "controllers";

impl Keys {
    pub(crate) fn new() -> Result<Keys, KeyError> {
        let plans = Prefix::of("plan")?;
        let plan = plans.key("instructions")?;
        let wishes = Prefix::of("wishes/pools")?;
        let nodes = Prefix::of("wishes/nodes")?;
        let office = Prefix::of(&format!("election/{OFFICE}"))?;
        let group = Prefix::of(&format!("members/{GROUP}"))?;
        Ok(Keys { plan, plans, wishes, nodes, office, group })
    }
}

impl Shared {
    /// Time since the start, which is the clock of the load history.
    pub(crate) fn now(&self) -> Duration {
        self.began.elapsed()
    }

    pub(crate) fn roll(&self) -> MutexGuard<'_, Roll> {
        lock(&self.roll)
    }

    pub(crate) fn known(&self) -> MutexGuard<'_, Known> {
        lock(&self.known)
    }

    /// Notes the outcome of a request to the store, other than the write of a plan.
    pub(crate) fn note_store<T>(&self, outcome: &Result<T, StoreError>) {
        match outcome {
            Ok(_) => self.note_read(),
            Err(error) => self.note_failure(error),
        }
    }

    /// Publishes `instructions`, if they are newer than the newest.
    pub(crate) fn publish(&self, instructions: Instructions) {
        let is_newer = self.instructions.send_if_modified(|newest| {
            let is_newer = instructions.is_newer_than(newest);
            if is_newer {
                *newest = Arc::new(instructions);
            }
            is_newer
        });
        if is_newer {
            self.known().published = Some(Instant::now());
        }
    }
}

/// Decodes instructions from the store. `None` if this version cannot.
pub(crate) fn read_instructions(entry: &Entry) -> Option<Instructions> {
    serde_json::from_slice(&entry.value)
        .inspect_err(|error| {
            tracing::error!(%error, key = %entry.key, "cannot decode the stored plan; ignoring it");
        })
        .ok()
}

impl std::fmt::Debug for Shared {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Shared").field("options", &self.options).finish_non_exhaustive()
    }
}
