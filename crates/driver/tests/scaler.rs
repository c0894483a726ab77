//! The scaler with a scripted driver, on a paused clock.
#![allow(clippy::unwrap_used, reason = "a panic is how a test fails")]

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use async_trait::async_trait;
use equipoise_driver::{
    Added, Ask, BackendState, Desired, DesiredState, Driver, DriverError, Event, Limits, Listed,
    Record, RecordKeeper, Recorded, RecordedState, Scaler, Wish,
};
use tokio::sync::mpsc;
use tokio::time::{Instant, sleep};

const SECOND: Duration = Duration::from_secs(1);

/// Adds in a second, unless it is told to fail; remembers what it was asked.
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

#[derive(Default)]
struct Memory {
    kept: Mutex<Vec<Record>>,
    is_full: Mutex<bool>,
}

#[async_trait]
impl RecordKeeper for Memory {
    async fn keep(&self, record: &Record) -> Result<(), String> {
        if *self.is_full.lock().unwrap() {
            return Err("the disk is full".to_string());
        }
        self.kept.lock().unwrap().push(record.clone());
        Ok(())
    }
}

struct Stage {
    driver: Arc<Scripted>,
    keeper: Arc<Memory>,
    scaler: Scaler,
    /// The leader's roster.
    desired: Mutex<DesiredState>,
    _events: mpsc::Sender<Event>,
}

async fn stage(driver: Scripted, record: Option<Record>) -> Stage {
    let (driver, keeper) = (Arc::new(driver), Arc::new(Memory::default()));
    let (events_to, events) = mpsc::channel(8);
    let named = record.iter().flat_map(|record| &record.backends);
    let desired = |it: &Recorded| Desired {
        name: it.name.clone(),
        key: it.key.clone(),
        size: None,
        wish: if it.state == RecordedState::Draining { Wish::Drain } else { Wish::Serve },
        added: it.address.zip(it.id.clone()).map(|(address, id)| Added { address, id }),
    };
    let backends = named.map(desired).collect();
    let next_number = record.as_ref().map_or(1, |record| record.next_number);
    let kept = BTreeSet::new();
    let desired = DesiredState { backends, kept, next_number, is_shared: false }.into();
    let limits = Limits::default();
    let scaler = Scaler::with_driver(
        "web".to_string(),
        limits,
        driver.clone(),
        events,
        record,
        Some(keeper.clone()),
    );
    let scaler = scaler.await.unwrap();
    Stage { driver, keeper, scaler, desired, _events: events_to }
}

impl Stage {
    async fn desire(&self, change: impl Fn(&mut DesiredState)) {
        change(&mut self.desired.lock().unwrap());
        let now = self.desired.lock().unwrap().clone();
        self.scaler.desire(now).await.unwrap();
    }

