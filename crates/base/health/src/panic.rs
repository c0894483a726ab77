//! The panic threshold: passive ejection leaves a minimum fraction of a pool's backends in use.
//!
//! If most backends fail at once, the backends are rarely the cause, and ejecting all of them would
//! fail every request. The threshold does not limit active checks, which test each backend
//! directly: they can take out all backends.

/// Returns the minimum number of backends in use, for a pool of `total` and a threshold of `share`.
///
/// `total` includes backends of every state: a drained backend is missing capacity, too.
pub fn floor(total: usize, share: f64) -> usize {
    // 0.55 * 100 is slightly above 55 in binary; the slack keeps such shares exact.
    (share.clamp(0.0, 1.0) * total as f64 - 1e-9).ceil() as usize
}

/// Whether one of `eligible` backends may be ejected from a pool of `total`.
pub fn may_eject(eligible: usize, total: usize, share: f64) -> bool {
    eligible > floor(total, share)
}

/// Returns the number of ejected backends that must come back early because only `eligible` are
/// left.
pub fn shortfall(eligible: usize, total: usize, share: f64) -> usize {
    floor(total, share).saturating_sub(eligible)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ejection_stops_at_the_share_rounded_up() {
        // Share, total, number of backends that consecutive failures may eject.
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
    fn the_shortfall_is_the_number_of_backends_missing_to_the_threshold() {
        for (share, total, eligible, want) in
            [(0.5, 4, 4, 0), (0.5, 4, 2, 0), (0.5, 4, 1, 1), (0.5, 4, 0, 2), (0.0, 4, 0, 0)]
        {
            assert_eq!(shortfall(eligible, total, share), want, "{share} {total} {eligible}");
        }
    }

    #[test]
    fn a_share_outside_its_range_is_clamped() {
        assert_eq!(floor(4, -1.0), 0);
        assert_eq!(floor(4, 7.0), 4);
        assert_eq!(floor(0, 0.5), 0);
    }
}
