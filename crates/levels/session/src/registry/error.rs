use std::fmt;
use std::sync::Arc;

use crate::BindError;

/// An operator's wish that cannot be followed.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum RegistryError {
    /// No pool has that name.
    #[error("there is no pool `{asked}`; {known}")]
    UnknownPool {
        /// The requested name.
        asked: String,
        /// The existing names.
        known: Known,
    },
    /// No backend of the pool has that name or address.
    #[error("pool `{pool}` has no backend `{asked}`; {known}")]
    UnknownBackend {
        /// The pool, which exists.
        pool: Arc<str>,
        /// The requested name.
        asked: String,
        /// The existing names.
        known: Known,
    },
    /// The registry's task has ended: the process is stopping.
    #[error("the load balancer is stopping")]
    Stopped,
}

/// A configuration that cannot be applied. The running one stays.
#[derive(Debug, thiserror::Error)]
pub enum ApplyError {
    /// A front door cannot be opened.
    #[error(transparent)]
    Bind(#[from] BindError),
    /// A front door names a pool that is not there.
    #[error(
        "front door `{front_door}` names pool `{asked}` (option `pool`), which is not configured; {known}"
    )]
    UnknownPool {
        /// The front door.
        front_door: Arc<str>,
        /// The pool that it names.
        asked: Arc<str>,
        /// The existing names.
        known: Known,
    },
    /// The registry's task has ended: the process is stopping.
    #[error("the load balancer is stopping")]
    Stopped,
}

/// The names that would have been accepted.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Known {
    /// The one that was probably meant.
    pub nearest: Option<Arc<str>>,
    /// All of them, in configured order.
    pub names: Vec<Arc<str>>,
}

/// Names listed in a message.
const LISTED_MAX: usize = 8;

impl Known {
    pub(super) fn of(asked: &str, names: impl Iterator<Item = Arc<str>>) -> Known {
        let names: Vec<_> = names.collect();
        let far = (asked.chars().count() / 3).max(2);
        let nearest = names
            .iter()
            .map(|name| (strsim::damerau_levenshtein(asked, name), name))
            .filter(|(distance, _)| *distance <= far)
            .min_by_key(|(distance, _)| *distance)
            .map(|(_, name)| name.clone());
        Known { nearest, names }
    }
}

impl fmt::Display for Known {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if let Some(nearest) = &self.nearest {
            return write!(f, "did you mean `{nearest}`?");
        }
        if self.names.is_empty() {
            return f.write_str("there are none");
        }
        f.write_str("there are ")?;
        for (i, name) in self.names.iter().take(LISTED_MAX).enumerate() {
            write!(f, "{}`{name}`", if i == 0 { "" } else { ", " })?;
        }
        match self.names.len().saturating_sub(LISTED_MAX) {
            0 => Ok(()),
            more => write!(f, " and {more} more"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn unknown(asked: &str, names: &[&str]) -> String {
        let known = Known::of(asked, names.iter().map(|n| Arc::from(*n)));
        RegistryError::UnknownPool { asked: asked.into(), known }.to_string()
    }

    #[test]
    fn the_nearest_name_is_offered_or_else_all() {
        let rows = [
            ("wbe", &["api", "web"][..], "did you mean `web`?"),
            ("frontend-eu-wset", &["frontend-eu-west"], "did you mean `frontend-eu-west`?"),
            ("database", &["api", "web"], "there are `api`, `web`"),
            ("web", &[], "there are none"),
        ];
        for (asked, names, want) in rows {
            assert_eq!(unknown(asked, names), format!("there is no pool `{asked}`; {want}"));
        }
        let many: Vec<String> = (0..20).map(|i| format!("10.0.0.{i}:80")).collect();
        let many: Vec<&str> = many.iter().map(String::as_str).collect();
        assert!(unknown("x", &many).ends_with("`10.0.0.7:80` and 12 more"));
    }
}
