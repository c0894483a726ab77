//! Slow start: the share of its weight that a backend gets while it warms up.
//!
//! Stepped, so that one return costs [`STEPS`] new snapshots and not one per request. Schedulers that
//! ignore weights (`round-robin`, `least-connection`) ignore the ramp too.

use std::time::Duration;

/// The share at the start: enough to warm caches, little enough to survive cold ones.
pub const FLOOR_PERMILLE: u32 = 100;
/// Rises between the floor and the full weight.
pub const STEPS: u32 = 10;
/// The whole weight.
pub const FULL_PERMILLE: u32 = 1000;

const RISE: u32 = (FULL_PERMILLE - FLOOR_PERMILLE) / STEPS;
const _: () = assert!(FLOOR_PERMILLE + RISE * STEPS == FULL_PERMILLE);

/// The share of the weight after `since`, in a ramp that takes `over`: permille,
/// [`FLOOR_PERMILLE`]`..=`[`FULL_PERMILLE`], never falling, full from `over` on.
pub fn permille(since: Duration, over: Duration) -> u32 {
    FLOOR_PERMILLE + RISE * step(since, over)
}

/// When, counted from the ramp's start, the share rises next; `None` once it is full.
pub fn next_rise(since: Duration, over: Duration) -> Option<Duration> {
    let step = step(since, over);
    (step < STEPS).then(|| starts(step + 1, over))
}

/// The last step that has begun. Compared with the very instants that [`next_rise`] gives, so that
/// whoever wakes at one of them finds it begun, whatever the rounding.
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
