use std::fmt;

/// Changes by a configuration.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Changes {
    /// Pools; changed: any option of theirs other than their backends.
    pub pools: Changed,
    /// Backends, as `pool/backend`; changed: name or weight.
    pub backends: Changed,
    /// Front doors; changed: any option.
    pub front_doors: Changed,
}

/// Names of what came, changed and went.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Changed {
    /// New objects.
    pub added: Vec<String>,
    /// Kept objects with other options.
    pub changed: Vec<String>,
    /// Removed objects.
    pub removed: Vec<String>,
}

impl Changed {
    /// Whether there is nothing in it.
    pub fn is_empty(&self) -> bool {
        self.added.is_empty() && self.changed.is_empty() && self.removed.is_empty()
    }
}

impl Changes {
    /// Whether the configuration changed nothing.
    pub fn is_empty(&self) -> bool {
        self.pools.is_empty() && self.backends.is_empty() && self.front_doors.is_empty()
    }
}

/// Largest number of events for backends that one change of the configuration emits of a kind. The
/// event of the change itself has the number of all.
const EVENTS_MAX: usize = 50;

impl Changes {
    /// Emits an event for each backend that was added or removed.
    pub(super) fn emit(&self) {
        for name in self.backends.added.iter().take(EVENTS_MAX) {
            let event = "backend.added";
            tracing::info!(target: "event", event, subject = name, "backend {name} was added");
        }
        for name in self.backends.removed.iter().take(EVENTS_MAX) {
            let event = "backend.removed";
            tracing::info!(target: "event", event, subject = name, "backend {name} was removed");
        }
    }
}

/// Names spelt out for each kind of change.
const NAMES_MAX: usize = 5;

impl fmt::Display for Changes {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.is_empty() {
            return f.write_str("nothing changed");
        }
        let mut separator = "";
        for (one, many, changed) in [
            ("pool", "pools", &self.pools),
            ("backend", "backends", &self.backends),
            ("front door", "front doors", &self.front_doors),
        ] {
            for (verb, names) in [
                ("added", &changed.added),
                ("changed", &changed.changed),
                ("removed", &changed.removed),
            ] {
                if names.is_empty() {
                    continue;
                }
                let noun = if names.len() == 1 { one } else { many };
                let listed = names[..names.len().min(NAMES_MAX)].join(", ");
                let more = if names.len() > NAMES_MAX { ", ..." } else { "" };
                write!(f, "{separator}{} {noun} {verb} ({listed}{more})", names.len())?;
                separator = "; ";
            }
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_summary_counts_and_names() {
        assert_eq!(Changes::default().to_string(), "nothing changed");
        let names = |n: usize| (0..n).map(|i| format!("web/{i}")).collect::<Vec<_>>();
        let changes = Changes {
            pools: Changed { changed: vec!["web".into()], ..Changed::default() },
            backends: Changed { added: names(7), removed: names(2), ..Changed::default() },
            front_doors: Changed::default(),
        };
        assert_eq!(
            changes.to_string(),
            "1 pool changed (web); \
             7 backends added (web/0, web/1, web/2, web/3, web/4, ...); \
             2 backends removed (web/0, web/1)"
        );
    }
}
