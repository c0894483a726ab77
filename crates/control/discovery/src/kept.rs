//! The set of a source that is in use, and what is known of the source. Pure: `now` is an argument.

use std::sync::Arc;
use std::time::{Duration, Instant};

use crate::backend::Found;

/// The last good set of a source.
#[derive(Clone, Debug, Default)]
pub(crate) struct Kept {
    /// The set in use.
    pub(crate) set: Arc<[Found]>,
    /// Time of the last read that confirmed the set in use.
    pub(crate) good_at: Option<Instant>,
    /// The reason why the last read did not confirm the set, or what its answer lacked.
    pub(crate) problem: Option<String>,
    /// Since when the source reports no backend, while the set in use has some.
    empty_since: Option<Instant>,
}

/// Text of an empty set that is not applied.
const EMPTY: &str = "the source reports no backend";

impl Kept {
    /// The set of an earlier process.
    pub(crate) fn of_before(set: Vec<Found>, good_at: Option<Instant>) -> Kept {
        let problem = Some("not read yet; the set is that of an earlier process".to_string());
        Kept { set: set.into(), good_at, problem, empty_since: None }
    }

    /// Takes a set that was read. Returns whether the set in use changed.
    ///
    /// An empty set is applied once the source has reported it for `empty_after`. A failure between
    /// two empty reports does not begin this time anew.
    pub(crate) fn take(
        &mut self,
        read: Vec<Found>,
        missing: Option<String>,
        empty_after: Option<Duration>,
        now: Instant,
    ) -> bool {
        if read.is_empty() && !self.set.is_empty() {
            let since = *self.empty_since.get_or_insert(now);
            let is_believed = empty_after.is_some_and(|after| now - since >= after);
            if !is_believed {
                let because = missing.map(|it| format!(": {it}")).unwrap_or_default();
                self.problem = Some(format!("{EMPTY}{because}"));
                return false;
            }
        }
        self.empty_since = None;
        self.good_at = Some(now);
        self.problem = missing;
        let is_new = *self.set != *read;
        if is_new {
            self.set = read.into();
        }
        is_new
    }

    /// Notes a failure of the source. The set stays.
    pub(crate) fn failed(&mut self, problem: String) {
        self.problem = Some(problem);
    }

    /// Time at which an empty set may be applied, if the source still reports it.
    pub(crate) fn due(&self, empty_after: Option<Duration>) -> Option<Instant> {
        Some(self.empty_since? + empty_after?)
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used, reason = "a panic is how a test fails")]
mod tests {
    use super::*;

    fn set(addresses: &[&str]) -> Vec<Found> {
        addresses.iter().map(|it| Found::at(it.parse().unwrap())).collect()
    }

    const MINUTE: Duration = Duration::from_secs(60);

    #[test]
    fn a_failed_read_keeps_the_set_until_the_next_successful_read() {
        let (mut kept, now) = (Kept::default(), Instant::now());
        assert!(kept.take(set(&["10.0.0.1:80"]), None, None, now));
        assert!(!kept.take(set(&["10.0.0.1:80"]), None, None, now + MINUTE));
        kept.failed("refused".into());
        assert_eq!((kept.set.len(), kept.good_at), (1, Some(now + MINUTE)));
        assert_eq!(kept.problem.as_deref(), Some("refused"));
        assert!(kept.take(set(&["10.0.0.2:80"]), None, None, now + 2 * MINUTE));
        assert_eq!(kept.problem, None);
    }

    #[test]
    fn an_empty_set_is_applied_only_after_the_configured_time() {
        let now = Instant::now();
        for (after, believed_at) in
            [(None, None), (Some(MINUTE), Some(1)), (Some(Duration::ZERO), Some(0))]
        {
            let mut kept = Kept::default();
            kept.take(set(&["10.0.0.1:80"]), None, after, now);
            let changed_at =
                (0..3).find(|minute| kept.take(set(&[]), None, after, now + *minute * MINUTE));
            assert_eq!(changed_at, believed_at, "{after:?}");
            assert_eq!(kept.set.is_empty(), believed_at.is_some());
        }
    }

    #[test]
    fn the_empty_set_timer_survives_failures_and_ends_with_a_backend() {
        let (mut kept, now) = (Kept::default(), Instant::now());
        let after = Some(MINUTE);
        kept.take(set(&["10.0.0.1:80"]), None, after, now);
        assert_eq!(kept.due(after), None);
        assert!(!kept.take(set(&[]), Some("no such name".into()), after, now));
        assert_eq!(kept.problem.as_deref(), Some("the source reports no backend: no such name"));
        assert_eq!((kept.due(after), kept.due(None)), (Some(now + MINUTE), None));
        kept.failed("timeout".into());
        assert_eq!(kept.due(after), Some(now + MINUTE));
        kept.take(set(&["10.0.0.1:80"]), None, after, now);
        assert_eq!(kept.due(after), None);
    }

    #[test]
    fn a_source_that_begins_empty_has_an_empty_set() {
        let (mut kept, now) = (Kept::default(), Instant::now());
        assert!(!kept.take(Vec::new(), None, None, now));
        assert_eq!((kept.problem.clone(), kept.good_at), (None, Some(now)));
    }
}
