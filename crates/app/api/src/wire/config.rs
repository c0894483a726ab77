//! The configuration file's part of the API.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// `GET /v1/config`: the configuration in force.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct ConfigState {
    /// The file from which it was read.
    pub file: String,
    /// Number of times that a file was applied, counted from 1.
    pub generation: u64,
    /// Time at which it was applied, in seconds since 1970.
    pub loaded_at_unix_seconds: u64,
}

/// `GET /v1/config/text`: the file as it is on the disk, which the next reload would read.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct ConfigText {
    /// The file.
    pub file: String,
    /// Its text, which need not be valid.
    pub toml: String,
    /// Whether callers with the role admin may replace it (`[api] write-config`).
    pub writable: bool,
    /// The text before the last replacement, which a roll-back restores; `None`: there is none.
    pub previous: Option<String>,
}

/// `PUT /v1/config/text`
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct WriteConfig {
    /// The new text of the file.
    pub toml: String,
}

/// `POST /v1/config/check`
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct CheckConfig {
    /// The text of a file to check; without it, the file of this process is read.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub toml: Option<String>,
}

/// `POST /v1/config/preview`: what a reload would change.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct ReloadPreview {
    /// The file that was read.
    pub config_file: String,
    /// The changes, level by level; empty if nothing would change.
    pub changes: Vec<String>,
    /// Established connections that the change would end.
    pub ends: Vec<String>,
    /// Options that changed in the file and would take effect only after a restart.
    pub need_restart: Vec<String>,
}

/// Problems of a configuration.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Checked {
    /// The checked file.
    pub file: String,
    /// Whether the file can be used: no problem is an error.
    pub valid: bool,
    /// Problems in the order of the file.
    pub problems: Vec<ConfigProblem>,
}

/// One problem of a configuration.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct ConfigProblem {
    /// `error`: the file cannot be used; `warning`: it likely does not do what its author meant.
    pub severity: String,
    /// Line, counted from 1; `None` if the problem is the file itself.
    pub line: Option<usize>,
    /// Column in characters, counted from 1.
    pub column: Option<usize>,
    /// The option; empty if there is none.
    pub option: String,
    /// The problem, the accepted values, and the remedy.
    pub text: String,
}
