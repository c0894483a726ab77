//! The panic threshold: passive ejection never leaves less than a stated share of a pool's backends.
//!
//! When most backends fail at once the cause is seldom the backends; ejecting them all would turn some
//! failing requests into none answered. Active checks are believed without limit: they ask the backend
//! itself.

/// How many backends of a pool of `total` must be left to take work, for a threshold of `share`.
///
/// `total` counts every backend of the pool, whatever its state: a drained one is missing capacity too.
pub fn floor(total: usize, share: f64) -> usize {
    // 0.55 * 100 is a little above 55 in binary; the slack keeps such shares exact.
    (share.clamp(0.0, 1.0) * total as f64 - 1e-9).ceil() as usize
}

/// Whether one of `eligible` backends may be ejected from a pool of `total`.
pub fn may_eject(eligible: usize, total: usize, share: f64) -> bool {
    eligible > floor(total, share)
}

/// How many ejected backends must come back early because only `eligible` are left.
pub fn shortfall(eligible: usize, total: usize, share: f64) -> usize {
    floor(total, share).saturating_sub(eligible)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ejection_stops_at_the_share_rounded_up() {
        // share, total, backends that one failure after another may eject
        let rows = [
            (0.5, 1, 0),
            (0.5, 2, 1),
            (0.5, 3, 1),
            (0.5, 4, 2),
            (0.0, 1, 1),
            (0.0, 5, 5),
            (1.0, 5, 0),
            (0.55, 100, 45),
            (0.1, 10, 9),
            (0.34, 3, 1),
        ];
        for (share, total, want) in rows {
            let mut left = total;
            while left > 0 && may_eject(left, total, share) {
                left -= 1;
            }
            assert_eq!(total - left, want, "share {share} of {total}");
        }
    }

    #[test]
    fn what_is_missing_to_the_share_comes_back() {
        for (share, total, eligible, want) in
            [(0.5, 4, 4, 0), (0.5, 4, 2, 0), (0.5, 4, 1, 1), (0.5, 4, 0, 2), (0.0, 4, 0, 0)]
        {
            assert_eq!(shortfall(eligible, total, share), want, "{share} {total} {eligible}");
        }
    }

    #[test]
    fn a_share_outside_its_range_is_taken_for_the_nearest_bound() {
        assert_eq!(floor(4, -1.0), 0);
        assert_eq!(floor(4, 7.0), 4);
        assert_eq!(floor(0, 0.5), 0);
    }
}
