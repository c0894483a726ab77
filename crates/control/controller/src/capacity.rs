//! Limits the capacity that a node claims: it changes in steps, up to a multiple of the first
//! claim. A node's share of names and of delegated requests grows with its capacity. Pure.

use std::collections::BTreeMap;

use crate::Enrolled;

/// Largest factor by which a capacity rises or falls in a period.
const STEP: f64 = 1.25;
/// Largest multiple of its first claim that counts for a member.
const GROWTH_MAX: f64 = 8.0;

/// Limits the claims of `members`. `before` are the capacities of the previous plan, `max` is the
/// operator's maximum in cores, and `periods` is the time since that plan.
pub(crate) fn bound(
    members: &mut BTreeMap<String, Enrolled>,
    before: &BTreeMap<String, Enrolled>,
    max: Option<f64>,
    periods: f64,
) {
    let max = max.unwrap_or(f64::INFINITY);
    let step = STEP.powf(periods.clamp(0.0, 1.0));
    for (name, member) in members {
        let was = before.get(name);
        let claim = member.capacity;
        let first = was.map_or(claim, |was| was.first_capacity.unwrap_or(was.capacity));
        member.capacity = claim.min(max);
        if let Some(was) = was {
            let wanted = member.capacity.min(first * GROWTH_MAX);
            member.capacity = wanted.clamp(was.capacity / step, was.capacity * step).min(max);
        }
        member.first_capacity = Some(first).filter(|first| *first != member.capacity);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::NodeKind;

    fn claims(capacity: f64) -> BTreeMap<String, Enrolled> {
        let member = Enrolled {
            kind: NodeKind::Node,
            capacity,
            first_capacity: None,
            dispatches: false,
            application_down: false,
            permits: None,
            endpoint: None,
            addresses: Vec::new(),
        };
        [("n1".to_string(), member)].into()
    }

    /// The member's capacity in successive plans, a period apart, for these claims.
    fn counted(all: &[f64], max: Option<f64>) -> Vec<f64> {
        let mut before = BTreeMap::new();
        let mut counted = Vec::new();
        for claim in all {
            let mut now = claims(*claim);
            bound(&mut now, &before, max, 1.0);
            counted.push(now["n1"].capacity);
            before = now;
        }
        counted
    }

    #[test]
    fn a_claim_is_followed_by_steps_up_and_down() {
        assert_eq!(counted(&[2.0, 3.0, 3.0, 3.0], None), [2.0, 2.5, 3.0, 3.0]);
        assert_eq!(counted(&[2.0, 1.5, 1.5], None), [2.0, 1.6, 1.5]);
    }

    #[test]
    fn a_liar_counts_for_no_more_than_a_multiple_of_its_first_claim() {
        let all = [&[2.0][..], &[8192.0; 30]].concat();
        let counted = counted(&all, None);
        assert!(counted.windows(2).all(|two| two[1] <= two[0] * STEP), "{counted:?}");
        assert_eq!(counted.last(), Some(&(2.0 * GROWTH_MAX)));
        // The limit moves neither after a decrease and a new increase, nor with the plan of another
        // leader.
        let again = [&all[..], &[0.5; 30], &[8192.0; 60]].concat();
        assert_eq!(self::counted(&again, None).last(), Some(&(2.0 * GROWTH_MAX)));
    }

    #[test]
    fn the_operators_maximum_holds_at_once() {
        assert_eq!(counted(&[8192.0, 8192.0], Some(16.0)), [16.0, 16.0]);
        let mut lowered = claims(64.0);
        bound(&mut lowered, &claims(64.0), Some(4.0), 1.0);
        assert_eq!(lowered["n1"].capacity, 4.0);
        // The first claim is stored as claimed, so that raising the maximum takes effect.
        let mut first = claims(64.0);
        bound(&mut first, &BTreeMap::new(), Some(4.0), 1.0);
        let mut before = first;
        for _ in 0..30 {
            let mut now = claims(64.0);
            bound(&mut now, &before, None, 1.0);
            before = now;
        }
        assert_eq!(before["n1"].capacity, 64.0);
    }

    #[test]
    fn plans_in_quick_succession_take_one_step_together() {
        let mut now = claims(64.0);
        let mut before = claims(8.0);
        for _ in 0..4 {
            now = claims(64.0);
            bound(&mut now, &before, None, 0.25);
            before.clone_from(&now);
        }
        assert!((now["n1"].capacity - 10.0).abs() < 1e-9, "{now:?}");
        let mut late = claims(64.0);
        bound(&mut late, &claims(8.0), None, 100.0);
        assert_eq!(late["n1"].capacity, 10.0);
    }
}
