use std::collections::BTreeMap;
use std::net::SocketAddr;

use serde::{Deserialize, Serialize};

use crate::Edition;

/// A member's report about a pool for which it has a driver: its ability to make backends, and
/// those that it has made.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Making {
    /// True if new backends outlive the member's process, so that another member can take them
    /// over.
    pub outlives: bool,
    /// The member's name for its driver; absent if its backends end with the process.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub driver: Option<String>,
    /// The member's file no longer has the pool's driver. It makes no backends, and those that it
    /// has should leave.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub ends: bool,
    /// The instructions with the roster that the member has carried out, as far as requests to its
    /// driver go. A backend that this roster assigns to the member and that is not in
    /// [`Self::backends`] is gone.
    pub applied: Edition,
    /// A number above those of all names that this member knows; 0 if it knows none.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub next_number: u64,
    /// Backends that exist or may exist, by name.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub backends: BTreeMap<String, Made>,
}

/// A backend, as its executor reports it.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Made {
    /// Its state.
    pub state: MadeState,
    /// Its address; absent before it was added.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub address: Option<SocketAddr>,
    /// The driver's identifier of it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub id: Option<String>,
    /// The last failure.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub problem: Option<String>,
    /// Its size; absent if all backends of the pool are alike.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub size: Option<String>,
    /// The member's driver changed since this backend was made. A backend of the new driver should
    /// replace it.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub is_outdated: bool,
    /// True if it outlives the process that made it; absent in reports of earlier versions.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub outlives: Option<bool>,
    /// The driver that made it or will make it, as in [`Making::driver`].
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub driver: Option<String>,
    /// The backend that it replaces, by the roster that the member used last.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub replaces: Option<String>,
    /// The key with which the driver was asked for it; absent if the driver was not asked.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub key: Option<String>,
}

#[expect(clippy::trivially_copy_pass_by_ref, reason = "serde gives a reference")]
fn is_zero(number: &u64) -> bool {
    *number == 0
}

/// State of a backend that a member makes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum MadeState {
    /// Being added; it does not serve yet.
    #[default]
    Starting,
    /// Serving.
    Ready,
    /// Receives no new work and finishes its own.
    Draining,
    /// Being removed.
    Leaving,
    /// Could not be added, or went down. The driver is asked again.
    Failed,
}

impl MadeState {
    /// The name in JSON.
    pub fn name(self) -> &'static str {
        match self {
            MadeState::Starting => "starting",
            MadeState::Ready => "ready",
            MadeState::Draining => "draining",
            MadeState::Leaving => "leaving",
            MadeState::Failed => "failed",
        }
    }
}
