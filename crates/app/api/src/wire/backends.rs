//! Backends that are added, changed and removed through the API.

use schemars::JsonSchema;
use serde::{Deserialize, Deserializer, Serialize};

/// Largest concurrency limit.
const CONCURRENCY_MAX: u32 = 1_000_000;

/// `PUT /v1/pools/{pool}/backends/{backend}`: a backend as the configuration file states it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct AddBackend {
    /// `IP:PORT` or `HOST:PORT`; the backend's name by default.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub address: Option<String>,
    /// Its share relative to the pool's other backends; 0: it gets no new work.
    #[schemars(range(min = 0, max = 1000))]
    #[serde(default = "one", deserialize_with = "super::weight")]
    pub weight: u16,
    /// It gets new work only while no backend that is no backup serves.
    #[serde(default)]
    pub backup: bool,
    /// Its concurrency limit; the pool's by default.
    #[schemars(range(min = 1, max = 1_000_000))]
    #[serde(
        default,
        skip_serializing_if = "Option::is_none",
        deserialize_with = "concurrency::<1, _>"
    )]
    pub concurrency: Option<u32>,
    /// It is also there after a restart of the process.
    #[serde(default)]
    pub keep: bool,
}

fn one() -> u16 {
    1
}

/// `PATCH /v1/pools/{pool}/backends/{backend}`: an operator's settings. An absent one stays.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct ChangeBackend {
    /// The new weight; 0 drains.
    #[schemars(range(min = 0, max = 1000))]
    #[serde(default, skip_serializing_if = "Option::is_none", deserialize_with = "weight")]
    pub weight: Option<u16>,
    /// The new concurrency limit; 0 returns to the configured one.
    #[schemars(range(min = 0, max = 1_000_000))]
    #[serde(
        default,
        skip_serializing_if = "Option::is_none",
        deserialize_with = "concurrency::<0, _>"
    )]
    pub concurrency: Option<u32>,
}

/// Query of `DELETE /v1/pools/{pool}/backends/{backend}`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct RemoveBackend {
    /// Remove it at once, and close its connections. Without it, it gets no new work, and is
    /// removed when it has finished its own.
    #[serde(default)]
    pub now: bool,
}

fn weight<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Option<u16>, D::Error> {
    #[derive(Deserialize)]
    #[serde(transparent)]
    struct Weight(#[serde(deserialize_with = "super::weight")] u16);
    Ok(Option::<Weight>::deserialize(deserializer)?.map(|Weight(weight)| weight))
}

/// JSON does not distinguish 5 and 5.0, so both are accepted.
fn concurrency<'de, const MIN: u32, D: Deserializer<'de>>(
    deserializer: D,
) -> Result<Option<u32>, D::Error> {
    let Some(number) = Option::<f64>::deserialize(deserializer)? else { return Ok(None) };
    let accepted = f64::from(MIN)..=f64::from(CONCURRENCY_MAX);
    if number.fract() != 0.0 || !accepted.contains(&number) {
        return Err(serde::de::Error::custom(format_args!(
            "{number}: concurrency is a whole number in {MIN}..={CONCURRENCY_MAX}"
        )));
    }
    #[allow(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "checked above")]
    Ok(Some(number as u32))
}
