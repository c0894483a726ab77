use std::future::Future;
use std::net::SocketAddr;
use std::time::{Duration, Instant};

use rand::rngs::SmallRng;
use rand::{Rng, RngExt, SeedableRng};
use tokio::sync::{mpsc, watch};
use tokio::task::JoinHandle;
use tokio::time::{Instant as TokioInstant, sleep, sleep_until};

use super::CheckError;
use super::probe::{How, probe};
use crate::named::NamedChecks;
use crate::secure::{CertificateSeen, CheckTls};
use crate::{ActiveHealth, Place};

/// Result of one check of one backend.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CheckReport {
    /// Number of the backend, as passed to [`Checker::start`].
    pub backend: u32,
    /// Time when the check began.
    pub when: Instant,
    /// Duration of the check.
    pub took: Duration,
    /// Result of the check.
    pub result: Result<(), CheckError>,
    /// For a passed check of a backend with a host name: the addresses that checks use, at most one
    /// per family.
    pub addresses: Vec<SocketAddr>,
}

/// Result of one check, see [`CheckReport`].
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Outcome {
    /// [`CheckReport::result`].
    pub result: Result<(), CheckError>,
    /// [`CheckReport::addresses`].
    pub addresses: Vec<SocketAddr>,
}

impl From<Result<(), CheckError>> for Outcome {
    fn from(result: Result<(), CheckError>) -> Outcome {
        Outcome { result, addresses: Vec::new() }
    }
}

/// Schedule of checks of a backend: the first after a short random delay, then one per interval.
/// Each interval varies by up to a tenth, so that a fleet of balancers does not check in step.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Schedule {
    /// Time between the starts of two checks, before jitter.
    pub interval: Duration,
    /// Seed of the jitter.
    pub seed: u64,
}

/// Maximum delay before the first check.
const STAGGER_MAX: Duration = Duration::from_millis(100);

impl Schedule {
    fn stagger(&self, rng: &mut dyn Rng) -> Duration {
        STAGGER_MAX.min(self.interval / 10).mul_f64(rng.random_range(0.0..1.0))
    }

    fn pause(&self, rng: &mut dyn Rng) -> Duration {
        self.interval.mul_f64(rng.random_range(0.9..=1.1))
    }

    /// Runs `check` on this schedule and sends reports until the receiver is dropped.
    ///
    /// If a check takes longer than the interval, the next one starts immediately. `check` must
    /// limit its own duration.
    pub async fn run<F>(
        self,
        backend: u32,
        check: impl Fn() -> F,
        reports: mpsc::Sender<CheckReport>,
    ) where
        F: Future<Output: Into<Outcome>>,
    {
        let mut rng = SmallRng::seed_from_u64(self.seed);
        sleep(self.stagger(&mut rng)).await;
        loop {
            let began = TokioInstant::now();
            let Outcome { result, addresses } = check().await.into();
            let (when, took) = (began.into_std(), began.elapsed());
            let report = CheckReport { backend, when, took, result, addresses };
            if reports.send(report).await.is_err() {
                return;
            }
            sleep_until(began + self.pause(&mut rng)).await;
        }
    }
}

/// A running series of checks of one backend. Dropping it stops the checks.
#[derive(Debug)]
pub struct Checker {
    place: watch::Sender<Place>,
    task: JoinHandle<()>,
}

impl Checker {
    /// Starts checking. Must be called on a tokio runtime with time and I/O enabled. Certificates
    /// that the backend presents are noted in `seen`.
    pub fn start(
        backend: u32,
        address: SocketAddr,
        place: Place,
        health: &ActiveHealth,
        seen: CertificateSeen,
        seed: u64,
        reports: mpsc::Sender<CheckReport>,
    ) -> Checker {
        let schedule = Schedule { interval: health.interval, seed };
        let tls = health.tls.as_ref().map(|tls| CheckTls::new(tls, &place, address.ip(), seen));
        let health = health.clone();
        let (place, newest) = watch::channel(place);
        let task = tokio::spawn(async move {
            let named = NamedChecks::default();
            let check = || {
                let (health, named, place) = (&health, &named, newest.borrow().clone());
                let how = How { tls: tls.as_ref(), preamble: health.preamble };
                async move {
                    if let Place::Host { name, resolved } = &place {
                        return named.check(health, how, name, resolved).await;
                    }
                    let (port, timeout) = (health.port, health.timeout);
                    probe(&health.check, how, address, &place, port, timeout).await.into()
                }
            };
            schedule.run(backend, check, reports).await;
        });
        Checker { place, task }
    }

