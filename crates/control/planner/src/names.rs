//! The answers of one name.

use crate::along::Along;
use crate::inventory::NameSpec;
use crate::plan::{NamePlan, Share, Standing};
use crate::policy::Policy;
use crate::room::in_use;
use crate::row::Row;
use crate::steering::{Member, relative, steer};

/// Shares of a name's nodes; `rows` has all nodes of the inventory.
pub(crate) fn answers(
    policy: &Policy,
    spec: &NameSpec,
    was: Option<&NamePlan>,
    rows: &[Row],
) -> NamePlan {
    let members: Vec<&Row> = spec.nodes.iter().map(|node| find(rows, node)).collect();
    let capacity: f64 = members.iter().map(|row| row.spec.capacity).sum();
    let mean = capacity / members.len().max(1) as f64;
    let (presences, is_panicking) = presences(policy, &members);
    let mut before = was.map(|was| Along::new(&was.shares));
    let member = |(row, presence): (&&Row, f64)| {
        let nominal = row.spec.capacity / mean;
        let learnt = before.as_mut().and_then(|it| it.find(row.name)).map_or(1.0, |it| it.learnt);
        let load =
            row.load.and_then(|load| in_use(&policy.coefficients, load, row.spec.dispatches));
        Member { learnt: learnt * nominal, nominal, presence, load }
    };
    let mut steered: Vec<Member> = members.iter().zip(presences).map(member).collect();
    let probabilities = steer(&policy.names, &mut steered);
    let shares = spec.nodes.iter().zip(probabilities.iter().zip(relative(&steered)));
    let shares =
        shares.map(|(node, (&probability, learnt))| (node.clone(), Share { probability, learnt }));
    let leaving = [Standing::Draining, Standing::Late, Standing::Gone, Standing::Unhealthy];
    let shorten_ttl = members.iter().any(|row| leaving.contains(&row.plan.standing));
    NamePlan { shares: shares.collect(), is_panicking, shorten_ttl }
}

fn find<'a, 'b>(rows: &'b [Row<'a>], node: &str) -> &'b Row<'a> {
    let at = rows.binary_search_by(|row| row.name.cmp(node));
    &rows[at.expect("an inventory's names have only nodes that it has too")]
}

/// The part of its share that each node of a name gets, and whether that is more than its standing
/// allows.
///
/// If fewer nodes are left than the panic share of the wanted ones, those return that were silent
/// for the shortest time; if none is left, all wanted ones return. Drained and disabled nodes never
/// return.
fn presences(policy: &Policy, members: &[&Row]) -> (Vec<f64>, bool) {
    let own = |row: &&Row| if row.plan.standing.is_in() { row.plan.presence } else { 0.0 };
    let mut presences: Vec<f64> = members.iter().map(own).collect();
    let wanted = members.iter().filter(|row| row.plan.standing.is_wanted()).count();
    let left = presences.iter().filter(|presence| **presence > 0.0).count();
    // The tolerance keeps shares such as 0.55 of 100 exact.
    let floor = (policy.liveness.panic_share * wanted as f64 - 1e-9).ceil() as usize;
    let missing = if left == 0 { wanted } else { floor.saturating_sub(left) };
    if missing == 0 {
        return (presences, false);
    }
    let is_out = |at: &usize| presences[*at] == 0.0 && members[*at].plan.standing.is_wanted();
    let mut out: Vec<usize> = (0..members.len()).filter(is_out).collect();
    out.sort_by(|a, b| members[*a].missed_beats.total_cmp(&members[*b].missed_beats));
    out.iter().take(missing).for_each(|at| presences[*at] = 1.0);
    (presences, true)
}
