//! The counts of the limits on the clients of a front door or route.

use std::net::{IpAddr, Ipv4Addr};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::time::{Duration, Instant};

use equipoise_limits::{self as limits, KeyedRate, OpenCounts, Rate};

use crate::affinity::fields;
use crate::client_limit::{ClientLimit, LimitBy};
use crate::reason::Reason;

/// The limits of a front door or route, with their counts; all threads share it.
#[derive(Debug, Default)]
pub struct Limiter(Vec<Arc<Limit>>);

#[derive(Debug)]
struct Limit {
    config: ClientLimit,
    rate: Option<KeyedRate>,
    open: Arc<OpenCounts<IpAddr>>,
    /// Events that were counted or refused, if the rate is shared.
    asked: AtomicU64,
}

/// A limit with a rate that the nodes of a cluster share.
#[derive(Clone, Debug)]
pub struct SharedLimit {
    limit: Arc<Limit>,
    place: usize,
}

impl SharedLimit {
    /// Identifies it among the limits of its front door or route, on every node that has it.
    pub fn name(&self) -> String {
        let rate = self.limit.config.rate;
        let (count, per) = rate.map_or((0, Duration::ZERO), |it| (it.count.get(), it.per));
        format!("{} {count}/{}s", self.place, per.as_secs())
    }

    /// The rate of all nodes together, a second.
    pub fn per_second(&self) -> f64 {
        let rate = self.limit.config.rate;
        rate.map_or(f64::MAX, |it| f64::from(it.count.get()) / it.per.as_secs_f64())
    }

    /// Events of this node so far, refused ones included.
    pub fn asked(&self) -> u64 {
        self.limit.asked.load(Relaxed)
    }

    /// Sets the part of the rate that this node admits, 0..=1.
    pub fn set_share(&self, share: f64) {
        if let Some(rate) = &self.limit.rate {
            rate.set_share(share);
        }
    }
}

/// The value by which a limit counts a request or connection.
enum Key<'h> {
    Header(&'h [u8]),
    Source(IpAddr),
}

/// State of a limit for one more request or connection of a client.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LimitState {
    /// Events that it counts together.
    pub by: LimitBy,
    /// The rate, and the time until one more event is within it.
    pub rate: Option<(Rate, Duration)>,
    /// Open connections of this client (route: requests in flight), and the most that it may have.
    pub concurrency: Option<(u32, u32)>,
    /// It is a limit of a route.
    pub is_of_route: bool,
}

impl LimitState {
    /// Whether its concurrency refuses one more connection or request now. The concurrency of all
    /// limits of a limiter is asked before the first of their rates.
    pub fn is_full(&self) -> Option<Reason> {
        let is_full = self.concurrency.is_some_and(|(open, most)| open >= most);
        is_full.then_some(match self.is_of_route {
            true => Reason::ConcurrencyLimited,
            false => Reason::ConnectionsLimited,
        })
    }

    /// Whether its rate refuses one more event now.
    pub fn is_over(&self) -> Option<Reason> {
        let is_over = self.rate.is_some_and(|(_, wait)| !wait.is_zero());
        is_over.then_some(Reason::RateLimited)
    }
}

/// The values by which the limits by a header count a request.
pub(crate) type HeaderKeys = Vec<Box<[u8]>>;

/// A connection or request, counted by each limit of concurrency until this is dropped.
pub(crate) type Entered = Box<[limits::Entered<IpAddr>]>;

