//! Builds and checks `allow`, `deny`, `[[session.limit]]` and `[[session.route.limit]]`.

use std::collections::HashSet;
use std::num::NonZeroU32;
use std::sync::Arc;

use equipoise_session::config::{AccessList, ClientLimit, LimitBy, Protocol, Rate, SourceMask};

use super::key::{Count, Each, Key, Parsed};
use super::problem::Findings;
use super::tables::{DoorLimit, Limit, Route, RouteLimit, Session};
use super::text::{AddressPrefix, CountedBy, RateText, prefixes};
use super::view::{Location, View, Views};

/// `allow` or `deny`.
pub(super) type Prefixes<T> = Key<T, Option<Each<AddressPrefix>>>;

/// A table of limits: its own options, beside those of [`Limit`].
pub(super) trait Limiting: Sized + 'static {
    const BY: Key<Self, Parsed<CountedBy>>;
    const RATE: Key<Self, Option<Parsed<RateText>>>;
    /// Bounds events that last: connections of a front door, requests of a route.
    const CONCURRENCY: Key<Self, Option<Count<u32>>>;
    /// The word of `by` for all clients together.
    const ALL: &'static str;
    /// The reason why such events have no header.
    const WITHOUT_HEADER: &'static str;

    fn shared(limit: View<'_, Self>) -> View<'_, Limit>;
}

impl Limiting for DoorLimit {
    const BY: Key<Self, Parsed<CountedBy>> = DoorLimit::BY;
    const RATE: Key<Self, Option<Parsed<RateText>>> = DoorLimit::RATE;
    const CONCURRENCY: Key<Self, Option<Count<u32>>> = DoorLimit::CONNECTIONS;
    const ALL: &'static str = "front-door";
    const WITHOUT_HEADER: &'static str =
        "stated, but a connection has no header; accepted by \"source\" and \"front-door\"";

    fn shared(limit: View<'_, Self>) -> View<'_, Limit> {
        limit.part()
    }
}

impl Limiting for RouteLimit {
    const BY: Key<Self, Parsed<CountedBy>> = RouteLimit::BY;
    const RATE: Key<Self, Option<Parsed<RateText>>> = RouteLimit::RATE;
    const CONCURRENCY: Key<Self, Option<Count<u32>>> = RouteLimit::CONCURRENCY;
    const ALL: &'static str = "route";
    const WITHOUT_HEADER: &'static str =
        "stated, but the limit is by a header; accepted by \"source\" and \"route\"";

