//! The scaler with a scripted driver, on a paused clock.
#![allow(clippy::unwrap_used, reason = "a panic is how a test fails")]

use std::collections::{BTreeMap, VecDeque};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use async_trait::async_trait;
use equipoise_driver::{
    Added, Ask, BackendState, Desired, DesiredState, Driver, DriverError, Event, Limits, Listed,
    Scaler, Wish,
};
use tokio::sync::mpsc;
use tokio::time::{Instant, sleep};

const SECOND: Duration = Duration::from_secs(1);

/// Adds in a second, unless it is set to fail. Records the requests.
#[derive(Default)]
struct Scripted {
    asked: Mutex<Vec<String>>,
    failures: Mutex<VecDeque<String>>,
    there: Mutex<BTreeMap<String, Added>>,
    is_local: bool,
    panics: bool,
}

impl Scripted {
    fn asked(&self) -> Vec<String> {
        std::mem::take(&mut self.asked.lock().unwrap())
    }
}

#[async_trait]
impl Driver for Scripted {
    fn outlives_us(&self) -> bool {
        !self.is_local
    }

    async fn add(&self, ask: &Ask) -> Result<Added, DriverError> {
        self.asked.lock().unwrap().push(format!("+{} {}", ask.name, ask.attempt));
        sleep(SECOND).await;
        assert!(!self.panics, "as it was told");
        let failure = self.failures.lock().unwrap().pop_front();
        if let Some(failure) = failure {
            return Err(DriverError::Other(failure));
        }
        let added = Added { address: ([127, 0, 0, 1], 80).into(), id: ask.key.clone() };
        self.there.lock().unwrap().insert(ask.name.clone(), added.clone());
        Ok(added)
    }

    async fn remove(&self, ask: &Ask) -> Result<(), DriverError> {
        self.asked.lock().unwrap().push(format!("-{}", ask.name));
        self.there.lock().unwrap().remove(&ask.name);
        Ok(())
    }

    async fn list(&self) -> Result<Option<Vec<Listed>>, DriverError> {
        Ok(None)
    }
}

struct Stage {
    driver: Arc<Scripted>,
    scaler: Scaler,
    /// The leader's roster.
    desired: Mutex<DesiredState>,
    _events: mpsc::Sender<Event>,
}

/// Starts a scaler with the backends of an earlier process.
async fn stage(driver: Scripted, roster: DesiredState) -> Stage {
    let driver = Arc::new(driver);
    let (events_to, events) = mpsc::channel(8);
    let next_number = roster.next_number.max(1);
    let scaler = Scaler::with_driver(
        "web".to_string(),
        Limits::default(),
        driver.clone(),
        events,
        &roster.backends,
        next_number,
    );
    let scaler = scaler.await.unwrap();
    let desired = DesiredState { next_number, ..roster }.into();
    Stage { driver, scaler, desired, _events: events_to }
}

impl Stage {
    async fn desire(&self, change: impl Fn(&mut DesiredState)) {
        change(&mut self.desired.lock().unwrap());
        let now = self.desired.lock().unwrap().clone();
        self.scaler.desire(now).await.unwrap();
    }

    /// The leader names `count` more backends.
    async fn out(&self, count: u64) {
        let named = |desired: &mut DesiredState| {
            for number in desired.next_number..desired.next_number + count {
                let (name, key) = (format!("web-e{number}"), format!("key-{number}"));
                let (size, wish, added, driver, replaces) = (None, Wish::Serve, None, None, None);
                let outlives = !self.driver.is_local;
                let one = Desired { name, key, size, wish, added, driver, outlives, replaces };
                desired.backends.push(one);
            }
            desired.next_number += count;
        };
        self.desire(named).await;
    }

    async fn wish(&self, names: &[&str], wish: Wish) {
        let are_named = |desired: &mut DesiredState| {
            let named = desired.backends.iter_mut().filter(|it| names.contains(&&*it.name));
            named.for_each(|it| it.wish = wish);
        };
        self.desire(are_named).await;
    }

    /// The leader's roster, updated from the view.
    fn roster(&self) -> DesiredState {
        let mut roster = self.desired.lock().unwrap().clone();
        for made in &self.scaler.view().backends {
            let named = roster.backends.iter_mut().find(|it| it.name == made.name).unwrap();
            named.added =
                made.address.zip(made.id.clone()).map(|(address, id)| Added { address, id });
        }
        roster
    }

    fn states(&self) -> Vec<BackendState> {
        self.scaler.view().backends.iter().map(|one| one.state).collect()
    }
}

#[tokio::test(start_paused = true)]
async fn a_pool_grows_and_shrinks_by_drain() {
    let stage = stage(Scripted::default(), DesiredState::default()).await;
    let mut view = stage.scaler.subscribe();
    stage.out(2).await;
    view.wait_for(|view| view.backends.len() == 2).await.unwrap();
    assert_eq!(stage.states(), [BackendState::Starting; 2]);
    view.wait_for(|view| view.backends.iter().all(|one| one.state == BackendState::Ready))
        .await
        .unwrap();
    stage.wish(&["web-e1"], Wish::Drain).await;
    view.wait_for(|view| view.backends[0].state == BackendState::Draining).await.unwrap();
    sleep(5 * SECOND).await;
    assert_eq!(stage.driver.asked(), ["+web-e1 1", "+web-e2 1"], "it has not drained");
    stage.wish(&["web-e1"], Wish::Leave).await;
    view.wait_for(|view| view.backends.len() == 1).await.unwrap();
    assert_eq!(stage.driver.asked(), ["-web-e1"]);
    stage.scaler.stop().await;
    assert_eq!(stage.driver.there.lock().unwrap().len(), 1, "what outlives us stays");
}