/// The limiters that a request asks one after the other, and whether each is of its route. The
/// route's is the first, so that a request which it refuses does not count at the front door.
pub(crate) fn of_request<'l>(
    of_route: Option<&'l Limiter>,
    of_door: &'l Limiter,
) -> impl Iterator<Item = (&'l Limiter, bool)> {
    of_route.map(|it| (it, true)).into_iter().chain([(of_door, false)])
}

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

    /// The limits with a shared rate.
    pub(crate) fn shared(&self) -> impl Iterator<Item = SharedLimit> {
        let limits = self.0.iter().enumerate().filter(|(_, limit)| limit.config.shared);
        limits.map(|(place, limit)| SharedLimit { limit: Arc::clone(limit), place })
    }

    /// Whether there is no limit.
    pub(crate) fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Counts a connection or request of `client`; `None` if it may have no more.
    pub(crate) fn enter(&self, client: IpAddr) -> Option<Entered> {
        let enter = |limit: &Arc<Limit>| {
            let most = limit.config.concurrency?;
            match limit.key(client, &mut [].iter()) {
                Key::Source(source) => Some(limit.open.enter(source, most.get())),
                Key::Header(_) => None,
            }
        };
        self.0.iter().filter_map(enter).collect()
    }

    /// Counts a new TCP connection of `client` in its rate.
    ///
    /// # Errors
    /// [`Reason::RateLimited`].
    pub(crate) fn connection(&self, client: IpAddr) -> Result<(), Reason> {
        self.request(client, &[]).map_err(|_| Reason::RateLimited)
    }

    /// The values by which limits by a header count a request, in their order. `head` is as the
    /// client sent it: a route may remove what counts.
    pub(crate) fn keys(&self, head: &[u8]) -> HeaderKeys {
        let value = |limit: &Arc<Limit>| match &limit.config.by {
            LimitBy::Header(name) => Some(fields(head, name).next().unwrap_or_default().into()),
            LimitBy::All | LimitBy::Source(_) => None,
        };
        self.0.iter().filter_map(value).collect()
    }

    /// Counts a request of `client` in its rate.
    ///
    /// # Errors
    /// It is above a rate: the time until it is within.
    pub(crate) fn request(&self, client: IpAddr, keys: &[Box<[u8]>]) -> Result<(), Duration> {
        if self.0.is_empty() {
            return Ok(());
        }
        let (now, mut keys) = (Instant::now(), keys.iter());
        for limit in &self.0 {
            let key = limit.key(client, &mut keys);
            let Some(rate) = &limit.rate else { continue };
            if limit.config.shared {
                limit.asked.fetch_add(1, Relaxed);
            }
            match key {
                Key::Header(value) => rate.take(value, now)?,
                Key::Source(source) => rate.take(&source, now)?,
            }
        }
        Ok(())
    }

    /// The state of each limit for one more request of `client`. Counts nothing.
    pub(crate) fn states(&self, client: IpAddr, head: &[u8], is_of_route: bool) -> Vec<LimitState> {
        let (now, keys) = (Instant::now(), self.keys(head));
        let mut keys = keys.iter();
        let state = |limit: &Arc<Limit>| {
            let key = limit.key(client, &mut keys);
            let rate = limit.config.rate.zip(limit.rate.as_ref()).map(|(config, rate)| {
                let wait = match key {
                    Key::Header(value) => rate.wait(value, now),
                    Key::Source(source) => rate.wait(&source, now),
                };
                (config, wait)
            });
            let concurrency = limit.config.concurrency.and_then(|most| match key {
                Key::Header(_) => None,
                Key::Source(source) => Some((limit.open.of(&source), most.get())),
            });
            LimitState { by: limit.config.by.clone(), rate, concurrency, is_of_route }
        };
        self.0.iter().map(state).collect()
    }
}

impl Limit {
    fn new(config: &ClientLimit) -> Limit {
        let keys = if config.by == LimitBy::All { 1 } else { config.keys };
        let rate = config.rate.map(|rate| KeyedRate::new(rate, keys, Instant::now()));
        Limit { config: config.clone(), rate, open: Arc::default(), asked: AtomicU64::new(0) }
    }

    /// The value by which it counts this client and request. A limit by a header takes the next of
    /// `keys`.
    fn key<'h>(&self, client: IpAddr, keys: &mut std::slice::Iter<'h, Box<[u8]>>) -> Key<'h> {
        match &self.config.by {
            LimitBy::All => Key::Source(Ipv4Addr::UNSPECIFIED.into()),
            LimitBy::Source(mask) => Key::Source(mask.of(client)),
            LimitBy::Header(_) => Key::Header(keys.next().map_or(b"", |value| value)),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use equipoise_limits::SourceMask;
    use std::num::NonZeroU32;

    fn limit(by: LimitBy, concurrency: Option<u32>) -> ClientLimit {
        let one = NonZeroU32::MIN;
        let rate = Rate { count: one, per: Duration::from_secs(100), burst: one };
        let concurrency = concurrency.and_then(NonZeroU32::new);
        ClientLimit { by, rate: Some(rate), concurrency, keys: 100, shared: false }
    }

    fn ip(text: &str) -> IpAddr {
        text.parse().expect("an address")
    }

    #[test]
    fn each_limit_counts_by_its_own_key() {
        let by_key = limit(LimitBy::Header("x-key".into()), None);
        let limiter = Limiter::new(&[by_key]);
        let head = |key: &str| format!("GET / HTTP/1.1\r\nHost: a\r\nX-Key: {key}\r\n\r\n");
        let ask = |head: &str| {
            let asked = limiter.request(ip("192.0.2.1"), &limiter.keys(head.as_bytes()));
            asked.map_err(|_| Reason::RateLimited)
        };
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
        let door = limit(LimitBy::All, None);
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
        let wait = after.request(ip("192.0.2.1"), &[]).expect_err("it is above both rates");
        assert!((90..=100).contains(&wait.as_secs()), "{wait:?}");
    }
}
