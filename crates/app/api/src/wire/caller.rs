//! The caller of the API.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::auth::Role;

/// `GET /v1/caller`
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct CallerIdentity {
    /// `token:NAME`, `client:NAME` (a certificate), `uid:NUMBER` (the unix socket) or `anonymous`.
    pub who: String,
    /// Its role.
    pub role: Role,
}
