//! Builds the routes of a front door: `[[session.route]]`.

use std::collections::BTreeMap;
use std::io;
use std::path::Path;
use std::sync::Arc;

use equipoise_session::config::Protocol;
use equipoise_session::route::{
    Action, Conditions, Edits, Expression, FieldCondition, FixedAnswer, Mirror, PathCondition,
    PathRewrite, Pools, Redirect, RetryOn, Rewrite, RouteConfig, RouteOptions, Routes, Source,
    Split,
};

use super::problem::Findings;
use super::text::{Bandwidth, HeaderLine, RetryFailure, StickyTo};
use super::values::Values;
use super::{FileKind, Surroundings, limits};

/// The routes of a front door.
pub(super) fn of_door(
    door: &Values,
    around: &Surroundings<'_>,
    findings: &mut Findings<'_>,
) -> Arc<Routes> {
    let tables = door.tables("route");
    if let (true, Some(first)) = (door.given("redirect"), tables.first()) {
        let text = "stated, but `redirect` of the front door sends all requests away; accepted: one of both";
        findings.error(first.at, &first.path, text.to_string());
    }
    let mut routes = Vec::with_capacity(tables.len());
    for (number, values) in (1..).zip(tables) {
        routes.extend(route(number, values, door, around, findings));
    }
    let names = routes.iter().map(|(_, route)| &route.name);
    if let Some(second) = repeated(names) {
        let at = tables.get(second).unwrap_or(door);
        let text = format!(
            "\"{}\" is the name of another route; accepted: each name once",
            routes[second].1.name
        );
        findings.error(at.at("name"), &at.path_of("name"), text);
    }
    let is_whole = routes.len() == tables.len();
    let routes = Routes::new(routes).unwrap_or_else(|error| {
        findings.error(door.at("route"), &door.path_of("route"), error.to_string());
        Routes::default()
    });
    if is_whole {
        warn_of_hidden(&routes, tables, findings);
    }
    Arc::new(routes)
}

/// The index of the first name that occurred before.
fn repeated<'n>(names: impl Iterator<Item = &'n Arc<str>>) -> Option<usize> {
    let mut seen = std::collections::HashSet::new();
    names.enumerate().find(|(_, name)| !seen.insert(*name)).map(|(at, _)| at)
}

fn warn_of_hidden(routes: &Routes, tables: &[Values], findings: &mut Findings<'_>) {
    for (route, by) in routes.table().hidden() {
        let (Some(values), Some(first)) = (tables.get(route), tables.get(by)) else { continue };
        let (name, other, line) =
            (&routes.routes()[route].name, &routes.routes()[by].name, findings.line(first.at));
        let text = format!(
            "route \"{name}\" never gets a request: route \"{other}\", on line {line}, takes all of its requests; \
             accepted: the narrower route first, or other conditions"
        );
        findings.warning(values.at, &values.path, text);
    }
}

fn route(
    number: usize,
    values: &Values,
    door: &Values,
    around: &Surroundings<'_>,
    findings: &mut Findings<'_>,
) -> Option<(Conditions, RouteConfig)> {
    let numbered = number.to_string();
    limits::check_limits(values, Some(Protocol::Http), findings);
    let options = RouteOptions {
        body_bytes_max: values.number("body-max"),
        bandwidth: values.parsed("bandwidth").map(|Bandwidth(rate)| rate),
        request_timeout: values.duration_if_any("request-timeout"),
        response_timeout: values.duration_if_any("response-timeout"),
        tunnel_timeout: values.duration_if_any("tunnel-timeout"),
        retries: values.number("retries").and_then(|number| u32::try_from(number).ok()),
        retry_on: values.given("retry-on").then(|| retry_on(values)),
    };
    let route = RouteConfig {
        name: values.text("name").unwrap_or(&numbered).into(),
        rewrite: values.table("rewrite").map(|it| rewrite(it, findings)).unwrap_or_default(),
        request: values.table("request-headers").map(edits).unwrap_or_default(),
        response: values.table("response-headers").map(edits).unwrap_or_default(),
        mirror: mirror(values, findings),
        limits: limits::limits(values),
        action: action(values, door, around, findings)?,
        options,
    };
    Some((conditions(values), route))
}