    /// The leader names so many more.
    async fn out(&self, count: u64) {
        let named = |desired: &mut DesiredState| {
            for number in desired.next_number..desired.next_number + count {
                let (name, key) = (format!("web-e{number}"), format!("key-{number}"));
                let (size, wish, added) = (None, Wish::Serve, None);
                desired.backends.push(Desired { name, key, size, wish, added });
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

    fn states(&self) -> Vec<BackendState> {
        self.scaler.view().backends.iter().map(|one| one.state).collect()
    }
}

#[tokio::test(start_paused = true)]
async fn a_pool_grows_and_shrinks_by_drain() {
    let stage = stage(Scripted::default(), None).await;
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
async fn what_is_added_is_written_down_before() {
    let stage = stage(Scripted::default(), None).await;
    stage.out(1).await;
    sleep(SECOND / 2).await;
    assert_eq!(stage.driver.asked().len(), 1);
    let last = stage.keeper.kept.lock().unwrap().last().cloned().unwrap();
    assert_eq!((last.backends[0].state, last.next_number), (RecordedState::Adding, 2));
}

#[tokio::test(start_paused = true)]
async fn nothing_is_added_while_the_record_cannot_be_kept() {
    let stage = stage(Scripted::default(), None).await;
    *stage.keeper.is_full.lock().unwrap() = true;
    stage.out(1).await;
    sleep(10 * SECOND).await;
    assert_eq!(stage.driver.asked(), [""; 0]);
    let view = stage.scaler.view();
    assert_eq!(view.record_problem.as_deref(), Some("the disk is full"));
    *stage.keeper.is_full.lock().unwrap() = false;
    sleep(70 * SECOND).await;
    assert_eq!(stage.states(), [BackendState::Ready]);
    assert_eq!(stage.scaler.view().record_problem, None);
}

#[tokio::test(start_paused = true)]
async fn what_fails_is_tried_again_later_and_later() {
    let driver = Scripted::default();
    *driver.failures.lock().unwrap() = (0..3).map(|_| "no room".to_string()).collect();
    let stage = stage(driver, None).await;
    let began = Instant::now();
    stage.out(1).await;
    let mut view = stage.scaler.subscribe();
    view.wait_for(|view| view.backends.iter().any(|one| one.state == BackendState::Failed))
        .await
        .unwrap();
    let problem = stage.scaler.view().backends[0].problem.clone().unwrap();
    assert!(problem.contains("no room"), "{problem}");
    view.wait_for(|view| view.backends[0].state == BackendState::Ready).await.unwrap();
    // Four tries of a second, and waits of 1, 2 and 4 seconds.
    let took = began.elapsed();
    assert!(took >= 11 * SECOND && took < 12 * SECOND, "{took:?}");
    assert_eq!(stage.driver.asked(), ["+web-e1 1", "+web-e1 2", "+web-e1 3", "+web-e1 4"]);
}

#[tokio::test(start_paused = true)]
async fn a_driver_that_panics_is_a_failure_and_no_more() {
    let stage = stage(Scripted { panics: true, ..Scripted::default() }, None).await;
    stage.out(1).await;
    sleep(5 * SECOND).await;
    assert_eq!(stage.states(), [BackendState::Failed]);
}

#[tokio::test(start_paused = true)]
async fn the_next_process_goes_on_with_what_there_is() {
    let first = stage(Scripted::default(), None).await;
    first.out(2).await;
    sleep(5 * SECOND).await;
    first.wish(&["web-e2"], Wish::Drain).await;
    first.scaler.stop().await;
    let record = first.keeper.kept.lock().unwrap().last().cloned().unwrap();
    let next = stage(Scripted::default(), Some(record)).await;
    assert_eq!(next.states(), [BackendState::Ready, BackendState::Draining]);
    next.wish(&["web-e2"], Wish::Serve).await;
    next.out(1).await;
    sleep(5 * SECOND).await;
    let names: Vec<_> = next.scaler.view().backends.iter().map(|one| one.name.clone()).collect();
    assert_eq!(names, ["web-e1", "web-e2", "web-e3"], "the second was taken back");
}

#[tokio::test(start_paused = true)]
async fn what_dies_with_us_is_not_adopted_and_its_names_stay_used() {
    let first = stage(Scripted::default(), None).await;
    first.out(2).await;
    sleep(5 * SECOND).await;
    first.scaler.stop().await;
    let record = first.keeper.kept.lock().unwrap().last().cloned().unwrap();
    let next = stage(Scripted { is_local: true, ..Scripted::default() }, Some(record)).await;
    next.out(1).await;
    sleep(5 * SECOND).await;
    assert_eq!(next.scaler.view().backends[0].name, "web-e3");
    next.scaler.stop().await;
    assert_eq!(next.driver.asked(), ["+web-e3 1", "-web-e3"], "it is ended with us");
}

#[tokio::test(start_paused = true)]
async fn another_pools_record_is_refused() {
    let scaler = Scaler::with_driver(
        "web".to_string(),
        Limits::default(),
        Arc::new(Scripted::default()),
        mpsc::channel(1).1,
        Some(Record::empty("db")),
        None,
    );
    let refused = scaler.await.err().unwrap().to_string();
    assert_eq!(refused, "the record is of pool db, and this is pool web");
}

#[tokio::test(start_paused = true)]
async fn removing_all_leaves_nothing() {
    let stage = stage(Scripted::default(), None).await;
    stage.out(3).await;
    sleep(SECOND / 2).await;
    let (driver, keeper) = (stage.driver.clone(), stage.keeper.clone());
    stage.scaler.remove_all().await;
    assert!(driver.there.lock().unwrap().is_empty());
    assert!(keeper.kept.lock().unwrap().last().unwrap().backends.is_empty());
}

#[tokio::test(start_paused = true)]
async fn another_driver_takes_over_one_by_one_and_each_takes_away_its_own() {
    let stage = stage(Scripted::default(), None).await;
    stage.out(2).await;
    sleep(2 * SECOND).await;
    assert_eq!(stage.driver.asked(), ["+web-e1 1", "+web-e2 1"]);
    let next = Arc::new(Scripted { is_local: true, ..Scripted::default() });
    next.failures.lock().unwrap().push_back("not yet".to_string());
    stage.scaler.change_driver(next.clone()).await.unwrap();
    stage.out(2).await;
    sleep(Duration::from_millis(1500)).await;
    // One failed: both old ones serve on.
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
    assert!(!stage.scaler.outlives_us());
    stage.out(1).await;
    sleep(2 * SECOND).await;
    stage.scaler.stop().await;
    let asked = next.asked();
    assert_eq!(asked.iter().filter(|it| it.starts_with('-')).count(), 3, "{asked:?}");
    assert!(next.there.lock().unwrap().is_empty(), "they end with us");
}

#[tokio::test(start_paused = true)]
async fn without_a_leader_it_makes_more_under_names_that_come_after_all_others() {
    let stage = stage(Scripted::default(), None).await;
    stage.out(2).await;
    sleep(2 * SECOND).await;
    stage.scaler.make(vec![None, None]).await.unwrap();
    sleep(2 * SECOND).await;
    assert_eq!(stage.states(), [BackendState::Ready; 4]);
    // A leader whose roster has not named them takes none away.
    let forgotten = ["web-e3", "web-e4"].map(str::to_string);
    stage.desire(|desired| desired.kept = forgotten.clone().into()).await;
    sleep(2 * SECOND).await;
    assert_eq!(stage.scaler.view().next_number, 5);
    let names = ["+web-e1 1", "+web-e2 1", "+web-e3 1", "+web-e4 1"];
    assert_eq!(stage.driver.asked(), names);
}
