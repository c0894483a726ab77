//! Routes of an HTTP front door: what happens to a request that takes one.
//!
//! [`equipoise_routes::Table`] decides which route a request takes. The head is read and decided
//! once, with the view of one snapshot, and the request keeps both, whatever a reload changes.

mod action;
mod edits;
mod mirror;
mod view;

use std::sync::Arc;
use std::time::Duration;

use crate::client_limit::ClientLimit;
use crate::reason::Reason;

pub use equipoise_routes::{
    ConditionError, Conditions, Expression, FieldCondition, HostCondition, PathCondition, Source,
    Split, Table, TooLarge, Unmet,
};

pub use action::{Action, FixedAnswer, PathRewrite, Pools, Redirect, Rewrite};
pub use edits::{Edits, SecurityHeaders};
pub(crate) use mirror::CopyInFlight;
pub use mirror::{CopyOutcome, Mirror, MirrorLive, MirrorView};
pub use view::{PoolPlace, RouteStats, RouteView};

/// A route: what happens to its requests.
#[derive(Clone, Debug, PartialEq)]
pub struct RouteConfig {
    /// Unique at its front door; its number in the file's order unless the configuration names it.
    pub name: Arc<str>,
    /// Where its requests go.
    pub action: Action,
    /// Changes of target and host, before the action.
    pub rewrite: Rewrite,
    /// Changes of the header that backends get.
    pub request: Edits,
    /// Changes of the header that clients get.
    pub response: Edits,
    /// The pool that gets copies of its requests.
    pub mirror: Option<Mirror>,
    /// Limits on each client, beside those of the front door.
    pub limits: Arc<[ClientLimit]>,
    /// Options that go before those of front door and pool.
    pub options: RouteOptions,
}

impl RouteConfig {
    /// The names of its pools, that of its mirror included.
    pub fn pools(&self) -> impl Iterator<Item = &Arc<str>> {
        self.action.pools().iter().chain(self.mirror.as_ref().map(|mirror| &mirror.pool))
    }
}

/// Options of a route; `None`: those of its front door or pool.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct RouteOptions {
    /// Request body, bytes.
    pub body_bytes_max: Option<u64>,
    /// Bytes a second of each response.
    pub bandwidth: Option<u64>,
    /// From the end of the request's head to the last byte of the response.
    pub request_timeout: Option<Duration>,
    /// From the request's last byte to the first of the response.
    pub response_timeout: Option<Duration>,
    /// How long a tunnel may be idle.
    pub tunnel_timeout: Option<Duration>,
    /// Tries on another backend after a failure.
    pub retries: Option<u32>,
    /// Failures after which a request is tried again.
    pub retry_on: Option<RetryOn>,
}

/// Failures after which a request is tried again.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RetryOn {
    /// No connection to the backend was made.
    pub connect: bool,
    /// The connection ended before a response.
    pub reset: bool,
    /// First and last status of ranges, of idempotent requests.
    pub statuses: Arc<[(u16, u16)]>,
    /// Statuses of gRPC calls, of responses with trailers alone.
    pub grpc: GrpcStatuses,
}

/// A set of statuses of gRPC.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct GrpcStatuses(u32);

impl GrpcStatuses {
    /// Whether there is one.
    pub(crate) fn is_some(self) -> bool {
        self.0 != 0
    }

    /// Whether it has this one.
    pub(crate) fn has(self, status: u8) -> bool {
        1_u32.checked_shl(status.into()).is_some_and(|bit| self.0 & bit != 0)
    }
}

impl FromIterator<u8> for GrpcStatuses {
    /// Of numbers below 32; gRPC has 17.
    fn from_iter<I: IntoIterator<Item = u8>>(statuses: I) -> Self {
        let bits = statuses.into_iter().filter_map(|status| 1_u32.checked_shl(status.into()));
        GrpcStatuses(bits.fold(0, |all, bit| all | bit))
    }
}

impl RetryOn {
    /// Whether a request is tried again after a failure with this reason, if that is safe.
    pub(crate) fn has(&self, reason: Reason) -> bool {
        match reason {
            Reason::UpstreamClosed => self.reset,
            reason if reason.is_not_connected() => self.connect,
            _ => true,
        }
    }

    /// Whether a response with this status is retried.
    pub(crate) fn has_status(&self, status: u16) -> bool {
        self.statuses.iter().any(|(first, last)| (*first..=*last).contains(&status))
    }
}

impl Default for RetryOn {
    fn default() -> Self {
        RetryOn {
            connect: true,
            reset: true,
            statuses: Arc::default(),
            grpc: GrpcStatuses::default(),
        }
    }
}

/// The routes of a front door, in the file's order, with their compiled conditions.
#[derive(Debug, Default, PartialEq)]
pub struct Routes {
    table: Table,
    routes: Vec<RouteConfig>,
}

impl Routes {
    /// Compiles the conditions.
    ///
    /// # Errors
    /// [`TooLarge`].
    pub fn new(routes: Vec<(Conditions, RouteConfig)>) -> Result<Routes, TooLarge> {
        let (conditions, routes): (Vec<_>, Vec<_>) = routes.into_iter().unzip();
        Ok(Routes { table: Table::new(conditions)?, routes })
    }

    /// The table that decides.
    pub fn table(&self) -> &Table {
        &self.table
    }

    /// The routes.
    pub fn routes(&self) -> &[RouteConfig] {
        &self.routes
    }

    /// Whether there is no route.
    pub fn is_empty(&self) -> bool {
        self.routes.is_empty()
    }
}
