use super::memory::{Connection, Network};
use super::*;
use crate::config::{Config, Order};
use crate::controller::{self, Controller, Stored};
use crate::ids::{Incarnation, Term, WorkerId};

/// A cluster without a network: two workers, a controller, and the executed items.
struct Cluster {
    network: Network<u64>,
    controller: Controller<u64>,
    stored: Stored,
    drivers: Vec<Driver<u64, Connection<u64>>>,
    now: Duration,
    executed: Vec<(u64, WorkerId)>,
    states: BTreeMap<(SliceId, WorkerId), u64>,
    published: u64,
}

impl Cluster {
    fn new(order: Order) -> Self {
        let recovery = Duration::from_millis(5);
        let config = Config { order, recovery, ..Config::default() };
        let network = Network::default();
        let driver = |worker| {
            let incarnation = Incarnation { worker: WorkerId(worker), number: 1 };
            let worker = Worker::new(incarnation, config.clone()).with_slices(4);
            Driver::new(worker, network.connect(incarnation.worker))
        };
        let stored = Stored::default();
        Self {
            drivers: vec![driver(1), driver(2)],
            controller: Controller::new(Duration::ZERO, Term(1), config, 4, &stored),
            network,
            stored,
            now: Duration::ZERO,
            executed: Vec::new(),
            states: BTreeMap::new(),
            published: 0,
        }
    }

    fn publish(&mut self) {
        self.published += 1;
        let slice = SliceId(u32::try_from(self.published % 4).unwrap());
        let writer = Writer { group: Group::of(slice), id: 7 };
        let (position, payload) = (self.published, self.published);
        let key = u64::from(slice.0);
        self.network.publish(&Item { key, slice, writer, position, again: false, payload });
    }

    /// Publishes an item as a publisher with 16 keys that does not know groups.
    fn publish_key(&mut self) {
        self.published += 1;
        let (key, slice) = (self.published % 16, SliceId(0));
        let writer = Writer { group: Group::BASE, id: 9 };
        let (position, payload) = (self.published, self.published);
        self.network.publish(&Item { key, slice, writer, position, again: false, payload });
    }

    /// A millisecond, in which each worker does at most `tasks`.
    fn pass(&mut self, tasks: usize) {
        self.now += Duration::from_millis(1);
        for driver in &mut self.drivers {
            driver.step(self.now).unwrap();
            let id = driver.worker().incarnation().worker;
            for _ in 0..tasks {
                let Some(started) = driver.start(self.now) else { break };
                match &started.task {
                    Task::Snapshot { .. } => {
                        driver.exported(self.now, &started, None).unwrap();
                    }
                    Task::Execute(item) => {
                        self.executed.push((item.payload, id));
                        *self.states.entry((item.slice, id)).or_insert(0) += 1;
                        driver.finished(self.now, &started).unwrap();
                    }
                    Task::Import { slice, state } => {
                        let state = state.clone().unwrap();
                        let count = u64::from_le_bytes(state.try_into().unwrap());
                        self.states.insert((*slice, id), count);
                        driver.finished(self.now, &started).unwrap();
                    }
                    Task::Export { slice, .. } => {
                        let count = self.states.remove(&(*slice, id)).unwrap_or(0);
                        let state = Some(count.to_le_bytes().to_vec());
                        driver.exported(self.now, &started, state).unwrap();
                    }
                }
            }
        }
        while let Some(envelope) = self.network.for_controller() {
            self.controller.message(self.now, envelope);
        }
        self.controller.tick(self.now);
        while let Some(output) = self.controller.poll() {
            match output {
                controller::Output::Record(record) | controller::Output::Note(record) => {
                    self.stored.apply(&record);
                }
                controller::Output::Send(envelope) => self.network.send(&envelope),
            }
        }
    }

    fn pass_until(&mut self, done: impl Fn(&Self) -> bool) {
        for _ in 0..3000 {
            if done(self) {
                return;
            }
            self.pass(8);
        }
        panic!("not done: {:?}, {:?}", self.controller.handovers(), self.executed);
    }

    fn owner(&self, slice: u32) -> Option<WorkerId> {
        self.controller.table()[&SliceId(slice)].owner.map(|incarnation| incarnation.worker)
    }

    fn ready(order: Order) -> Self {
        let mut cluster = Self::new(order);
        let owned = |c: &Self| (0..4).all(|s| c.owner(s).is_some() && c.is_idle());
        cluster.pass_until(|c| owned(c) && c.controller.members().count() == 2);
        cluster
    }

    fn is_idle(&self) -> bool {
        self.controller.handovers().is_empty()
    }
}