/// Reads each text of a list; the forms of the options have accepted them.
fn read<T, E>(values: &Values, option: &str, read: impl Fn(&str) -> Result<T, E>) -> Vec<T> {
    let texts = values.texts(option).unwrap_or_default().iter();
    texts.filter_map(|text| read(text).ok()).collect()
}

fn conditions(values: &Values) -> Conditions {
    let mut paths = read(values, "path", PathCondition::exact);
    paths.extend(read(values, "path-prefix", PathCondition::prefix));
    paths.extend(read(values, "path-regex", |text| text.parse().map(PathCondition::Regex)));
    let sources = values.prefixes("source");
    Conditions {
        hosts: read(values, "host", str::parse),
        paths,
        methods: values.texts("method").unwrap_or_default().to_vec(),
        headers: read(values, "header", FieldCondition::header),
        query: read(values, "query", FieldCondition::query),
        sources: sources.map(|(address, length)| Source::new(address, length)).collect(),
    }
}

/// The failures of `retry-on`.
pub(super) fn retry_on(values: &Values) -> RetryOn {
    let failures: Vec<RetryFailure> = read(values, "retry-on", str::parse);
    let statuses = failures.iter().filter_map(|failure| match failure {
        RetryFailure::Statuses(first, last) => Some((*first, *last)),
        RetryFailure::Connect | RetryFailure::Reset | RetryFailure::Grpc(_) => None,
    });
    let grpc = failures.iter().filter_map(|failure| match failure {
        RetryFailure::Grpc(status) => Some(*status),
        _ => None,
    });
    RetryOn {
        connect: failures.contains(&RetryFailure::Connect),
        reset: failures.contains(&RetryFailure::Reset),
        statuses: statuses.collect(),
        grpc: grpc.collect(),
    }
}

fn action(
    values: &Values,
    door: &Values,
    around: &Surroundings<'_>,
    findings: &mut Findings<'_>,
) -> Option<Action> {
    let kinds = ["pool", "pools", "redirect", "answer"];
    let mut given = kinds.into_iter().filter(|kind| values.given(kind));
    if let (Some(first), Some(second)) = (given.next(), given.next()) {
        let text = format!(
            "stated beside `{first}`; accepted: one of `pool`, `pools`, `redirect` and `answer`"
        );
        findings.error(values.at(second), &values.path_of(second), text);
    }
    if values.given("sticky") && !values.given("pools") {
        let text = "stated, but the route has one pool; accepted: `pools` beside it";
        findings.error(values.at("sticky"), &values.path_of("sticky"), text.to_string());
    }
    if let Some(values) = values.table("redirect") {
        return redirect(values, findings).map(Action::Redirect);
    }
    if let Some(values) = values.table("answer") {
        return answer(values, around, findings).map(Action::Answer);
    }
    pools(values, door, findings).map(Action::Pools)
}

fn pools(values: &Values, door: &Values, findings: &mut Findings<'_>) -> Option<Pools> {
    let shares = values.tables("pools");
    if shares.is_empty() {
        let name = values.text("pool").or_else(|| door.text("pool"))?;
        let split = Split::new([1])?;
        return Some(Pools { names: vec![name.into()], split, sticky: None });
    }
    let named = shares
        .iter()
        .filter_map(|share| Some((share.text("pool")?, share.amount::<u32>("weight"))));
    let (names, weights): (Vec<&str>, Vec<u32>) = named.unzip();
    let Some(split) = Split::new(weights) else {
        let text = "no pool has a weight; accepted: a `weight` of 1 or more";
        findings.error(values.at("pools"), &values.path_of("pools"), text.to_string());
        return None;
    };
    let sticky = values.parsed("sticky").map(|StickyTo(part)| part);
    Some(Pools { names: names.into_iter().map(Into::into).collect(), split, sticky })
}

fn mirror(values: &Values, findings: &mut Findings<'_>) -> Option<Mirror> {
    let mirror = values.table("mirror")?;
    let own = ["redirect", "answer"].into_iter().find(|kind| values.given(kind));
    if let Some(own) = own {
        let text = format!(
            "stated beside `{own}`, which needs no backend; accepted: `mirror` beside `pool` or `pools`"
        );
        findings.error(values.at("mirror"), &values.path_of("mirror"), text);
    }
    Some(Mirror {
        pool: mirror.text("pool")?.into(),
        share: mirror.share("share"),
        body_bytes_max: mirror.number("body-max")?,
        in_flight_max: mirror.amount("concurrency"),
    })
}

