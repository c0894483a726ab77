//! The states of the names, which outlive the options.

use std::collections::BTreeMap;
use std::sync::Mutex;
use std::time::SystemTime;

use equipoise_basics::lock;
use equipoise_tls::Certificate;
use serde::{Deserialize, Serialize};
use tokio::sync::Notify;

use crate::folder::AcmeFolder;
use crate::pace::Fault;

/// The stage of a name.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub enum Stage {
    /// No certificate yet; the next attempt is due later.
    #[default]
    Waiting,
    /// An order is under way.
    Ordering,
    /// There is a certificate.
    Issued,
}

impl Stage {
    /// The name in status.
    pub const fn name(self) -> &'static str {
        match self {
            Stage::Waiting => "waiting",
            Stage::Ordering => "ordering",
            Stage::Issued => "issued",
        }
    }
}

/// The state of one name.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct OrderState {
    /// Its stage.
    pub stage: Stage,
    /// Failed attempts since the last success.
    pub failures: u32,
    /// The error of the last attempt; `None` after a success.
    pub last_error: Option<String>,
    /// The time of the next attempt, renewals included.
    pub next_try: Option<SystemTime>,
}

/// The state of one name, and the memory of its failures.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct NameState {
    pub(crate) status: OrderState,
    /// Position of the method to use. It moves on when the directory could not verify the name.
    pub(crate) method: usize,
    /// The kind of the last failure, and how many of that kind there were in a row.
    pub(crate) kind: Option<(Fault, u32)>,
}

/// States by name, each with the folder that it is of. A reload keeps them, so that it does not
/// shorten a wait.
#[derive(Debug, Default)]
pub(crate) struct Names {
    states: Mutex<BTreeMap<String, (AcmeFolder, NameState)>>,
    /// Wakes the task that orders, after another member of the cluster changed a state.
    pub(crate) changed: Notify,
}

impl Names {
    /// Changes the status of a name.
    pub(crate) fn set<T>(
        &self,
        folder: &AcmeFolder,
        name: &str,
        change: impl FnOnce(&mut OrderState) -> T,
    ) -> T {
        self.state(folder, name, |state| change(&mut state.status))
    }

    /// Changes the state of a name.
    pub(crate) fn state<T>(
        &self,
        folder: &AcmeFolder,
        name: &str,
        change: impl FnOnce(&mut NameState) -> T,
    ) -> T {
        let mut states = lock(&self.states);
        let new = || (folder.clone(), NameState::default());
        let entry = states.entry(name.into()).or_insert_with(new);
        if entry.0 != *folder {
            *entry = new();
        }
        change(&mut entry.1)
    }

    /// The status of each name that was ever ordered.
    pub(crate) fn all(&self) -> BTreeMap<String, OrderState> {
        let states = lock(&self.states);
        states.iter().map(|(name, (_, state))| (name.clone(), state.status.clone())).collect()
    }
}

/// Whether a certificate has the name.
pub(crate) fn is_for(certificate: &Certificate, name: &str) -> bool {
    certificate.names().iter().any(|it| it == name)
}
