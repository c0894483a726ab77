//! The configuration file's part of the API.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// `GET /v1/config`: which configuration runs.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct ConfigState {
    /// The file that it came from.
    pub file: String,
    /// Counts from 1, once for each time that a file was taken.
    pub generation: u64,
    /// When it was taken, seconds since 1970.
    pub loaded_at_unix_seconds: u64,
}

/// `POST /v1/config/check`
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct CheckConfig {
    /// The text of a file to check; without it, the file of this process is read.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub toml: Option<String>,
}

/// Problems of a configuration.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Checked {
    /// The checked file.
    pub file: String,
    /// Whether it can be used: no problem is an error.
    pub valid: bool,
    /// In the order of the file.
    pub problems: Vec<ConfigProblem>,
}

/// One thing that is wrong.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct ConfigProblem {
    /// `error`: it cannot be used; `warning`: it likely does not do what its writer meant.
    pub severity: String,
    /// From 1; `None` when it is the file that is wrong.
    pub line: Option<usize>,
    /// In characters, from 1.
    pub column: Option<usize>,
    /// The option; empty where there is none.
    pub option: String,
    /// The problem, the accepted values, and what to do.
    pub text: String,
}
