//! Relations between the options of elastic pools and the rest of the file.

use std::net::IpAddr;

use equipoise_session::config::Concurrency;

use crate::problem::Findings;
use crate::users::PoolUsers;
use crate::values::Values;
use crate::{declared, pools, tables};

/// Whether this is a node's file and the controllers' files declare the pool.
pub(super) fn is_awaited(file: &Values, elastic: &Values) -> bool {
    declared::by_controllers(elastic) && !declared::is_controller(file)
}

/// Checks that one file declares the pool: this one or the controllers'.
pub(super) fn declaring(file: &Values, elastic: &Values, findings: &mut Findings<'_>) {
    let mut error = |option: &str, text: &str| {
        findings.error(elastic.at(option), &elastic.path_of(option), text.to_string());
    };
    let is_awaited = is_awaited(file, elastic);
    if is_awaited && !file.given("cluster") {
        error(
            "declared",
            "\"controllers\", and this machine has none; accepted: \"here\", or a [cluster] table",
        );
    } else if is_awaited {
        let stated = elastic.spec.options.iter().map(|option| option.name);
        for option in stated.filter(|it| !["declared", "start-wait"].contains(it)) {
            if elastic.given(option) {
                let text = "stated, and the controllers' files declare this pool; accepted: state it there, or \
                            `declared = \"here\"`";
                error(option, text);
            }
        }
    } else {
        if !elastic.given("max") {
            error("max", "missing; accepted: the number of backends at most, 1 to 10000");
        }
        let drivers = ["process", "exec", "webhook"];
        if declared::by_controllers(elastic) && !drivers.iter().any(|it| elastic.given(it)) {
            let text = "\"controllers\", and no driver is stated, so that no node can create backends; accepted: a \
                        [pool.elastic.process], [pool.elastic.exec] or [pool.elastic.webhook] table beside it";
            error("declared", text);
        }
    }
}

/// In a cluster, backends that one node creates must be reachable from the other nodes.
pub(super) fn reachable(file: &Values, elastic: &Values, findings: &mut Findings<'_>) {
    let Some(process) = elastic.table("process").filter(|_| file.given("cluster")) else { return };
    if declared::by_controllers(elastic) && !process.given("address") {
        // Each node uses its own address.
        return;
    }
    let address: Option<IpAddr> = process.parsed("address");
    if address.is_some_and(|address| address.is_loopback()) {
        let text = "a loopback address, where other nodes of the cluster do not reach the backends that are made here; \
                    accepted: this machine's address";
        findings.warning(process.at("address"), &process.path_of("address"), text.to_string());
    }
}

/// Refuses a schedule that states its clock twice.
pub(super) fn clocks(elastic: &Values, findings: &mut Findings<'_>) {
    for hours in elastic.tables("schedule") {
        if hours.given("zone") && hours.given("utc-offset") {
            let text = "stated beside `zone`, which has its own offset; accepted: one of them";
            findings.error(hours.at("utc-offset"), &hours.path_of("utc-offset"), text.to_string());
        }
    }
}

/// Checks the target of an elastic pool. The pool's utilisation is measured by concurrency limits,
/// unless the target states the capacity of a backend.
pub(super) fn targets(
    pool: &Values,
    elastic: &Values,
    users: &PoolUsers<'_>,
    findings: &mut Findings<'_>,
) {
    let stated = ["target-concurrency", "target-requests"];
    let given: Vec<&str> = stated.into_iter().filter(|option| elastic.given(option)).collect();
    if let [_, second] = given[..] {
        let text = "a second target; accepted: one of `target-concurrency` and `target-requests`";
        findings.error(elastic.at(second), &elastic.path_of(second), text.to_string());
    }
    let is_paused = elastic.choice("mode", &tables::MODE) == Some(true);
    if !is_paused {
        uncounted(elastic, users, findings);
    }
    let is_unlimited = match pool.given("concurrency") {
        true => pools::concurrency(pool) == Some(Concurrency::None),
        // Only http front doors learn limits by default.
        false => !users.are_http(),
    };
    if is_unlimited && given.is_empty() && !is_paused && !users.doors.is_empty() {
        let text = "\"none\", so the pool's load is unknown, and the pool never grows; accepted: another \
                    `concurrency`, or `target-concurrency` or `target-requests` in its [pool.elastic]";
        findings.error(pool.at("concurrency"), &pool.path_of("concurrency"), text.to_string());
    }
}

/// Checks elastic pools behind VIPs and names. No balancer counts the requests of these clients, so
/// the pool's load is unknown.
fn uncounted(elastic: &Values, users: &PoolUsers<'_>, findings: &mut Findings<'_>) {
    let user = match (users.packet, users.dns) {
        (true, _) => "[[packet]]",
        (false, true) => "[[dns]]",
        (false, false) => return,
    };
    if elastic.number("min") == Some(0) {
        let text = format!(
            "0, and {user} tables use this pool, whose clients are not counted: the first backend would never be \
             created; accepted: 1 or more"
        );
        findings.error(elastic.at("min"), &elastic.path_of("min"), text);
    }
    if elastic.number("min") != elastic.number("max") {
        let text = format!(
            "the pool does not scale by itself: {user} tables use it, and their clients are not counted; `equipoise plan pin` \
             sets how many backends it has"
        );
        findings.warning(elastic.at, &elastic.path, text);
    }
}
