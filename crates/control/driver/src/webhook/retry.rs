use std::time::Duration;

use crate::Backoff;

/// How an attempt ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Tried {
    /// The whole answer did not arrive.
    Unanswered,
    /// An answer with this status, and the seconds of its `Retry-After`.
    Answered(u16, Option<u64>),
}

/// Longest wait for a retry. A longer `Retry-After` ends the request with a failure, and the scaler
/// tries again later.
const WAIT_MAX: Duration = Duration::from_secs(60);

/// The wait before the next attempt; `None` if there is none. Pure.
///
/// Retries follow a missing answer and status 408, 425, 429 and 5xx except 501. A retry is safe
/// because the key marks it as the same request.
pub(super) fn next(backoff: Backoff, tries: u32, tries_max: u32, tried: Tried) -> Option<Duration> {
    let wait = match tried {
        Tried::Unanswered => backoff.after(tries),
        Tried::Answered(408 | 425 | 429 | 500 | 502..=599, told_s) => {
            told_s.map_or_else(|| backoff.after(tries), Duration::from_secs)
        }
        Tried::Answered(..) => return None,
    };
    (tries < tries_max && wait <= WAIT_MAX).then_some(wait)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn transient_failures_are_retried_with_backoff_up_to_the_limit() {
        let backoff = Backoff { first: Duration::from_secs(1), most: Duration::from_secs(4) };
        let rows = [
            (1, Tried::Unanswered, Some(1)),
            (3, Tried::Unanswered, Some(4)),
            (4, Tried::Unanswered, None),
            (1, Tried::Answered(200, None), None),
            (1, Tried::Answered(400, Some(1)), None),
            (1, Tried::Answered(501, None), None),
            (2, Tried::Answered(503, None), Some(2)),
            (2, Tried::Answered(429, Some(30)), Some(30)),
            (2, Tried::Answered(503, Some(0)), Some(0)),
            (2, Tried::Answered(503, Some(3600)), None),
        ];
        for (tries, tried, wait_s) in rows {
            let expected = wait_s.map(Duration::from_secs);
            assert_eq!(next(backoff, tries, 4, tried), expected, "{tries} {tried:?}");
        }
    }
}