fn redirect(values: &Values, findings: &mut Findings<'_>) -> Option<Redirect> {
    let status = values.amount("status");
    if matches!(status, 304..=306) {
        let text = format!("{status} is no redirect; accepted: 301, 302, 303, 307 or 308");
        findings.error(values.at("status"), &values.path_of("status"), text);
    }
    Some(Redirect { status, to: values.text("to")?.into() })
}

fn answer(
    values: &Values,
    around: &Surroundings<'_>,
    findings: &mut Findings<'_>,
) -> Option<FixedAnswer> {
    let body = match (values.text("body"), values.text("file")) {
        (Some(_), Some(_)) => {
            let text = "stated beside `body`; accepted: one of both";
            findings.error(values.at("file"), &values.path_of("file"), text.to_string());
            return None;
        }
        (None, Some(path)) => match (around.read)(Path::new(path), FileKind::Page) {
            Ok(text) => text,
            Err(error) => {
                let text = format!("\"{path}\" cannot be read: {error}; accepted: a file of text");
                findings.error(values.at("file"), &values.path_of("file"), text);
                return None;
            }
        },
        (body, None) => body.unwrap_or_default().to_string(),
    };
    Some(FixedAnswer {
        status: values.amount("status"),
        content_type: values.text("content-type")?.into(),
        body: body.into(),
    })
}

fn rewrite(values: &Values, findings: &mut Findings<'_>) -> Rewrite {
    let mut error = |option: &str, text: String| {
        findings.error(values.at(option), &values.path_of(option), text);
    };
    let pattern: Option<Expression> = values.parsed("regex");
    let path = match (values.text("prefix"), pattern, values.text("to")) {
        (Some(_), Some(_), _) => {
            error("regex", "stated beside `prefix`; accepted: one of both".into());
            None
        }
        (Some(prefix), None, None) => {
            Some(PathRewrite::Prefix(prefix.strip_suffix('/').unwrap_or(prefix).into()))
        }
        (None, Some(pattern), Some(to)) => {
            if let Err(wrong) = pattern.accepts(to) {
                error("to", wrong.to_string());
            }
            Some(PathRewrite::Regex(pattern, to.into()))
        }
        (None, Some(_), None) => {
            error("regex", "stated without `to`; accepted: both".into());
            None
        }
        (_, None, Some(_)) => {
            error("to", "stated without `regex`; accepted: both".into());
            None
        }
        (None, None, None) => None,
    };
    Rewrite { path, host: values.text("host").map(Into::into) }
}

fn edits(values: &Values) -> Edits {
    let lines = |option| read::<HeaderLine, _>(values, option, str::parse).into_iter();
    let pairs = |option| lines(option).map(|line| (line.name, line.value)).collect::<Vec<_>>();
    let remove = values.texts("remove").unwrap_or_default();
    Edits::new(&pairs("set"), &pairs("add"), remove)
}

/// The statuses with which the proxy answers by itself.
const OWN_STATUSES: [u16; 11] = [400, 405, 408, 413, 417, 431, 501, 502, 503, 504, 505];

/// The pages of `error-pages`, by status.
pub(super) fn error_pages(
    door: &Values,
    around: &Surroundings<'_>,
    findings: &mut Findings<'_>,
) -> Arc<BTreeMap<u16, String>> {
    let mut pages = BTreeMap::new();
    let Some(folder) = door.text("error-pages") else { return Arc::default() };
    for status in OWN_STATUSES {
        let file = Path::new(folder).join(format!("{status}.html"));
        match (around.read)(&file, FileKind::Page) {
            Ok(page) => drop(pages.insert(status, page)),
            Err(error) if error.kind() == io::ErrorKind::NotFound => {}
            Err(error) => {
                let text = format!(
                    "\"{}\" cannot be read: {error}; accepted: a file of text",
                    file.display()
                );
                findings.error(door.at("error-pages"), &door.path_of("error-pages"), text);
            }
        }
    }
    if pages.is_empty() && !findings.has_error_on("error-pages") {
        let text = format!(
            "\"{folder}\" has no page for an error of the proxy; accepted: a folder with 503.html and others, of {OWN_STATUSES:?}"
        );
        findings.error(door.at("error-pages"), &door.path_of("error-pages"), text);
    }
    Arc::new(pages)
}
