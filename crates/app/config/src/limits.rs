//! Builds and checks `allow`, `deny`, `[[session.limit]]` and `[[session.route.limit]]`.

use std::collections::HashSet;
use std::num::NonZeroU32;
use std::sync::Arc;

use equipoise_session::config::{AccessList, ClientLimit, LimitBy, Protocol, Rate, SourceMask};

use super::problem::Findings;
use super::text::{CountedBy, RateText};
use super::values::Values;

/// The addresses that a front door serves.
pub(super) fn access(door: &Values) -> AccessList {
    let prefixes = |option| door.prefixes(option).collect::<Vec<_>>();
    AccessList::new(&prefixes("allow"), &prefixes("deny"))
}

/// The limits of a front door or route.
pub(super) fn limits(of: &Values) -> Arc<[ClientLimit]> {
    of.tables("limit").iter().map(limit).collect()
}

/// The option that bounds events that last: connections of a front door, requests of a route.
fn concurrency(limit: &Values) -> &'static str {
    if limit.spec.option("connections").is_some() { "connections" } else { "concurrency" }
}

fn limit(values: &Values) -> ClientLimit {
    let number = |option| values.number(option).and_then(|it| u32::try_from(it).ok());
    let by = match values.parsed("by").unwrap_or(CountedBy::Source) {
        CountedBy::All => LimitBy::All,
        CountedBy::Header(name) => LimitBy::Header(name.into()),
        CountedBy::Source => LimitBy::Source(SourceMask {
            bits4: values.amount("ipv4-prefix"),
            bits6: values.amount("ipv6-prefix"),
        }),
    };
    let burst = number("burst").and_then(NonZeroU32::new);
    let rate = values.parsed("rate").map(|RateText { count, per }| {
        let of_a_second = NonZeroU32::new(count.get() / per.as_secs().max(1) as u32);
        Rate { count, per, burst: burst.or(of_a_second).unwrap_or(NonZeroU32::MIN) }
    });
    let concurrency = number(concurrency(values)).and_then(NonZeroU32::new);
    ClientLimit {
        by,
        rate,
        concurrency,
        keys: values.amount("keys"),
        shared: values.flag("shared"),
    }
}

/// Checks that no prefix is both allowed and denied.
pub(super) fn check_access(door: &Values, findings: &mut Findings<'_>) {
    let allowed: HashSet<&String> = door.texts("allow").unwrap_or_default().iter().collect();
    for text in door.texts("deny").unwrap_or_default() {
        if allowed.contains(text) {
            let text = format!("\"{text}\" is in `allow`, too; accepted: one of them");
            findings.error(door.at("deny"), &door.path_of("deny"), text);
        }
    }
}

/// Checks the lists of addresses, and that each limit limits something.
pub(super) fn check(door: &Values, protocol: Option<Protocol>, findings: &mut Findings<'_>) {
    check_access(door, findings);
    if protocol == Some(Protocol::Udp) && door.given("limit") {
        let text = "stated, and this front door speaks udp, whose source addresses may be forged; accepted with http \
                    and tcp";
        findings.error(door.at("limit"), &door.path_of("limit"), text.to_string());
        return;
    }
    check_limits(door, protocol, findings);
}

/// Checks the limits of a front door or route.
pub(super) fn check_limits(of: &Values, protocol: Option<Protocol>, findings: &mut Findings<'_>) {
    for limit in of.tables("limit") {
        // A wrong value is not a missing one.
        if !findings.has_error_below(&limit.path) {
            check_limit(limit, protocol, findings);
        }
    }
}

/// Warns of shared limits in a file without a cluster.
pub(super) fn alone(door: &Values, findings: &mut Findings<'_>) {
    for limit in std::iter::once(door).chain(door.tables("route")).flat_map(|of| of.tables("limit"))
    {
        if limit.flag("shared") {
            let text = "true, and has no effect: this machine is in no cluster; accepted: a [cluster] table";
            findings.warning(limit.at("shared"), &limit.path_of("shared"), text.to_string());
        }
    }
}

fn check_limit(limit: &Values, protocol: Option<Protocol>, findings: &mut Findings<'_>) {
    let concurrency = concurrency(limit);
    let mut error = |option: &str, text: &str| {
        findings.error(limit.at(option), &limit.path_of(option), text.to_string());
    };
    let by = limit.parsed("by").unwrap_or(CountedBy::Source);
    let is_by_header = matches!(by, CountedBy::Header(_));
    if !limit.given("rate") && !limit.given(concurrency) {
        let text = format!("missing; accepted: `rate` or `{concurrency}`, or both");
        error("rate", &text);
    }
    if limit.given("burst") && !limit.given("rate") {
        error("burst", "stated, but there is no `rate`; accepted: both");
    }
    if is_by_header && protocol == Some(Protocol::Tcp) {
        error(
            "by",
            "a header, and this front door does not speak HTTP; accepted: \"source\" or \"front-door\"",
        );
    }
    if is_by_header && limit.given(concurrency) {
        error(
            concurrency,
            match concurrency {
                "connections" => {
                    "stated, but a connection has no header; accepted by \"source\" and \"front-door\""
                }
                _ => "stated, but the limit is by a header; accepted by \"source\" and \"route\"",
            },
        );
    }
    if limit.flag("shared") && !limit.given("rate") {
        error("shared", "true, but there is no `rate`; accepted: both");
    }
    if limit.flag("shared") && by != CountedBy::All {
        let all = if concurrency == "connections" { "front-door" } else { "route" };
        let text = format!(
            "true, and each source or header value is counted by each node alone; accepted: by = \"{all}\""
        );
        error("shared", &text);
    }
    for option in ["ipv4-prefix", "ipv6-prefix"] {
        if by != CountedBy::Source && limit.given(option) {
            error(option, "stated, but the limit is not by \"source\"; accepted: by = \"source\"");
        }
    }
}
