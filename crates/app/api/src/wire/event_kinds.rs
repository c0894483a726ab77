//! The types of events, and queries for them.

/// Every type. docs/operations/events.md has their meanings.
pub const KINDS: &[&str] = &[
    "backend.added",
    "backend.concurrency",
    "backend.down",
    "backend.draining",
    "backend.ejected",
    "backend.healthy",
    "backend.not-ejected",
    "backend.readmitted",
    "backend.removed",
    "backend.unhealthy",
    "backend.up",
    "backend.weight",
    "certificate.doubtful",
    "certificate.exchanged",
    "certificate.issued",
    "certificate.not-issued",
    "certificate.not-stapled",
    "certificate.unusable",
    "change.done",
    "change.failed",
    "cluster.alone",
    "cluster.evicted",
    "cluster.follows",
    "cluster.readmitted",
    "cluster.reports-arrive",
    "cluster.reports-lost",
    "configuration.applied",
    "controller.cannot-lead",
    "controller.failed",
    "controller.fenced-off",
    "controller.leader",
    "controller.leadership-lost",
    "controller.leads",
    "controller.no-leader",
    "controller.overtaken",
    "controller.resigned",
    "controller.started",
    "controller.store-answers",
    "controller.store-failed",
    "dns.failed",
    "dns.unserved",
    "events.lost",
    "name.failed",
    "name.resolved",
    "node.evicted",
    "node.forgotten",
    "node.joined",
    "node.leaves",
    "node.refused",
    "node.standing",
    "packet.drained",
    "packet.flows",
    "packet.interface",
    "packet.offload",
    "packet.peer",
    "packet.route",
    "packet.tunnel-failed",
    "packet.tunnel-works",
    "plan.declared",
    "plan.driver",
    "plan.ended",
    "plan.failed",
    "plan.held",
    "plan.missing",
    "plan.refused",
    "plan.scaled",
    "pool.awaiting",
    "pool.empty",
    "pool.off-backups",
    "pool.on-backups",
    "pool.serving",
    "pool.started",
    "pool.starting",
    "process.ready",
    "process.stopping",
    "reload.applied",
    "reload.refused",
    "slice.leadership-lost",
    "slice.leads",
    "slice.moved",
    "slice.not-moved",
    "slice.not-resized",
    "slice.resized",
    "slice.worker-problem",
    "source.failed",
    "source.set",
    "upgrade.completed",
    "upgrade.failed",
    "upgrade.pools-empty",
    "upgrade.replaced",
    "upgrade.started",
];

/// The families of types: the parts before the dot.
fn families() -> Vec<&'static str> {
    let mut families: Vec<_> = KINDS.iter().filter_map(|kind| kind.split('.').next()).collect();
    families.dedup();
    families
}

/// Checks the types in a query, with commas between them.
///
/// # Errors
/// One is unknown: which, and what is accepted.
pub(crate) fn check(kinds: &str) -> Result<(), String> {
    let families = families();
    let is_known = |kind: &str| KINDS.contains(&kind) || families.contains(&kind);
    let Some(unknown) = kinds.split(',').find(|kind| !is_known(kind)) else { return Ok(()) };
    let family = unknown.split('.').next().unwrap_or_default();
    let siblings = KINDS.iter().filter(|kind| kind.split('.').next() == Some(family));
    let siblings: Vec<_> = siblings.copied().collect();
    Err(match siblings.is_empty() {
        true => format!(
            "`{}` is no type of events; accepted: a whole type, such as backend.unhealthy, or all of {}",
            unknown.escape_debug(),
            families.join(", ")
        ),
        false => format!(
            "`{}` is no type of events; accepted: {family}, {}",
            unknown.escape_debug(),
            siblings.join(", ")
        ),
    })
}

/// The types in a query, as a pattern of JSON Schema.
pub(crate) fn pattern() -> String {
    let all: Vec<_> = families().into_iter().chain(KINDS.iter().copied()).collect();
    let one = format!("({})", all.join("|").replace('.', "\\."));
    format!("^{one}(,{one})*$")
}

/// An id, as a pattern of JSON Schema.
pub(crate) const ID_PATTERN: &str = "^[0-9a-f]+\\.[0-9a-f]+-[0-9]+$";

/// Checks the form of an id: `EPOCH-NUMBER`, with an epoch of two hexadecimal numbers.
///
/// # Errors
/// It has another form; the text states the accepted one.
pub(crate) fn check_id(id: &str) -> Result<(), String> {
    let is_hex = |text: &str| !text.is_empty() && text.bytes().all(|it| it.is_ascii_hexdigit());
    let parts = id.rsplit_once('-').and_then(|(epoch, number)| {
        let (started, pid) = epoch.split_once('.')?;
        Some((started, pid, number))
    });
    let is_id = parts.is_some_and(|(started, pid, number)| {
        let is_number = !number.is_empty() && number.bytes().all(|it| it.is_ascii_digit());
        is_hex(started) && is_hex(pid) && is_number
    });
    match is_id {
        true => Ok(()),
        false => Err(format!(
            "`{}` is no id of an event; accepted: the `id` of an event, or the `last` of an answer, \
             such as 19c1a2b3c4d.1f-42",
            id.escape_debug()
        )),
    }
}