#[tokio::test(start_paused = true)]
async fn a_failed_add_is_retried_with_exponential_backoff() {
    let driver = Scripted::default();
    *driver.failures.lock().unwrap() = (0..3).map(|_| "no room".to_string()).collect();
    let stage = stage(driver, DesiredState::default()).await;
    let began = Instant::now();
    stage.out(1).await;
    let mut view = stage.scaler.subscribe();
    view.wait_for(|view| view.backends.iter().any(|one| one.state == BackendState::Failed))
        .await
        .unwrap();
    let problem = stage.scaler.view().backends[0].problem.clone().unwrap();
    assert!(problem.contains("no room"), "{problem}");
    view.wait_for(|view| view.backends[0].state == BackendState::Ready).await.unwrap();
    // Four attempts of one second, and waits of 1, 2 and 4 seconds.
    let took = began.elapsed();
    assert!(took >= 11 * SECOND && took < 12 * SECOND, "{took:?}");
    assert_eq!(stage.driver.asked(), ["+web-e1 1", "+web-e1 2", "+web-e1 3", "+web-e1 4"]);
}

#[tokio::test(start_paused = true)]
async fn a_panic_of_the_driver_counts_as_a_failed_add() {
    let stage =
        stage(Scripted { panics: true, ..Scripted::default() }, DesiredState::default()).await;
    stage.out(1).await;
    sleep(5 * SECOND).await;
    assert_eq!(stage.states(), [BackendState::Failed]);
}

#[tokio::test(start_paused = true)]
async fn a_restarted_scaler_continues_with_existing_backends() {
    let first = stage(Scripted::default(), DesiredState::default()).await;
    first.out(2).await;
    sleep(5 * SECOND).await;
    first.wish(&["web-e2"], Wish::Drain).await;
    let roster = first.roster();
    first.scaler.stop().await;
    let next = stage(Scripted::default(), roster).await;
    assert_eq!(next.states(), [BackendState::Ready, BackendState::Draining]);
    next.wish(&["web-e2"], Wish::Serve).await;
    next.out(1).await;
    sleep(5 * SECOND).await;
    let names: Vec<_> = next.scaler.view().backends.iter().map(|one| one.name.clone()).collect();
    assert_eq!(names, ["web-e1", "web-e2", "web-e3"], "the second was taken back");
}

#[tokio::test(start_paused = true)]
async fn processes_are_not_adopted_after_restart_and_names_stay_used() {
    let local = || Scripted { is_local: true, ..Scripted::default() };
    let first = stage(local(), DesiredState::default()).await;
    first.out(2).await;
    sleep(5 * SECOND).await;
    let roster = first.roster();
    first.scaler.stop().await;
    let next = stage(local(), roster).await;
    next.out(1).await;
    sleep(5 * SECOND).await;
    assert_eq!(next.scaler.view().backends[0].name, "web-e3");
    next.scaler.stop().await;
    assert_eq!(next.driver.asked(), ["+web-e3 1", "-web-e3"], "it is ended with us");
}

#[tokio::test(start_paused = true)]
async fn a_new_driver_takes_over_and_each_removes_its_own_backends() {
    let stage = stage(Scripted::default(), DesiredState::default()).await;
    stage.out(2).await;
    sleep(2 * SECOND).await;
    assert_eq!(stage.driver.asked(), ["+web-e1 1", "+web-e2 1"]);
    let next = Arc::new(Scripted { is_local: true, ..Scripted::default() });
    next.failures.lock().unwrap().push_back("not yet".to_string());
    stage.scaler.change_driver(next.clone()).await.unwrap();
    stage.out(2).await;
    sleep(Duration::from_millis(1500)).await;
    // One replacement failed, so both old backends still serve.
    assert_eq!(stage.states()[..2], [BackendState::Ready; 2]);
    let outdated = |stage: &Stage| -> Vec<bool> {
        stage.scaler.view().backends.iter().map(|one| one.is_outdated).collect()
    };
    assert_eq!(outdated(&stage), [true, true, false, false]);
    sleep(20 * SECOND).await;
    assert_eq!(stage.states(), [BackendState::Ready; 4]);
    assert_eq!(stage.driver.asked(), [""; 0], "it is asked for nothing new");
    stage.wish(&["web-e1", "web-e2"], Wish::Leave).await;
    sleep(SECOND).await;
    let mut asked = stage.driver.asked();
    asked.sort();
    assert_eq!(asked, ["-web-e1", "-web-e2"]);
    assert_eq!(stage.states(), [BackendState::Ready; 2]);
    assert!(!stage.scaler.view().outlives);
    stage.out(1).await;
    sleep(2 * SECOND).await;
    stage.scaler.stop().await;
    let asked = next.asked();
    assert_eq!(asked.iter().filter(|it| it.starts_with('-')).count(), 3, "{asked:?}");
    assert!(next.there.lock().unwrap().is_empty(), "they end with us");
}
