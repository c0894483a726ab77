//! Medians over repetitions.

use std::time::Instant;

/// The median. Of an even number, the lower of the middle two.
///
/// # Panics
/// Without figures.
pub fn median(figures: &[f64]) -> f64 {
    let mut sorted = figures.to_vec();
    sorted.sort_unstable_by(f64::total_cmp);
    sorted[(sorted.len() - 1) / 2]
}

/// Seconds that `work` takes.
pub fn seconds(work: impl FnOnce()) -> f64 {
    let start = Instant::now();
    work();
    start.elapsed().as_secs_f64()
}

/// Times contenders side by side: each repetition runs every one of them, so that what disturbs the
/// machine disturbs them alike, and begins with another one. Before it is timed, each runs once
/// untimed, so that the caches hold what they would hold in service. Gives the seconds of each, by
/// repetition.
pub fn side_by_side(repetitions: usize, contenders: &mut [&mut dyn FnMut()]) -> Vec<Vec<f64>> {
    let mut all = vec![Vec::with_capacity(repetitions); contenders.len()];
    for repetition in 0..repetitions {
        for turn in 0..contenders.len() {
            let at = (repetition + turn) % contenders.len();
            contenders[at]();
            all[at].push(seconds(&mut *contenders[at]));
        }
    }
    all
}

/// The median of `one / other` by repetition.
pub fn ratio(one: &[f64], other: &[f64]) -> f64 {
    median(&one.iter().zip(other).map(|(one, other)| one / other).collect::<Vec<_>>())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_median_is_in_the_middle() {
        assert_eq!(median(&[9.0, 1.0, 2.0]), 2.0);
        assert_eq!(median(&[4.0, 1.0, 2.0, 9.0]), 2.0);
    }

    #[test]
    fn a_ratio_is_taken_within_each_repetition() {
        // The machine was ten times slower in the second repetition; the ratio does not care.
        assert_eq!(ratio(&[2.0, 20.0, 2.0], &[1.0, 10.0, 1.0]), 2.0);
    }
}
