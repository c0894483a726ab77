//! Where requests of a route go, and changes of their target.

use std::sync::Arc;

use equipoise_routes::{Expression, Split};

use crate::affinity::HashBy;

/// Where the requests of a route go.
#[derive(Clone, Debug, PartialEq)]
pub enum Action {
    /// To backends of pools.
    Pools(Pools),
    /// To another place, by an answer of the proxy.
    Redirect(Redirect),
    /// Nowhere: the proxy answers.
    Answer(FixedAnswer),
}

impl Action {
    /// The names of its pools.
    pub fn pools(&self) -> &[Arc<str>] {
        match self {
            Action::Pools(pools) => &pools.names,
            Action::Redirect(_) | Action::Answer(_) => &[],
        }
    }
}

/// Pools by weight.
#[derive(Clone, Debug, PartialEq)]
pub struct Pools {
    /// Their names.
    pub names: Vec<Arc<str>>,
    /// Their shares, in the same order.
    pub split: Split,
    /// The part that requests to the same pool share; `None`: the pool is random.
    pub sticky: Option<HashBy>,
}

/// A redirect.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Redirect {
    /// 301, 302, 303, 307 or 308.
    pub status: u16,
    /// The new place, with `{scheme}`, `{host}` (without a port), `{path}` and `{query}` (with its
    /// `?`, if there is one) of the request.
    pub to: Arc<str>,
}

/// An answer of the proxy.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FixedAnswer {
    /// 200 to 599.
    pub status: u16,
    /// `Content-Type` of the body.
    pub content_type: Arc<str>,
    /// Empty: there is none.
    pub body: Arc<str>,
}

/// Changes of a request's target and host.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Rewrite {
    /// Of the path; the query stays.
    pub path: Option<PathRewrite>,
    /// The new host.
    pub host: Option<Arc<str>>,
}

/// A change of a path.
#[derive(Clone, Debug, PartialEq)]
pub enum PathRewrite {
    /// In the place of the prefix that the route has matched. Without a slash at its end.
    Prefix(Box<str>),
    /// The first match of the expression is replaced; `$1` is its first group.
    Regex(Expression, Box<str>),
}

impl PathRewrite {
    /// The new path; `None`: the old one. `prefix` is the matched one, without a slash at its end.
    pub(crate) fn apply(&self, path: &[u8], prefix: &str) -> Option<Vec<u8>> {
        match self {
            PathRewrite::Prefix(new) => {
                let rest = path.strip_prefix(prefix.as_bytes())?;
                let path = [new.as_bytes(), rest].concat();
                Some(if path.is_empty() { b"/".to_vec() } else { path })
            }
            PathRewrite::Regex(pattern, new) => pattern.replace(path, new),
        }
    }
}
