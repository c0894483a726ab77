use std::future::Future;

use crate::Problem;
use crate::metrics::Reading;
use crate::wire::{Admin, Changed, Phase, Reloaded, Status};

/// What the API asks of the process. The binary implements it over its inventory.
pub trait Operator: Send + Sync + 'static {
    /// Whether new work is taken.
    fn phase(&self) -> Phase;

    /// Everything there is to show.
    fn status(&self) -> impl Future<Output = Status> + Send;

    /// Every figure that `/metrics` exports, as of now.
    fn metrics(&self) -> impl Future<Output = Reading> + Send;

    /// Sets what is wanted of a backend; it survives reloads, not restarts.
    fn set_admin(
        &self,
        pool: &str,
        backend: &str,
        admin: Admin,
    ) -> impl Future<Output = Result<Changed, OperateError>> + Send;

    /// Sets a backend's weight; it survives reloads that do not change that backend's weight.
    fn set_weight(
        &self,
        pool: &str,
        backend: &str,
        weight: u16,
    ) -> impl Future<Output = Result<Changed, OperateError>> + Send;

    /// Reads the configuration file again; all of it takes effect, or nothing.
    fn reload(&self) -> impl Future<Output = Result<Reloaded, OperateError>> + Send;
}

/// Why an [`Operator`] did not do what it was asked.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum OperateError {
    /// No pool has that name.
    #[error("there is no pool `{pool}`{}; {}", near(pool, known), listing("pools", known))]
    NoSuchPool {
        /// As asked.
        pool: String,
        /// All pools.
        known: Vec<String>,
    },
    /// The pool has no backend of that name or address.
    #[error(
        "pool `{pool}` has no backend `{backend}`{}; {}",
        near(backend, known),
        listing("backends", known)
    )]
    NoSuchBackend {
        /// Its pool.
        pool: String,
        /// As asked.
        backend: String,
        /// All backends of the pool.
        known: Vec<String>,
    },
    /// The weight is out of range.
    #[error("weight {weight} is not in 0..=1000; 0 drains the backend, 1 is the default")]
    WeightOutOfRange {
        /// As asked.
        weight: u16,
    },
    /// The configuration was not taken; the one that ran goes on running.
    #[error("{config_file} was not loaded, the running configuration stays: {}", errors.join("\n"))]
    ReloadFailed {
        /// The file.
        config_file: String,
        /// Everything that is wrong with it.
        errors: Vec<String>,
    },
    /// The process stops.
    #[error("equipoise is stopping and takes no more changes; start it again first")]
    Stopping,
}

/// A known name is worth suggesting when it is this similar (Jaro-Winkler, 0 to 1).
const NEAR: f64 = 0.8;

fn near(asked: &str, known: &[String]) -> String {
    known
        .iter()
        .map(|name| (strsim::jaro_winkler(asked, name), name))
        .filter(|(similarity, _)| *similarity > NEAR)
        .max_by(|a, b| a.0.total_cmp(&b.0))
        .map(|(_, name)| format!(" (did you mean `{name}`?)"))
        .unwrap_or_default()
}

/// Names listed in a message at the most.
const LISTED: usize = 12;

fn listing(what: &str, known: &[String]) -> String {
    if known.is_empty() {
        return format!("there are no {what}");
    }
    let shown = known[..known.len().min(LISTED)].join(", ");
    let more = known.len().saturating_sub(LISTED);
    if more == 0 { format!("{what}: {shown}") } else { format!("{what}: {shown} and {more} more") }
}

impl From<OperateError> for Problem {
    fn from(error: OperateError) -> Problem {
        let (status, title) = match &error {
            OperateError::NoSuchPool { .. } => (404, "no such pool"),
            OperateError::NoSuchBackend { .. } => (404, "no such backend"),
            OperateError::WeightOutOfRange { .. } => (422, "weight out of range"),
            OperateError::ReloadFailed { .. } => (422, "configuration not loaded"),
            OperateError::Stopping => (503, "stopping"),
        };
        let detail = error.to_string();
        let errors = match error {
            OperateError::ReloadFailed { errors, .. } => errors,
            _ => Vec::new(),
        };
        Problem { title: title.into(), status, detail, errors }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_mistyped_backend_is_answered_with_the_nearest_one_and_all_others() {
        let error = OperateError::NoSuchBackend {
            pool: "web".into(),
            backend: "10.0.0.1:808".into(),
            known: vec!["10.0.0.1:8080".into(), "other".into()],
        };
        let problem = Problem::from(error);
        assert_eq!(problem.status, 404);
        assert_eq!(
            problem.detail,
            "pool `web` has no backend `10.0.0.1:808` (did you mean `10.0.0.1:8080`?); \
             backends: 10.0.0.1:8080, other"
        );
    }

    #[test]
    fn a_long_list_of_names_is_cut() {
        let known: Vec<String> = (0..40).map(|n| format!("b{n}")).collect();
        assert!(listing("backends", &known).ends_with("b11 and 28 more"));
        assert_eq!(listing("pools", &[]), "there are no pools");
    }
}
