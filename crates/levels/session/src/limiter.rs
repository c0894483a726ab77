//! The counts of the limits on the clients of a front door.

use std::net::{IpAddr, Ipv4Addr};
use std::sync::Arc;
use std::time::{Duration, Instant};

use equipoise_limits::{self as limits, KeyedRate, OpenCounts};

use crate::affinity::fields;
use crate::config::{ClientLimit, LimitBy};
use crate::reason::Reason;

/// The limits of a front door, with their counts; all threads share it.
#[derive(Debug, Default)]
pub struct Limiter(Vec<Arc<Limit>>);

#[derive(Debug)]
struct Limit {
    config: ClientLimit,
    rate: Option<KeyedRate>,
    open: Arc<OpenCounts<IpAddr>>,
}

/// A connection, counted by each limit of connections until this is dropped.
pub(crate) type Entered = Box<[limits::Entered<IpAddr>]>;

impl Limiter {
    /// With nothing counted yet.
    pub fn new(limits: &[ClientLimit]) -> Limiter {
        Limiter(limits.iter().map(|config| Arc::new(Limit::new(config))).collect())
    }

    /// The same with these limits. One that was there before keeps its counts.
    pub(crate) fn update(self: &Arc<Self>, wanted: &[ClientLimit]) -> Arc<Limiter> {
        if self.0.iter().map(|limit| &limit.config).eq(wanted) {
            return Arc::clone(self);
        }
        let kept = |config: &ClientLimit| self.0.iter().find(|limit| limit.config == *config);
        let limit = |config: &ClientLimit| match kept(config) {
            Some(limit) => Arc::clone(limit),
            None => Arc::new(Limit::new(config)),
        };
        Arc::new(Limiter(wanted.iter().map(limit).collect()))
    }

    /// Counts a connection of `client`; `None` if it may have no more.
    pub(crate) fn enter(&self, client: IpAddr) -> Option<Entered> {
        let enter = |limit: &Arc<Limit>| {
            let most = limit.config.connections?;
            Some(limit.open.enter(limit.source(client)?, most.get()))
        };
        self.0.iter().filter_map(enter).collect()
    }

    /// Counts a new TCP connection of `client` in its rate.
    ///
    /// # Errors
    /// [`Reason::RateLimited`].
    pub(crate) fn connection(&self, client: IpAddr) -> Result<(), Reason> {
        self.request(client, b"")
    }

    /// Counts a request of `client` in its rate. `head` is as it goes to a backend.
    ///
    /// # Errors
    /// [`Reason::RateLimited`].
    pub(crate) fn request(&self, client: IpAddr, head: &[u8]) -> Result<(), Reason> {
        if self.0.is_empty() {
            return Ok(());
        }
        let now = Instant::now();
        for limit in &self.0 {
            let Some(rate) = &limit.rate else { continue };
            let taken = match (&limit.config.by, limit.source(client)) {
                (LimitBy::Header(name), _) => {
                    rate.take(fields(head, name).next().unwrap_or_default(), now)
                }
                (_, Some(source)) => rate.take(&source, now),
                (_, None) => Ok(()),
            };
            taken.map_err(|_| Reason::RateLimited)?;
        }
        Ok(())
    }

    /// The time after which a client that was refused has room for a request again, whichever
    /// limit refused it.
    pub(crate) fn retry_after(&self) -> Duration {
        let rates = self.0.iter().filter_map(|limit| limit.config.rate);
        rates.map(|rate| rate.interval()).max().unwrap_or_default()
    }
}

impl Limit {
    fn new(config: &ClientLimit) -> Limit {
        let keys = if config.by == LimitBy::FrontDoor { 1 } else { config.keys };
        let rate = config.rate.map(|rate| KeyedRate::new(rate, keys, Instant::now()));
        Limit { config: config.clone(), rate, open: Arc::default() }
    }

    /// The source that `client` counts as; `None` if this limit counts by a header.
    fn source(&self, client: IpAddr) -> Option<IpAddr> {
        match &self.config.by {
            LimitBy::FrontDoor => Some(Ipv4Addr::UNSPECIFIED.into()),
            LimitBy::Source(mask) => Some(mask.of(client)),
            LimitBy::Header(_) => None,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use equipoise_limits::{Rate, SourceMask};
    use std::num::NonZeroU32;

    fn limit(by: LimitBy, connections: Option<u32>) -> ClientLimit {
        let one = NonZeroU32::MIN;
        let rate = Rate { count: one, per: Duration::from_secs(100), burst: one };
        let connections = connections.and_then(NonZeroU32::new);
        ClientLimit { by, rate: Some(rate), connections, keys: 100 }
    }

    fn ip(text: &str) -> IpAddr {
        text.parse().expect("an address")
    }

    #[test]
    fn each_limit_counts_by_its_own_key() {
        let by_key = limit(LimitBy::Header("x-key".into()), None);
        let limiter = Limiter::new(&[by_key]);
        let head = |key: &str| format!("GET / HTTP/1.1\r\nHost: a\r\nX-Key: {key}\r\n\r\n");
        let ask = |head: &str| limiter.request(ip("192.0.2.1"), head.as_bytes());
        assert_eq!(ask(&head("one")), Ok(()));
        assert_eq!(ask(&head("one")), Err(Reason::RateLimited));
        assert_eq!(ask(&head("two")), Ok(()));
        // Requests without the field are one key.
        assert_eq!(ask("GET / HTTP/1.1\r\nHost: a\r\n\r\n"), Ok(()));
        assert_eq!(
            ask("POST / HTTP/1.1\r\nHost: b\r\nX-Keys: 1\r\n\r\n"),
            Err(Reason::RateLimited)
        );
    }

    #[test]
    fn a_limit_that_stays_keeps_its_counts() {
        let source = limit(LimitBy::Source(SourceMask::default()), Some(1));
        let door = limit(LimitBy::FrontDoor, None);
        let before = Arc::new(Limiter::new(std::slice::from_ref(&source)));
        let entered = before.enter(ip("192.0.2.1")).expect("the first");
        assert_eq!(before.connection(ip("192.0.2.1")), Ok(()));
        assert!(Arc::ptr_eq(&before, &before.update(std::slice::from_ref(&source))));
        let after = before.update(&[door, source]);
        assert!(after.enter(ip("192.0.2.1")).is_none());
        assert!(after.enter(ip("192.0.2.2")).is_some());
        assert_eq!(after.connection(ip("192.0.2.1")), Err(Reason::RateLimited));
        drop(entered);
        assert!(after.enter(ip("192.0.2.1")).is_some());
        assert_eq!(after.retry_after(), Duration::from_secs(100));
    }
}