    /// Changes the place of the backend from the next check on. The current check and the schedule
    /// continue, so that a host name with new addresses at every lookup is checked as often as any
    /// other.
    pub fn follow(&self, place: Place) {
        self.place.send_replace(place);
    }
}

impl Drop for Checker {
    fn drop(&mut self) {
        self.task.abort();
    }
}

#[cfg(test)]
mod tests {
    use tokio::net::TcpListener;

    use super::*;

    const INTERVAL: Duration = Duration::from_secs(2);

    fn schedule(seed: u64) -> Schedule {
        Schedule { interval: INTERVAL, seed }
    }

    /// Start times of the first `count` checks, relative to the schedule's start; each check takes
    /// `takes`.
    async fn times(seed: u64, takes: Duration, count: usize) -> Vec<Duration> {
        let (sender, mut reports) = mpsc::channel(1);
        let start = TokioInstant::now().into_std();
        let check = move || async move {
            sleep(takes).await;
            Ok(())
        };
        let task = tokio::spawn(schedule(seed).run(7, check, sender));
        let mut times = Vec::new();
        while times.len() < count {
            let report = reports.recv().await.unwrap();
            assert_eq!((report.backend, report.took), (7, takes));
            times.push(report.when - start);
        }
        drop(reports);
        task.await.unwrap();
        times
    }

    #[tokio::test(start_paused = true)]
    async fn the_first_check_comes_at_once_and_the_others_an_interval_apart_within_a_tenth() {
        for seed in 0..20 {
            let times = times(seed, Duration::ZERO, 10).await;
            assert!(times[0] <= STAGGER_MAX + Duration::from_millis(1), "{times:?}");
            for pair in times.windows(2) {
                let gap = (pair[1] - pair[0]).as_secs_f64() / INTERVAL.as_secs_f64();
                assert!((0.899..1.102).contains(&gap), "{gap}");
            }
        }
    }

    #[tokio::test(start_paused = true)]
    async fn seeds_give_different_times_and_the_same_seed_the_same() {
        let (one, two) = (times(1, Duration::ZERO, 5).await, times(2, Duration::ZERO, 5).await);
        assert_ne!(one, two);
        assert_eq!(schedule(1).pause(&mut rng(1)), schedule(1).pause(&mut rng(1)));
    }

    fn rng(seed: u64) -> SmallRng {
        SmallRng::seed_from_u64(seed)
    }

    #[tokio::test(start_paused = true)]
    async fn a_check_longer_than_the_interval_is_followed_at_once_by_the_next() {
        let times = times(3, INTERVAL * 2, 4).await;
        for pair in times.windows(2) {
            let gap = pair[1] - pair[0];
            assert!(
                gap >= INTERVAL * 2 && gap < INTERVAL * 2 + Duration::from_millis(5),
                "{gap:?}"
            );
        }
    }

    #[tokio::test]
    async fn a_port_of_its_own_is_checked_at_the_backends_address() {
        let traffic = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = traffic.local_addr().unwrap();
        let checked = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let port = Some(checked.local_addr().unwrap().port());
        let health = ActiveHealth { port, ..ActiveHealth::default() };
        let (sender, mut reports) = mpsc::channel(1);
        let _checker = Checker::start(
            3,
            address,
            Place::Address,
            &health,
            CertificateSeen::default(),
            0,
            sender,
        );
        assert_eq!(reports.recv().await.unwrap().result, Ok(()));
        checked.accept().await.unwrap();
        let unasked = tokio::time::timeout(Duration::ZERO, traffic.accept()).await;
        assert!(unasked.is_err(), "{unasked:?}");
    }

    #[tokio::test]
    async fn a_dropped_checker_stops_asking() {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        let (sender, mut reports) = mpsc::channel(1);
        let (health, seen) = (ActiveHealth::default(), CertificateSeen::default());
        let checker = Checker::start(3, address, Place::Address, &health, seen, 0, sender);
        assert_eq!(reports.recv().await.unwrap().result, Ok(()));
        drop(checker);
        assert_eq!(reports.recv().await, None);
    }
}
