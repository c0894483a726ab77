use serde::{Deserialize, Serialize};

/// The thresholds of load from which a node is overloaded, and below which it no longer is.
///
/// # Source
/// TLLB ("Two-Layer Load Balancing for the Onedata system"): `L2 / L2_min > rho`. Deviates in two
/// ways. The ratio for leaving is lower than for entering; otherwise noise would switch delegation
/// on and off every period. And no node is overloaded below [`Self::floor`], because 3 % beside 1 %
/// is a ratio of three and no problem.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct OverloadRule {
    /// rho: overloaded from this multiple of the lowest load.
    pub enter: f64,
    /// No longer overloaded below this multiple of the lowest load.
    pub leave: f64,
    /// L2 in per cent below which no node is overloaded; also the least value of the lowest load.
    pub floor: f64,
}

/// A rule with contradictory values.
#[derive(Clone, Copy, Debug, thiserror::Error, PartialEq)]
#[error(
    "overloaded from {} times the lowest load, no more below {} times, never below {} %; accepted: 1 <= leave <= \
     enter, both finite, and a floor of 0 to 100 %",
    .0.enter, .0.leave, .0.floor
)]
pub struct OverloadRuleRefused(pub OverloadRule);

impl Default for OverloadRule {
    fn default() -> Self {
        OverloadRule::with_ratio(1.25)
    }
}

impl OverloadRule {
    /// The rule for rho alone: leaving half-way between 1 and rho.
    pub fn with_ratio(rho: f64) -> OverloadRule {
        OverloadRule { enter: rho, leave: (1.0 + rho) / 2.0, floor: 20.0 }
    }

    /// Returns the rule if it is valid.
    ///
    /// # Errors
    /// [`OverloadRuleRefused`] with the rule.
    pub fn checked(self) -> Result<OverloadRule, OverloadRuleRefused> {
        let ratios = 1.0 <= self.leave && self.leave <= self.enter && self.enter.is_finite();
        if ratios && (0.0..=100.0).contains(&self.floor) {
            Ok(self)
        } else {
            Err(OverloadRuleRefused(self))
        }
    }

    /// True if a node with this load is overloaded in a cluster with lowest load `lowest`, given
    /// its previous state.
    pub fn judge(&self, was_overloaded: bool, load: f64, lowest: f64) -> bool {
        let ratio = if was_overloaded { self.leave } else { self.enter };
        load > self.floor && load > ratio * lowest.max(self.floor / self.enter)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn overloaded_by_the_whole_table() {
        let rule = OverloadRule { enter: 1.25, leave: 1.1, floor: 20.0 };
        // was, load, lowest, is
        let rows = [
            (false, 50.0, 40.0, false), // exactly rho
            (false, 50.1, 40.0, true),
            (true, 50.0, 40.0, true),
            (true, 44.1, 40.0, true),
            (true, 44.0, 40.0, false),
            (false, 3.0, 1.0, false), // three times as much of almost nothing
            (true, 19.0, 1.0, false),
            (false, 21.0, 0.0, true), // an idle peer: any real load is too much
            (false, 95.0, 90.0, false), // all are full: no peer can take more
        ];
        for (was, load, lowest, is) in rows {
            assert_eq!(rule.judge(was, load, lowest), is, "{was} {load} {lowest}");
        }
    }

    #[test]
    fn noise_between_the_two_ratios_changes_nothing() {
        let rule = OverloadRule::with_ratio(1.25);
        let loads = [46.0, 49.0, 51.0, 46.0, 49.0, 46.0, 44.0, 49.0];
        let mut is = false;
        let seen = loads.map(|load| {
            is = rule.judge(is, load, 40.0);
            is
        });
        assert_eq!(seen, [false, false, true, true, true, true, false, false]);
    }

    #[test]
    fn a_rule_that_contradicts_itself_is_refused() {
        let fine = OverloadRule::default();
        for wrong in [
            OverloadRule { enter: 1.05, leave: 1.1, ..fine },
            OverloadRule { leave: 0.9, ..fine },
            OverloadRule { enter: f64::INFINITY, ..fine },
            OverloadRule { leave: f64::NAN, ..fine },
            OverloadRule { floor: 101.0, ..fine },
        ] {
            assert!(wrong.checked().is_err(), "{wrong:?}");
        }
        assert_eq!(fine.checked(), Ok(fine));
    }
}
