//! The table of routes, and the decision which one a request takes.

use std::collections::HashMap;
use std::net::IpAddr;

use crate::condition::{Conditions, HostCondition, PathCondition, is_below};
use crate::index::PathIndex;
use crate::normal;

/// The parts of a request that routes have conditions of.
#[derive(Clone, Copy)]
pub struct RequestParts<'a> {
    /// The method.
    pub method: &'a str,
    /// The value of `Host`; empty without one.
    pub host: &'a [u8],
    /// The path in its normal form ([`normal::path`]), without the query.
    pub path: &'a [u8],
    /// The query behind `?`; empty without one.
    pub query: &'a [u8],
    /// The client's address.
    pub source: IpAddr,
    /// The header fields.
    pub headers: &'a dyn Fields,
}

/// Header fields of a request.
pub trait Fields {
    /// Whether `fits` is true for the value of a field of this name, which is in lower case.
    fn any(&self, name: &str, fits: &mut dyn FnMut(&[u8]) -> bool) -> bool;
}

/// Names in any case, with values.
impl<N: AsRef<str>, V: AsRef<[u8]>> Fields for &[(N, V)] {
    fn any(&self, name: &str, fits: &mut dyn FnMut(&[u8]) -> bool) -> bool {
        let named = self.iter().filter(|(field, _)| field.as_ref().eq_ignore_ascii_case(name));
        named.into_iter().any(|(_, value)| fits(value.as_ref()))
    }
}

/// The first condition of a route that a request does not meet.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Unmet {
    /// The host is none of the route's.
    Host,
    /// The path is none of the route's.
    Path,
    /// The method is none of the route's.
    Method,
    /// This header is missing, or has another value.
    Header(Box<str>),
    /// This parameter of the query is missing, or has another value.
    Query(Box<str>),
    /// The client's address is in none of the route's prefixes.
    Source,
}

/// The regular expressions of the routes are too large together.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("the regular expressions of all paths together are too large")]
pub struct TooLarge;

/// Routes, in their order. The first one with all conditions met is the request's.
///
/// A decision costs a look at the host and at the path, however many routes there are, and the
/// other conditions of those routes that remain. Routes that only headers, query, methods or
/// sources tell apart are therefore looked at one by one. A decision allocates nothing unless
/// several routes have regular expressions.
#[derive(Clone, Debug, Default)]
pub struct Table {
    routes: Vec<Conditions>,
    /// Routes of every host.
    every: PathIndex,
    exact: HashMap<Box<[u8]>, PathIndex>,
    /// By the domain of a wildcard.
    below: HashMap<Box<[u8]>, PathIndex>,
    /// The most labels of a domain in `below`.
    labels_max: usize,
}

impl PartialEq for Table {
    fn eq(&self, other: &Table) -> bool {
        self.routes == other.routes
    }
}

impl Table {
    /// Compiles routes.
    ///
    /// # Errors
    /// [`TooLarge`].
    pub fn new(routes: Vec<Conditions>) -> Result<Table, TooLarge> {
        let mut table = Table::default();
        for (route, conditions) in (0u32..).zip(&routes) {
            if conditions.hosts.is_empty() {
                table.every.add(route, &conditions.paths);
            }
            let mut seen: Vec<&HostCondition> = Vec::new();
            for host in &conditions.hosts {
                if seen.contains(&host) {
                    continue;
                }
                seen.push(host);
                let index = match host {
                    HostCondition::Exact(name) => table.exact.entry(name.as_bytes().into()),
                    HostCondition::Below(domain) => {
                        table.labels_max = table.labels_max.max(domain.split('.').count());
                        table.below.entry(domain.as_bytes().into())
                    }
                };
                index.or_default().add(route, &conditions.paths);
            }
        }
        let named = table.exact.values_mut().chain(table.below.values_mut());
        for index in named.chain([&mut table.every]) {
            index.finish().map_err(|_| TooLarge)?;
        }
        table.routes = routes;
        Ok(table)
    }

    /// Number of routes.
    pub fn len(&self) -> usize {
        self.routes.len()
    }

