//! Quantiles of times.

use std::time::Duration;

pub(crate) fn ms(time: Duration) -> f64 {
    time.as_secs_f64() * 1e3
}

/// The quantile of times, in milliseconds; none have 0.
pub(crate) fn at_ms(times: &mut [Duration], permille: usize) -> f64 {
    times.sort_unstable();
    let at = (times.len() * permille / 1000).min(times.len().saturating_sub(1));
    times.get(at).copied().map_or(0.0, ms)
}

/// The mean, in milliseconds; of none 0.
pub(crate) fn mean_ms(times: &[Duration]) -> f64 {
    times.iter().map(|time| ms(*time)).sum::<f64>() / times.len().max(1) as f64
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn quantiles_are_of_sorted_times() {
        let mut times: Vec<_> = [5, 1, 3, 2, 4].map(Duration::from_millis).into();
        let all = [0, 500, 1000].map(|permille| at_ms(&mut times, permille));
        assert_eq!(all, [1.0, 3.0, 5.0]);
        assert_eq!(at_ms(&mut [], 500), 0.0);
        assert_eq!(mean_ms(&times), 3.0);
    }
}
