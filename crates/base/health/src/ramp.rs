//! Slow start: a returning backend gets its weight in steps.
//!
//! The weight rises in steps, so that a return costs [`STEPS`] new snapshots instead of one per
//! request. Schedulers that ignore weights (`round-robin`, `least-connection`) ignore the ramp,
//! too.

use std::time::Duration;

/// Initial fraction of the weight, permille: enough to warm caches, and little enough to survive
/// cold ones.
pub const FLOOR_PERMILLE: u32 = 100;
/// Number of steps from the initial fraction to the full weight.
pub const STEPS: u32 = 10;
/// The full weight, permille.
pub const FULL_PERMILLE: u32 = 1000;

const RISE: u32 = (FULL_PERMILLE - FLOOR_PERMILLE) / STEPS;
const _: () = assert!(FLOOR_PERMILLE + RISE * STEPS == FULL_PERMILLE);

/// Returns the fraction of the weight at time `since` of a ramp of duration `over`: permille,
/// [`FLOOR_PERMILLE`]`..=`[`FULL_PERMILLE`], monotonic, full from `over` on.
pub fn permille(since: Duration, over: Duration) -> u32 {
    FLOOR_PERMILLE + RISE * step(since, over)
}

/// Returns the time of the next step, from the ramp's start; `None` at full weight.
pub fn next_rise(since: Duration, over: Duration) -> Option<Duration> {
    let step = step(since, over);
    (step < STEPS).then(|| starts(step + 1, over))
}

/// Returns the last step that has begun. It compares with the exact times of [`next_rise`], so that
/// a timer set to one of them finds the step begun despite rounding.
fn step(since: Duration, over: Duration) -> u32 {
    (1..=STEPS).take_while(|step| starts(*step, over) <= since).count() as u32
}

fn starts(step: u32, over: Duration) -> Duration {
    if step == STEPS { over } else { over / STEPS * step }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_share_rises_in_even_steps_from_the_floor_to_the_full_weight() {
        let over = Duration::from_secs(10);
        let rows = [
            (0, 100),
            (999, 100),
            (1_000, 190),
            (4_999, 460),
            (5_000, 550),
            (9_999, 910),
            (10_000, 1000),
            (1_000_000, 1000),
        ];
        for (ms, want) in rows {
            assert_eq!(permille(Duration::from_millis(ms), over), want, "{ms} ms");
        }
    }

    #[test]
    fn following_the_rises_takes_as_many_wakes_as_there_are_steps() {
        for over_ns in [1, 7, 10, 999, 1_000_000_007, 3_600_000_000_000] {
            let over = Duration::from_nanos(over_ns);
            let (mut since, mut seen) = (Duration::ZERO, vec![permille(Duration::ZERO, over)]);
            while let Some(next) = next_rise(since, over) {
                assert!(permille(next, over) > permille(since, over), "{over_ns} ns");
                since = next;
                seen.push(permille(since, over));
            }
            assert!(seen.len() <= STEPS as usize + 1, "{seen:?}");
            assert_eq!(since, over);
            assert_eq!(seen.last(), Some(&FULL_PERMILLE));
        }
    }

    #[test]
    fn a_ramp_of_no_length_is_full_at_once() {
        assert_eq!(permille(Duration::ZERO, Duration::ZERO), FULL_PERMILLE);
        assert_eq!(next_rise(Duration::ZERO, Duration::ZERO), None);
    }
}