    fn shared(limit: View<'_, Self>) -> View<'_, Limit> {
        limit.part()
    }
}

/// The addresses that a front door or VIP serves.
pub(super) fn access<T>(of: View<'_, T>, allow: Prefixes<T>, deny: Prefixes<T>) -> AccessList {
    AccessList::new(&prefixes(of.get(allow)), &prefixes(of.get(deny)))
}

/// The limits of a front door or route.
pub(super) fn limits<T: Limiting>(limits: Views<'_, T>) -> Arc<[ClientLimit]> {
    limits.iter().map(limit).collect()
}

fn limit<T: Limiting>(values: View<'_, T>) -> ClientLimit {
    let shared = T::shared(values);
    let by = match values.get(T::BY) {
        CountedBy::All => LimitBy::All,
        CountedBy::Header(name) => LimitBy::Header(name.into()),
        CountedBy::Source => LimitBy::Source(SourceMask {
            bits4: shared.get(Limit::IPV4_PREFIX),
            bits6: shared.get(Limit::IPV6_PREFIX),
        }),
    };
    let burst = shared.get(Limit::BURST).and_then(NonZeroU32::new);
    let rate = values.get(T::RATE).map(|RateText { count, per }| {
        let of_a_second = NonZeroU32::new(count.get() / per.as_secs().max(1) as u32);
        Rate { count, per, burst: burst.or(of_a_second).unwrap_or(NonZeroU32::MIN) }
    });
    ClientLimit {
        by,
        rate,
        concurrency: values.get(T::CONCURRENCY).and_then(NonZeroU32::new),
        keys: shared.get(Limit::KEYS),
        shared: shared.get(Limit::SHARED),
    }
}

/// Checks that no prefix is both allowed and denied.
pub(super) fn check_access<T>(
    of: View<'_, T>,
    allow: Prefixes<T>,
    deny: Prefixes<T>,
    findings: &mut Findings<'_>,
) {
    // Messages have the texts as they are written.
    let texts = |option: Prefixes<T>| of.get(option.as_written()).unwrap_or_default();
    let allowed: HashSet<&String> = texts(allow).iter().collect();
    for text in texts(deny) {
        if allowed.contains(text) {
            let text = format!("\"{text}\" is in `allow`, too; accepted: one of them");
            findings.error(of.at(deny), &of.path_of(deny), text);
        }
    }
}

/// Checks the lists of addresses, and that each limit limits something.
pub(super) fn check(door: View<'_, Session>, findings: &mut Findings<'_>) {
    let protocol = door.get(Session::PROTOCOL);
    check_access(door, Session::ALLOW, Session::DENY, findings);
    if protocol == Some(Protocol::Udp) && door.given(Session::LIMIT) {
        let text = "stated, and this front door speaks udp, whose source addresses may be forged; accepted with http \
                    and tcp";
        findings.error(door.at(Session::LIMIT), &door.path_of(Session::LIMIT), text.to_string());
        return;
    }
    check_limits(door.get(Session::LIMIT), protocol, findings);
}

/// Checks the limits of a front door or route.
pub(super) fn check_limits<T: Limiting>(
    limits: Views<'_, T>,
    protocol: Option<Protocol>,
    findings: &mut Findings<'_>,
) {
    for limit in limits {
        // A wrong value is not a missing one.
        if !findings.has_error_below(limit.path()) {
            check_limit(limit, protocol, findings);
        }
    }
}

/// Warns of shared limits in a file without a cluster.
pub(super) fn alone(door: View<'_, Session>, findings: &mut Findings<'_>) {
    let of_door = door.get(Session::LIMIT).into_iter().map(DoorLimit::shared);
    let of_routes = door.get(Session::ROUTE).into_iter().flat_map(|it| it.get(Route::LIMIT));
    for limit in of_door.chain(of_routes.map(RouteLimit::shared)) {
        if limit.get(Limit::SHARED) {
            let text = "true, and has no effect: this machine is in no cluster; accepted: a [cluster] table";
            findings.warning(
                limit.at(Limit::SHARED),
                &limit.path_of(Limit::SHARED),
                text.to_string(),
            );
        }
    }
}

fn check_limit<T: Limiting>(
    limit: View<'_, T>,
    protocol: Option<Protocol>,
    findings: &mut Findings<'_>,
) {
    let shared = T::shared(limit);
    let concurrency = T::CONCURRENCY.name();
    let mut error = |option: Location, text: &str| {
        findings.error(option.at, &option.path, text.to_string());
    };
    let by = limit.get(T::BY);
    let is_by_header = matches!(by, CountedBy::Header(_));
    let has_rate = limit.given(T::RATE);
    if !has_rate && !limit.given(T::CONCURRENCY) {
        let text = format!("missing; accepted: `rate` or `{concurrency}`, or both");
        error(limit.location(T::RATE), &text);
    }
    if shared.given(Limit::BURST) && !has_rate {
        let text = "stated, but there is no `rate`; accepted: both";
        error(shared.location(Limit::BURST), text);
    }
    if is_by_header && protocol == Some(Protocol::Tcp) {
        error(
            limit.location(T::BY),
            "a header, and this front door does not speak HTTP; accepted: \"source\" or \"front-door\"",
        );
    }
    if is_by_header && limit.given(T::CONCURRENCY) {
        error(limit.location(T::CONCURRENCY), T::WITHOUT_HEADER);
    }
    let is_shared = shared.get(Limit::SHARED);
    if is_shared && !has_rate {
        let text = "true, but there is no `rate`; accepted: both";
        error(shared.location(Limit::SHARED), text);
    }
    if is_shared && by != CountedBy::All {
        let text = format!(
            "true, and each source or header value is counted by each node alone; accepted: by = \"{}\"",
            T::ALL
        );
        error(shared.location(Limit::SHARED), &text);
    }
    for option in [Limit::IPV4_PREFIX, Limit::IPV6_PREFIX] {
        if by != CountedBy::Source && shared.given(option) {
            let text = "stated, but the limit is not by \"source\"; accepted: by = \"source\"";
            error(shared.location(option), text);
        }
    }
}
