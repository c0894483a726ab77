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

use super::key::{Any, Key};
use super::problem::Findings;
use super::tables::{
    HeaderEdits, Route, RouteAnswer, RouteMirror, RoutePool, RouteRedirect, RouteRewrite, Session,
};
use super::text::{Bandwidth, HeaderLine, RetryFailure, StickyTo, prefixes};
use super::view::{View, Views};
use super::{FileKind, Surroundings, limits};

/// The routes of a front door.
pub(super) fn of_door(
    door: View<'_, Session>,
    around: &Surroundings<'_>,
    findings: &mut Findings<'_>,
) -> Arc<Routes> {
    let tables = door.get(Session::ROUTE);
    if let (true, Some(first)) = (door.given(Session::REDIRECT), tables.first()) {
        let text = "stated, but `redirect` of the front door sends all requests away; accepted: one of both";
        findings.error(first.start(), first.path(), text.to_string());
    }
    let mut routes = Vec::with_capacity(tables.len());
    for (number, values) in (1..).zip(tables) {
        routes.extend(route(number, values, door, around, findings));
    }
    let names = routes.iter().map(|(_, route)| &route.name);
    if let Some(second) = repeated(names) {
        let text = format!(
            "\"{}\" is the name of another route; accepted: each name once",
            routes[second].1.name
        );
        let second = tables.get(second);
        let (at, path) = match second {
            Some(route) => (route.at(Route::NAME), route.path_of(Route::NAME)),
            None => (door.at(Session::NAME), door.path_of(Session::NAME)),
        };
        findings.error(at, &path, text);
    }
    let is_whole = routes.len() == tables.len();
    let routes = Routes::new(routes).unwrap_or_else(|error| {
        findings.error(door.at(Session::ROUTE), &door.path_of(Session::ROUTE), error.to_string());
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

fn warn_of_hidden(routes: &Routes, tables: Views<'_, Route>, findings: &mut Findings<'_>) {
    for (route, by) in routes.table().hidden() {
        let (Some(values), Some(first)) = (tables.get(route), tables.get(by)) else { continue };
        let (name, other, line) =
            (&routes.routes()[route].name, &routes.routes()[by].name, findings.line(first.start()));
        let text = format!(
            "route \"{name}\" never gets a request: route \"{other}\", on line {line}, takes all of its requests; \
             accepted: the narrower route first, or other conditions"
        );
        findings.warning(values.start(), values.path(), text);
    }
}

fn route(
    number: usize,
    values: View<'_, Route>,
    door: View<'_, Session>,
    around: &Surroundings<'_>,
    findings: &mut Findings<'_>,
) -> Option<(Conditions, RouteConfig)> {
    let numbered = number.to_string();
    limits::check_limits(values.get(Route::LIMIT), Some(Protocol::Http), findings);
    let options = RouteOptions {
        body_bytes_max: values.get(Route::BODY_MAX),
        bandwidth: values.get(Route::BANDWIDTH).map(|Bandwidth(rate)| rate),
        request_timeout: values.get(Route::REQUEST_TIMEOUT),
        response_timeout: values.get(Route::RESPONSE_TIMEOUT),
        tunnel_timeout: values.get(Route::TUNNEL_TIMEOUT),
        retries: values.get(Route::RETRIES),
        retry_on: values.get(Route::RETRY_ON).map(retry_on),
    };
    let route = RouteConfig {
        name: values.get(Route::NAME).unwrap_or(&numbered).into(),
        rewrite: values.get(Route::REWRITE).map(|it| rewrite(it, findings)).unwrap_or_default(),
        request: values.get(Route::REQUEST_HEADERS).map(|it| edits(it.part())).unwrap_or_default(),
        response: values
            .get(Route::RESPONSE_HEADERS)
            .map(|it| edits(it.part()))
            .unwrap_or_default(),
        mirror: mirror(values, findings),
        limits: limits::limits(values.get(Route::LIMIT)),
        action: action(values, door, around, findings)?,
        options,
    };
    Some((conditions(values), route))
}

/// Reads each text of a list; the forms of the options have accepted them.
fn read<T, E>(texts: Option<&[String]>, read: impl Fn(&str) -> Result<T, E>) -> Vec<T> {
    let texts = texts.unwrap_or_default().iter();
    texts.filter_map(|text| read(text).ok()).collect()
}

fn conditions(values: View<'_, Route>) -> Conditions {
    let mut paths = read(values.get(Route::PATH), PathCondition::exact);
    paths.extend(read(values.get(Route::PATH_PREFIX), PathCondition::prefix));
    let patterns = values.get(Route::PATH_REGEX).unwrap_or_default();
    paths.extend(patterns.into_iter().map(PathCondition::Regex));
    let sources = prefixes(values.get(Route::SOURCE)).into_iter();
    Conditions {
        hosts: values.get(Route::HOST).unwrap_or_default(),
        paths,
        methods: values.get(Route::METHOD).unwrap_or_default().to_vec(),
        headers: read(values.get(Route::HEADER), FieldCondition::header),
        query: read(values.get(Route::QUERY), FieldCondition::query),
        sources: sources.map(|(address, length)| Source::new(address, length)).collect(),
    }
}

/// The failures of `retry-on`.
pub(super) fn retry_on(failures: Vec<RetryFailure>) -> RetryOn {
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
    values: View<'_, Route>,
    door: View<'_, Session>,
    around: &Surroundings<'_>,
    findings: &mut Findings<'_>,
) -> Option<Action> {
    let kinds = [Route::POOL.any(), Route::POOLS.any(), Route::REDIRECT.any(), Route::ANSWER.any()];
    let mut given = kinds.into_iter().filter(|kind| values.given(*kind));
    if let (Some(first), Some(second)) = (given.next(), given.next()) {
        let text = format!(
            "stated beside `{}`; accepted: one of `pool`, `pools`, `redirect` and `answer`",
            first.name()
        );
        findings.error(values.at(second), &values.path_of(second), text);
    }
    if values.given(Route::STICKY) && !values.given(Route::POOLS) {
        let text = "stated, but the route has one pool; accepted: `pools` beside it";
        findings.error(values.at(Route::STICKY), &values.path_of(Route::STICKY), text.to_string());
    }
    if let Some(values) = values.get(Route::REDIRECT) {
        return redirect(values, findings).map(Action::Redirect);
    }
    if let Some(values) = values.get(Route::ANSWER) {
        return answer(values, around, findings).map(Action::Answer);
    }
    pools(values, door, findings).map(Action::Pools)
}

fn pools(
    values: View<'_, Route>,
    door: View<'_, Session>,
    findings: &mut Findings<'_>,
) -> Option<Pools> {
    let shares = values.get(Route::POOLS);
    if shares.is_empty() {
        let name = values.get(Route::POOL).or_else(|| door.get(Session::POOL))?;
        let split = Split::new([1])?;
        return Some(Pools { names: vec![name.into()], split, sticky: None });
    }
    let named = shares
        .iter()
        .filter_map(|share| Some((share.get(RoutePool::POOL)?, share.get(RoutePool::WEIGHT))));
    let (names, weights): (Vec<&str>, Vec<u32>) = named.unzip();
    let Some(split) = Split::new(weights) else {
        let text = "no pool has a weight; accepted: a `weight` of 1 or more";
        findings.error(values.at(Route::POOLS), &values.path_of(Route::POOLS), text.to_string());
        return None;
    };
    let sticky = values.get(Route::STICKY).map(|StickyTo(part)| part);
    Some(Pools { names: names.into_iter().map(Into::into).collect(), split, sticky })
}

fn mirror(values: View<'_, Route>, findings: &mut Findings<'_>) -> Option<Mirror> {
    let mirror = values.get(Route::MIRROR)?;
    let own = [Route::REDIRECT.any(), Route::ANSWER.any()].into_iter().find(|it| values.given(*it));
    if let Some(own) = own {
        let text = format!(
            "stated beside `{}`, which needs no backend; accepted: `mirror` beside `pool` or `pools`",
            own.name()
        );
        findings.error(values.at(Route::MIRROR), &values.path_of(Route::MIRROR), text);
    }
    Some(Mirror {
        pool: mirror.get(RouteMirror::POOL)?.into(),
        share: mirror.get(RouteMirror::SHARE),
        body_bytes_max: mirror.get(RouteMirror::BODY_MAX),
        in_flight_max: mirror.get(RouteMirror::CONCURRENCY),
    })
}

fn redirect(values: View<'_, RouteRedirect>, findings: &mut Findings<'_>) -> Option<Redirect> {
    let status = values.get(RouteRedirect::STATUS);
    if matches!(status, 304..=306) {
        let text = format!("{status} is no redirect; accepted: 301, 302, 303, 307 or 308");
        findings.error(
            values.at(RouteRedirect::STATUS),
            &values.path_of(RouteRedirect::STATUS),
            text,
        );
    }
    Some(Redirect { status, to: values.get(RouteRedirect::TO)?.into() })
}

fn answer(
    values: View<'_, RouteAnswer>,
    around: &Surroundings<'_>,
    findings: &mut Findings<'_>,
) -> Option<FixedAnswer> {
    let body = match (values.get(RouteAnswer::BODY), values.get(RouteAnswer::FILE)) {
        (Some(_), Some(_)) => {
            let text = "stated beside `body`; accepted: one of both";
            findings.error(
                values.at(RouteAnswer::FILE),
                &values.path_of(RouteAnswer::FILE),
                text.to_string(),
            );
            return None;
        }
        (None, Some(path)) => match (around.read)(Path::new(path), FileKind::Page) {
            Ok(text) => text,
            Err(error) => {
                let text = format!("\"{path}\" cannot be read: {error}; accepted: a file of text");
                findings.error(
                    values.at(RouteAnswer::FILE),
                    &values.path_of(RouteAnswer::FILE),
                    text,
                );
                return None;
            }
        },
        (body, None) => body.unwrap_or_default().to_string(),
    };
    Some(FixedAnswer {
        status: values.get(RouteAnswer::STATUS),
        content_type: values.get(RouteAnswer::CONTENT_TYPE).into(),
        body: body.into(),
    })
}

fn rewrite(values: View<'_, RouteRewrite>, findings: &mut Findings<'_>) -> Rewrite {
    let mut error = |option: Key<RouteRewrite, Any>, text: String| {
        findings.error(values.at(option), &values.path_of(option), text);
    };
    let pattern: Option<Expression> = values.get(RouteRewrite::REGEX);
    let path = match (values.get(RouteRewrite::PREFIX), pattern, values.get(RouteRewrite::TO)) {
        (Some(_), Some(_), _) => {
            error(
                RouteRewrite::REGEX.any(),
                "stated beside `prefix`; accepted: one of both".into(),
            );
            None
        }
        (Some(prefix), None, None) => {
            Some(PathRewrite::Prefix(prefix.strip_suffix('/').unwrap_or(prefix).into()))
        }
        (None, Some(pattern), Some(to)) => {
            if let Err(wrong) = pattern.accepts(to) {
                error(RouteRewrite::TO.any(), wrong.to_string());
            }
            Some(PathRewrite::Regex(pattern, to.into()))
        }
        (None, Some(_), None) => {
            error(RouteRewrite::REGEX.any(), "stated without `to`; accepted: both".into());
            None
        }
        (_, None, Some(_)) => {
            error(RouteRewrite::TO.any(), "stated without `regex`; accepted: both".into());
            None
        }
        (None, None, None) => None,
    };
    Rewrite { path, host: values.get(RouteRewrite::HOST).map(Into::into) }
}

fn edits(values: View<'_, HeaderEdits>) -> Edits {
    let pairs = |lines: Vec<HeaderLine>| -> Vec<_> {
        lines.into_iter().map(|line| (line.name, line.value)).collect()
    };
    let (set, add) = (pairs(values.get(HeaderEdits::SET)), pairs(values.get(HeaderEdits::ADD)));
    Edits::new(&set, &add, values.get(HeaderEdits::REMOVE))
}

/// The statuses with which the proxy answers by itself.
const OWN_STATUSES: [u16; 11] = [400, 405, 408, 413, 417, 431, 501, 502, 503, 504, 505];

/// The pages of `error-pages`, by status.
pub(super) fn error_pages(
    door: View<'_, Session>,
    around: &Surroundings<'_>,
    findings: &mut Findings<'_>,
) -> Arc<BTreeMap<u16, String>> {
    let mut pages = BTreeMap::new();
    let Some(folder) = door.get(Session::ERROR_PAGES) else { return Arc::default() };
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
                findings.error(
                    door.at(Session::ERROR_PAGES),
                    &door.path_of(Session::ERROR_PAGES),
                    text,
                );
            }
        }
    }
    if pages.is_empty() && !findings.has_error_on("error-pages") {
        let text = format!(
            "\"{folder}\" has no page for an error of the proxy; accepted: a folder with 503.html and others, of {OWN_STATUSES:?}"
        );
        findings.error(door.at(Session::ERROR_PAGES), &door.path_of(Session::ERROR_PAGES), text);
    }
    Arc::new(pages)
}