    /// Whether there is no route.
    pub fn is_empty(&self) -> bool {
        self.routes.is_empty()
    }

    /// The conditions of the routes, in their order.
    pub fn routes(&self) -> &[Conditions] {
        &self.routes
    }

    /// The first route with all conditions met.
    pub fn decide(&self, request: &RequestParts<'_>) -> Option<usize> {
        let mut best = u32::MAX;
        let mut consider = |list: &[u32]| {
            for &route in list.iter().take_while(|route| **route < best) {
                if self.routes[route as usize].mismatch_beside_place(request).is_none() {
                    best = route;
                    break;
                }
            }
        };
        self.every.candidates(request.path, &mut consider);
        if !(self.exact.is_empty() && self.below.is_empty()) {
            let mut room = [0; normal::HOST_BYTES_MAX];
            let host = normal::host(request.host, &mut room).unwrap_or_default();
            if let Some(index) = self.exact.get(host) {
                index.candidates(request.path, &mut consider);
            }
            for domain in self.domains(host) {
                if let Some(index) = self.below.get(domain) {
                    index.candidates(request.path, &mut consider);
                }
            }
        }
        (best != u32::MAX).then_some(best as usize)
    }

    /// The domains that a host is below, from short to long, up to the longest of a wildcard.
    fn domains<'h>(&self, host: &'h [u8]) -> impl Iterator<Item = &'h [u8]> + use<'h> {
        let dots = host.iter().enumerate().rev().filter(|(at, byte)| **byte == b'.' && *at > 0);
        dots.take(self.labels_max).map(|(at, _)| &host[at + 1..])
    }

    /// For each route, in their order, the first condition that is not met; `None`: all are. The
    /// request takes the first such route. This looks at every route.
    pub fn explain(&self, request: &RequestParts<'_>) -> Vec<Option<Unmet>> {
        self.routes.iter().map(|conditions| conditions.mismatch(request)).collect()
    }

    /// The longest prefix condition of a route that a path meets, without a slash at its end; empty
    /// if it has none.
    pub fn prefix_of(&self, route: usize, path: &[u8]) -> &str {
        let paths = self.routes.get(route).map(|it| &it.paths[..]).unwrap_or_default();
        let prefixes = paths.iter().filter_map(|condition| match condition {
            PathCondition::Prefix(text) if is_below(path, text.as_bytes()) => Some(&**text),
            _ => None,
        });
        prefixes.max_by_key(|text| text.len()).unwrap_or("")
    }
}

impl Conditions {
    /// The first condition that the request does not meet.
    fn mismatch(&self, request: &RequestParts<'_>) -> Option<Unmet> {
        let mut room = [0; normal::HOST_BYTES_MAX];
        let host = normal::host(request.host, &mut room).unwrap_or_default();
        if !self.hosts.is_empty() && !self.hosts.iter().any(|condition| condition.fits(host)) {
            return Some(Unmet::Host);
        }
        let fits = |condition: &PathCondition| condition.fits(request.path);
        if !self.paths.is_empty() && !self.paths.iter().any(fits) {
            return Some(Unmet::Path);
        }
        self.mismatch_beside_place(request)
    }

    /// As [`Self::mismatch`], without host and path.
    fn mismatch_beside_place(&self, request: &RequestParts<'_>) -> Option<Unmet> {
        let has = |method: &String| method == request.method;
        if !self.methods.is_empty() && !self.methods.iter().any(has) {
            return Some(Unmet::Method);
        }
        for header in &self.headers {
            if !request.headers.any(&header.name, &mut |value| header.value.fits(value)) {
                return Some(Unmet::Header(header.name.clone()));
            }
        }
        for parameter in &self.query {
            if !parameter.fits_query(request.query) {
                return Some(Unmet::Query(parameter.name.clone()));
            }
        }
        let contains = |source: &crate::Source| source.contains(request.source);
        if !self.sources.is_empty() && !self.sources.iter().any(contains) {
            return Some(Unmet::Source);
        }
        None
    }
}
