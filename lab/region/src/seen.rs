//! The arithmetic of what clients saw. Pure.

/// How a request ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum End {
    /// 200.
    Served,
    /// 503.
    Refused,
    /// Another status, or the connection broke.
    Failed,
    /// The client left.
    GaveUp,
}

/// A request, in seconds since the load began.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Answer {
    /// When it was to be sent: a load generator that is late, or has no free connection, makes
    /// nothing faster.
    pub(crate) due_s: f64,
    pub(crate) done_s: f64,
    pub(crate) end: End,
}

impl Answer {
    fn latency_s(&self) -> f64 {
        self.done_s - self.due_s
    }
}

/// Time from which to which something is counted, in seconds since the load began.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Window {
    pub(crate) from_s: f64,
    pub(crate) to_s: f64,
}

impl Window {
    fn has(self, at_s: f64) -> bool {
        (self.from_s..self.to_s).contains(&at_s)
    }

    fn length_s(self) -> f64 {
        self.to_s - self.from_s
    }
}

/// An answer that takes longer is not good.
pub(crate) const DEADLINE_S: f64 = 0.5;

/// Good answers a second, by when they came.
pub(crate) fn goodput(answers: &[Answer], window: Window) -> f64 {
    let good = |one: &&Answer| {
        one.end == End::Served && one.latency_s() <= DEADLINE_S && window.has(one.done_s)
    };
    answers.iter().filter(good).count() as f64 / window.length_s()
}

/// Latency in milliseconds that `share` of the served requests that were due in the window do not
/// exceed.
pub(crate) fn latency_ms(answers: &[Answer], share: f64, window: Window) -> f64 {
    let counts = |one: &&Answer| one.end == End::Served && window.has(one.due_s);
    let mut latencies: Vec<f64> =
        answers.iter().filter(counts).map(|one| 1e3 * one.latency_s()).collect();
    latencies.sort_unstable_by(f64::total_cmp);
    quantile(&latencies, share)
}

/// The nearest rank of ascending values; not a number if there is none.
fn quantile(values: &[f64], share: f64) -> f64 {
    let rank = (share * values.len() as f64).ceil() as usize;
    values.get(rank.saturating_sub(1)).copied().unwrap_or(f64::NAN)
}

/// Per cent of the requests due in the window that ended so.
pub(crate) fn percent(answers: &[Answer], end: End, window: Window) -> f64 {
    let due = answers.iter().filter(|one| window.has(one.due_s));
    let so = due.clone().filter(|one| one.end == end).count();
    100.0 * so as f64 / due.count().max(1) as f64
}

/// Length of the means by which [`recovery_s`] judges.
const RECOVERY_MEAN_S: f64 = 2.0;
const RECOVERY_STEP_S: f64 = 0.1;

/// Seconds from the window's start until goodput, as a mean of the next 2 seconds, is `enough` a
/// second; infinite if that does not happen in the window.
pub(crate) fn recovery_s(answers: &[Answer], enough: f64, window: Window) -> f64 {
    let steps = ((window.length_s() - RECOVERY_MEAN_S) / RECOVERY_STEP_S).floor().max(0.0) as u32;
    let starts = (0..=steps).map(|step| f64::from(step) * RECOVERY_STEP_S);
    let reaches = |after: &f64| {
        let from_s = window.from_s + after;
        goodput(answers, Window { from_s, to_s: from_s + RECOVERY_MEAN_S }) >= enough
    };
    starts.into_iter().find(reaches).unwrap_or(f64::INFINITY)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn served(due_s: f64, latency_s: f64) -> Answer {
        Answer { due_s, done_s: due_s + latency_s, end: End::Served }
    }

    const ALL: Window = Window { from_s: 0.0, to_s: 10.0 };

    #[test]
    fn quantiles_are_values_that_were_measured() {
        let values: Vec<f64> = (1..=1000).map(f64::from).collect();
        assert_eq!(quantile(&values, 0.5), 500.0);
        assert_eq!(quantile(&values, 0.99), 990.0);
        assert_eq!(quantile(&values, 1.0), 1000.0);
        assert!(quantile(&[], 0.5).is_nan());
    }

    #[test]
    fn a_stall_counts_for_every_request_that_was_due_while_it_lasted() {
        // 100 a second; everything stands from 4 s to 5 s. A client that waits for each answer
        // would see one slow one.
        let stalled = |due: f64| if (4.0..5.0).contains(&due) { 5.0 - due } else { 0.001 };
        let answers: Vec<Answer> = (0..1000)
            .map(|number| f64::from(number) / 100.0)
            .map(|due| served(due, stalled(due)))
            .collect();
        assert!(latency_ms(&answers, 0.99, ALL) > 890.0);
        assert!((latency_ms(&answers, 0.5, ALL) - 1.0).abs() < 1e-6);
        // Those due from 4.0 s on and answered at 5 s, half of them in time.
        assert!((94.9..95.2).contains(&goodput(&answers, ALL)), "{}", goodput(&answers, ALL));
    }

    #[test]
    fn goodput_counts_timely_answers_and_percent_counts_due_requests() {
        let refused = Answer { due_s: 3.0, done_s: 3.0, end: End::Refused };
        let answers = [served(1.0, 0.4), served(2.0, 0.6), refused, refused];
        assert_eq!(goodput(&answers, ALL), 0.1);
        assert_eq!(percent(&answers, End::Refused, ALL), 50.0);
        assert_eq!(percent(&answers, End::Failed, ALL), 0.0);
        assert_eq!(percent(&[], End::Refused, ALL), 0.0);
    }

    #[test]
    fn recovery_is_when_the_mean_of_two_seconds_is_enough() {
        // 50 a second until 5 s, then 100.
        let mut answers: Vec<Answer> =
            (0..250).map(|number| served(f64::from(number) / 50.0, 0.001)).collect();
        answers.extend((0..500).map(|number| served(5.0 + f64::from(number) / 100.0, 0.001)));
        let after = recovery_s(&answers, 95.0, ALL);
        // 0.2 s of the slow part are a tenth of the mean.
        assert!((4.7..5.0).contains(&after), "{after}");
        assert!(recovery_s(&answers, 110.0, ALL).is_infinite());
        assert_eq!(recovery_s(&answers, 40.0, ALL), 0.0);
    }
}
