//! Rules in their order, as routes of which a request takes the first.

use super::condition::Matched;
use crate::conditions::{Meet, meet};
use crate::model::{Options, Route};
use crate::report::Report;

/// A rule that ends the processing of a request.
#[derive(Clone, Debug)]
pub(super) struct Rule {
    pub(super) number: usize,
    pub(super) condition: Matched,
    pub(super) route: Route,
    /// Requests are refused.
    pub(super) is_refusal: bool,
}

/// Exceptions of a rule lead to all later rules, so that their number is bounded.
const DEPTH_MAX: usize = 3;
const ROUTES_MAX: usize = 300;

/// The text of a refusal that is lost.
pub(super) const SERVED: &str = "requests that HAProxy refuses are served";

/// The routes of rules; requests that meet none take `last`.
pub(super) fn routes(mut rules: Vec<Rule>, last: &Route, report: &mut Report) -> Vec<Route> {
    // Of refusals in a row the order does not matter: those without an exception come first.
    let mut at = 0;
    while at < rules.len() {
        let run = rules[at..].iter().take_while(|it| it.is_refusal).count();
        rules[at..at + run].sort_by_key(|it| !it.condition.except.is_empty());
        at += run.max(1);
    }
    let mut out = Vec::new();
    add(&Options::default(), &rules, last, 0, &mut out, report);
    out
}

fn add(
    within: &Options,
    rules: &[Rule],
    last: &Route,
    depth: usize,
    out: &mut Vec<Route>,
    report: &mut Report,
) {
    for (at, rule) in rules.iter().enumerate() {
        let options = match meet(within, &rule.condition.options) {
            Meet::Both(options) => options,
            Meet::Never => continue,
            Meet::Unknown => {
                unknown(rule, report);
                continue;
            }
        };
        for except in &rule.condition.except {
            match meet(within, except) {
                Meet::Both(inner) if depth < DEPTH_MAX && out.len() < ROUTES_MAX => {
                    add(&inner, &rules[at + 1..], last, depth + 1, out, report);
                }
                Meet::Never => {}
                Meet::Both(_) | Meet::Unknown => unknown(rule, report),
            }
        }
        let is_all = options == *within;
        out.push(Route { options: with_pool(options, &rule.route), ..rule.route.clone() });
        if is_all {
            return;
        }
    }
    out.push(Route { options: with_pool(within.clone(), last), ..last.clone() });
}

/// The conditions with the pool of a route.
fn with_pool(mut conditions: Options, route: &Route) -> Options {
    if let Some(pool) = route.options.get("pool") {
        conditions.set("pool", pool.clone());
    }
    conditions
}

fn unknown(rule: &Rule, report: &mut Report) {
    let how =
        "not for requests that meet the exception of an earlier line; write a route before it";
    if rule.is_refusal {
        report.lost(rule.number, format!("{how}: {SERVED}"));
    } else {
        report.changes(rule.number, how);
    }
}
