//! Roles, and the access that routes require.

use std::fmt;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// The rights of a caller. Each role includes the previous ones.
#[derive(
    Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize, JsonSchema,
)]
#[serde(rename_all = "lowercase")]
pub enum Role {
    /// Read state.
    Read,
    /// Change how traffic is spread: drain, weights, pins.
    Operate,
    /// Change the process: its configuration, and the members of its cluster.
    Admin,
}

impl Role {
    /// All roles, the one with the fewest rights first.
    pub const ALL: [Role; 3] = [Role::Read, Role::Operate, Role::Admin];

    /// The role's name in the configuration and in JSON.
    pub const fn word(self) -> &'static str {
        match self {
            Role::Read => "read",
            Role::Operate => "operate",
            Role::Admin => "admin",
        }
    }
}

impl fmt::Display for Role {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.word())
    }
}

/// The access that a route requires.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Access {
    /// No role.
    Anyone,
    /// This role or a higher one.
    Needs(Role),
}

impl Access {
    /// Access to routes that read state.
    pub(crate) const READ: Access = Access::Needs(Role::Read);
    /// Access to routes that change how traffic is spread.
    pub(crate) const OPERATE: Access = Access::Needs(Role::Operate);
    /// Access to routes that change the process.
    pub(crate) const ADMIN: Access = Access::Needs(Role::Admin);

    /// Whether a caller with this role has access. `None` is an unknown caller.
    pub fn allows(self, role: Option<Role>) -> bool {
        match self {
            Access::Anyone => true,
            Access::Needs(needed) => role.is_some_and(|role| role >= needed),
        }
    }
}
