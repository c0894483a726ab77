//! Roles, and the access that routes require.

use std::fmt;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// The rights of a caller; each role includes those before it.
#[derive(
    Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize, JsonSchema,
)]
#[serde(rename_all = "lowercase")]
pub enum Role {
    /// Look.
    Read,
    /// Change how traffic is spread: drain, weigh, pin.
    Operate,
    /// Change what the process is: reload its configuration, what its members are.
    Admin,
}

impl Role {
    /// Every role, the least first.
    pub const ALL: [Role; 3] = [Role::Read, Role::Operate, Role::Admin];

    /// Its name in the configuration and in JSON.
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
    /// Nothing.
    Anyone,
    /// This role or a later one.
    Needs(Role),
}

impl Access {
    /// Reads state.
    pub(crate) const READ: Access = Access::Needs(Role::Read);
    /// Changes how traffic is spread.
    pub(crate) const OPERATE: Access = Access::Needs(Role::Operate);
    /// Changes the process.
    pub(crate) const ADMIN: Access = Access::Needs(Role::Admin);

    /// Whether a caller of this role may; `None` is a caller that nothing is known of.
    pub fn allows(self, role: Option<Role>) -> bool {
        match self {
            Access::Anyone => true,
            Access::Needs(needed) => role.is_some_and(|role| role >= needed),
        }
    }
}
