use std::collections::BTreeMap;
use std::net::SocketAddr;

use serde::{Deserialize, Serialize};

use crate::Edition;

/// What a member with a driver for a pool says of it: that it can make backends, and what it has made.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Making {
    /// Whether what it makes from now on outlives its process, so that another member can go on with it.
    pub outlives: bool,
    /// The driver that makes it, by a name that the member gives; absent if its backends end with the process.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub driver: Option<String>,
    /// The member's file has the pool's driver no more: it makes none, and what it has is to leave.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub ends: bool,
    /// The instructions whose roster is done here, as far as asking for it goes: what that roster gives this member and
    /// is not in [`Self::backends`] is gone.
    pub applied: Edition,
    /// A number that is above those of all names that this member knows; 0 if it knows none.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub next_number: u64,
    /// What exists, or may exist, by name.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub backends: BTreeMap<String, Made>,
}

/// A backend, as the member that makes it has it.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Made {
    /// How far it is.
    pub state: MadeState,
    /// Where it serves; absent before it was added.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub address: Option<SocketAddr>,
    /// What the driver calls it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub id: Option<String>,
    /// What went wrong last.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub problem: Option<String>,
    /// Which of the pool's sizes.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub size: Option<String>,
    /// The member's file names another driver since this was made: one of the new driver's is to replace it.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub is_outdated: bool,
    /// Whether it outlives the process that made it; absent in reports of earlier versions.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub outlives: Option<bool>,
    /// The driver that made it, or is to, as [`Making::driver`].
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub driver: Option<String>,
    /// The backend that it replaces, by the roster that the member used last.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub replaces: Option<String>,
    /// The key under which the driver was asked for it; absent where none was.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub key: Option<String>,
}

#[expect(clippy::trivially_copy_pass_by_ref, reason = "serde gives a reference")]
fn is_zero(number: &u64) -> bool {
    *number == 0
}

/// How far a made backend is on its way.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum MadeState {
    /// Asked for; it does not serve yet.
    #[default]
    Starting,
    /// Serves.
    Ready,
    /// Keeps what it has and takes nothing new.
    Draining,
    /// Is being taken away.
    Leaving,
    /// Could not be added, or went down; it is tried again.
    Failed,
}

impl MadeState {
    /// Its name, as in JSON.
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