#[test]
fn slices_move_back_and_forth_under_load_and_every_item_is_done_once() {
    for order in [Order::Free, Order::Strict, Order::Stateful] {
        let mut cluster = Cluster::ready(order);
        for round in 0..40u32 {
            let slice = round % 4;
            let other = if cluster.owner(slice) == Some(WorkerId(1)) { 2 } else { 1 };
            // More than a worker does in a millisecond, so that there are queues at the cut.
            for _ in 0..30 {
                cluster.publish();
            }
            let (slices, target) = ([SliceId(slice)], WorkerId(other));
            cluster.controller.move_slices(cluster.now, &slices, target).unwrap();
            for _ in 0..6 {
                cluster.publish();
                cluster.pass(2);
            }
            cluster.pass_until(Cluster::is_idle);
            assert_eq!(cluster.owner(slice), Some(WorkerId(other)), "{order:?}, round {round}");
        }
        let published = cluster.published;
        cluster.pass_until(|c| c.executed.len() as u64 >= published);
        let mut executed: Vec<_> = cluster.executed.iter().map(|(item, _)| *item).collect();
        if order.is_strict() {
            for slice in 0..4 {
                let of_slice = executed.iter().filter(|item| *item % 4 == slice);
                assert!(of_slice.is_sorted(), "{order:?}: slice {slice} is out of order");
            }
        }
        executed.sort_unstable();
        assert_eq!(executed, (1..=published).collect::<Vec<_>>(), "{order:?}");
        if order == Order::Stateful {
            assert_eq!(cluster.states.values().sum::<u64>(), published);
            assert_eq!(cluster.states.len(), 4, "a state is where its slice is, and nowhere else");
        }
    }
}

#[test]
fn a_slow_slice_does_not_delay_other_slices() {
    let mut cluster = Cluster::ready(Order::Free);
    for _ in 0..40 {
        cluster.publish();
    }
    cluster.now += Duration::from_millis(1);
    for driver in &mut cluster.drivers {
        driver.step(cluster.now).unwrap();
        // One task starts and never ends; tasks of other slices can be done.
        let Some(stuck) = driver.start(cluster.now) else { continue };
        let of = |started: &Started<u64>| match &started.task {
            Task::Execute(item) => item.slice,
            other => panic!("{other:?}"),
        };
        let mut done = 0;
        while let Some(started) = driver.start(cluster.now) {
            assert_ne!(of(&started), of(&stuck));
            driver.finished(cluster.now, &started).unwrap();
            done += 1;
        }
        assert_eq!(driver.queued(), 9, "the rest of the stuck slice");
        assert_eq!(done % 10, 0);
    }
}

#[test]
fn a_fenced_worker_starts_nothing_until_its_lease_is_renewed() {
    let mut cluster = Cluster::ready(Order::Free);
    cluster.publish();
    let now = cluster.now;
    for driver in &mut cluster.drivers {
        driver.step(now).unwrap();
        let until = driver.worker().lease_until();
        assert!(driver.start(until).is_none(), "not even without a tick");
        assert!(until > now);
    }
    // No answer arrives: all fence themselves.
    for driver in &mut cluster.drivers {
        driver.step(now + Config::default().lease).unwrap();
        assert!(driver.worker().is_fenced());
        assert!(driver.start(now).is_none());
    }
    cluster.now += Config::default().lease;
    // The controller has not given them up yet, so they go on with their slices.
    cluster.pass_until(|c| c.executed.len() == 1);
}

#[test]
fn slices_are_split_and_joined_in_place_with_their_queued_items() {
    for order in [Order::Free, Order::Strict] {
        let mut cluster = Cluster::ready(order);
        for slices in [8, 16, 8, 4, 2, 1, 2] {
            cluster.controller.resize(slices).unwrap();
            let done = |c: &Cluster| {
                c.controller.resizing().is_none() && c.controller.numbering().slices == slices
            };
            let target = |c: &Cluster| if c.owner(0) == Some(WorkerId(1)) { 2 } else { 1 };
            for _ in 0..3000 {
                // More than a worker does in a millisecond, so that there are queues.
                (0..3).for_each(|_| cluster.publish_key());
                cluster.pass(1);
                if done(&cluster) {
                    break;
                }
            }
            assert!(done(&cluster), "{order:?}: {slices}: {:?}", cluster.controller.resizing());
            assert_eq!(cluster.controller.table().len(), slices as usize);
            // One half may move alone, too.
            let target = WorkerId(target(&cluster));
            cluster.controller.move_slices(cluster.now, &[SliceId(0)], target).unwrap();
            cluster.pass_until(Cluster::is_idle);
            assert_eq!(cluster.owner(0), Some(target));
        }
        let published = cluster.published;
        cluster.pass_until(|c| c.executed.len() as u64 >= published);
        let mut executed: Vec<_> = cluster.executed.iter().map(|(item, _)| *item).collect();
        for key in 0..16 {
            let of_key = executed.iter().filter(|item| *item % 16 == key);
            assert!(!order.is_strict() || of_key.is_sorted(), "key {key} is out of order");
        }
        executed.sort_unstable();
        assert_eq!(executed, (1..=published).collect::<Vec<_>>(), "{order:?}");
        assert!(cluster.drivers.iter().all(|it| it.worker().numbering().slices == 2));
    }
    let mut cluster = Cluster::ready(Order::Stateful);
    assert_eq!(cluster.controller.resize(8), Err(controller::ResizeRefused::Stateful));
}
