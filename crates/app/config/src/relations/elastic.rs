//! Relations between the options of elastic pools and the rest of the file.

use equipoise_session::config::Concurrency;

use crate::declared;
use crate::key::{Any, Key};
use crate::problem::Findings;
use crate::tables::{Elastic, File, PlanMode, Pool, Process, Schedule};
use crate::users::PoolUsers;
use crate::view::View;

/// Whether this is a node's file and the controllers' files declare the pool.
pub(super) fn is_awaited(file: View<'_, File>, elastic: View<'_, Elastic>) -> bool {
    declared::by_controllers(elastic) && !declared::is_controller(file)
}

/// Checks that one file declares the pool: this one or the controllers'.
pub(super) fn declaring(
    file: View<'_, File>,
    elastic: View<'_, Elastic>,
    findings: &mut Findings<'_>,
) {
    let mut error = |option: Key<Elastic, Any>, text: &str| {
        findings.error(elastic.at(option), &elastic.path_of(option), text.to_string());
    };
    let is_awaited = is_awaited(file, elastic);
    if is_awaited && !file.given(File::CLUSTER) {
        error(
            Elastic::DECLARED.any(),
            "\"controllers\", and this machine has none; accepted: \"here\", or a [cluster] table",
        );
    } else if is_awaited {
        let here = [Elastic::DECLARED.name(), Elastic::START_WAIT.name()];
        for option in elastic.stated().filter(|option| !here.contains(&option.name())) {
            let text = "stated, and the controllers' files declare this pool; accepted: state it there, or \
                        `declared = \"here\"`";
            error(option, text);
        }
    } else {
        if !elastic.given(Elastic::MAX) {
            error(
                Elastic::MAX.any(),
                "missing; accepted: the number of backends at most, 1 to 10000",
            );
        }
        let drivers = [Elastic::PROCESS.any(), Elastic::EXEC.any(), Elastic::WEBHOOK.any()];
        if declared::by_controllers(elastic) && !drivers.into_iter().any(|it| elastic.given(it)) {
            let text = "\"controllers\", and no driver is stated, so that no node can create backends; accepted: a \
                        [pool.elastic.process], [pool.elastic.exec] or [pool.elastic.webhook] table beside it";
            error(Elastic::DECLARED.any(), text);
        }
    }
}

/// In a cluster, backends that one node creates must be reachable from the other nodes.
pub(super) fn reachable(
    file: View<'_, File>,
    elastic: View<'_, Elastic>,
    findings: &mut Findings<'_>,
) {
    let Some(process) = elastic.get(Elastic::PROCESS).filter(|_| file.given(File::CLUSTER)) else {
        return;
    };
    if declared::by_controllers(elastic) && !process.given(Process::ADDRESS) {
        // Each node uses its own address.
        return;
    }
    if process.get(Process::ADDRESS).is_loopback() {
        let text = "a loopback address, where other nodes of the cluster do not reach the backends that are made here; \
                    accepted: this machine's address";
        findings.warning(
            process.at(Process::ADDRESS),
            &process.path_of(Process::ADDRESS),
            text.to_string(),
        );
    }
}

/// Refuses a schedule that states its clock twice.
pub(super) fn clocks(elastic: View<'_, Elastic>, findings: &mut Findings<'_>) {
    for hours in elastic.get(Elastic::SCHEDULE) {
        if hours.given(Schedule::ZONE) && hours.given(Schedule::UTC_OFFSET) {
            let text = "stated beside `zone`, which has its own offset; accepted: one of them";
            findings.error(
                hours.at(Schedule::UTC_OFFSET),
                &hours.path_of(Schedule::UTC_OFFSET),
                text.to_string(),
            );
        }
    }
}

/// Checks the target of an elastic pool. The pool's utilisation is measured by concurrency limits,
/// unless the target states the capacity of a backend.
pub(super) fn targets(
    pool: View<'_, Pool>,
    elastic: View<'_, Elastic>,
    users: &PoolUsers<'_>,
    findings: &mut Findings<'_>,
) {
    let stated = [Elastic::TARGET_CONCURRENCY, Elastic::TARGET_REQUESTS];
    let given: Vec<_> = stated.into_iter().filter(|option| elastic.given(*option)).collect();
    if let [_, second] = given[..] {
        let text = "a second target; accepted: one of `target-concurrency` and `target-requests`";
        findings.error(elastic.at(second), &elastic.path_of(second), text.to_string());
    }
    let is_paused = elastic.get(Elastic::MODE) == PlanMode::Paused;
    if !is_paused {
        uncounted(elastic, users, findings);
    }
    let is_unlimited = match pool.given(Pool::CONCURRENCY) {
        true => pool.get(Pool::CONCURRENCY) == Some(Concurrency::None),
        // Only http front doors learn limits by default.
        false => !users.are_http(),
    };
    if is_unlimited && given.is_empty() && !is_paused && !users.doors.is_empty() {
        let text = "\"none\", so the pool's load is unknown, and the pool never grows; accepted: another \
                    `concurrency`, or `target-concurrency` or `target-requests` in its [pool.elastic]";
        findings.error(
            pool.at(Pool::CONCURRENCY),
            &pool.path_of(Pool::CONCURRENCY),
            text.to_string(),
        );
    }
}

/// Checks elastic pools behind VIPs and names. No balancer counts the requests of these clients, so
/// the pool's load is unknown.
fn uncounted(elastic: View<'_, Elastic>, users: &PoolUsers<'_>, findings: &mut Findings<'_>) {
    let user = match (users.packet, users.dns) {
        (true, _) => "[[packet]]",
        (false, true) => "[[dns]]",
        (false, false) => return,
    };
    if elastic.get(Elastic::MIN) == 0 {
        let text = format!(
            "0, and {user} tables use this pool, whose clients are not counted: the first backend would never be \
             created; accepted: 1 or more"
        );
        findings.error(elastic.at(Elastic::MIN), &elastic.path_of(Elastic::MIN), text);
    }
    if Some(elastic.get(Elastic::MIN)) != elastic.get(Elastic::MAX) {
        let text = format!(
            "the pool does not scale by itself: {user} tables use it, and their clients are not counted; `equipoise plan pin` \
             sets how many backends it has"
        );
        findings.warning(elastic.start(), elastic.path(), text);
    }
}
