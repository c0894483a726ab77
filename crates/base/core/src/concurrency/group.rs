use std::time::Duration;

use serde::{Deserialize, Serialize};

use super::window::Passed;
use super::{Learner, Load, Region, Report, Sample};

/// A balancer which has not reported for this long is no longer counted.
const SILENT: Duration = Duration::from_secs(5);
/// A balancer at which nothing finishes goes on alone for this long.
const ALONE: Duration = Duration::from_secs(10);
/// Exchanges for which each balancer may learn alone while requests wait.
const PRESSED: u32 = 3;
/// Seconds from a new limit until the reports show its effect alone: one report out, two back.
const DELAY: f64 = 3.0;

/// One balancer's use of a backend, for the other balancers of its cluster. Sent about once a
/// second.
///
/// Sums count since the balancer began. A balancer which restarts begins at zero again.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct Tally {
    /// Identifies the balancer. The lowest number leads.
    pub balancer: u64,
    /// Requests in flight and waiting, smoothed over about a second.
    pub demand: f64,
    /// Permits taken, without parked requests.
    pub in_flight: u32,
    /// Requests that wait for a permit.
    pub waiting: u32,
    /// Requests that finished.
    pub finished: f64,
    /// Requests that the backend answered.
    pub answers: f64,
    /// Seconds in which these were in flight.
    pub service: f64,
    /// Seconds in which those that were answered or failed were in flight.
    pub measured: f64,
    /// Sum of the squares of these times.
    pub squares: f64,
    /// Seconds for which all that finished had been in flight.
    pub spent: f64,
    /// Requests that failed or timed out.
    pub failed: f64,
    /// Limit of all balancers together if `shared`, or else the one that this balancer has alone.
    /// Zero if a shared one would do harm: nothing finishes, or the backend is so fast that the
    /// limit is far above its knee.
    pub limit: u32,
    /// The balancer has found a knee.
    pub known: bool,
    /// The throughput falls above that knee.
    pub falls: bool,
    /// The balancer takes a share of a common limit.
    pub shared: bool,
}

impl Tally {
    /// Whether every number can be that of a balancer: finite, and not negative.
    pub fn is_sound(&self) -> bool {
        let Tally { demand, finished, answers, service, .. } = *self;
        let Tally { measured, squares, spent, failed, .. } = *self;
        let all = [demand, finished, answers, service, measured, squares, spent, failed];
        all.iter().all(|number| number.is_finite() && *number >= 0.0)
    }

    fn since(&self, before: &Tally) -> Passed {
        // After a restart all sums are lower; that second is lost.
        let restarted = self.finished < before.finished;
        let gained = |now: f64, then: f64| if restarted { 0.0 } else { (now - then).max(0.0) };
        Passed {
            answers: gained(self.answers, before.answers),
            service: gained(self.service, before.service),
            measured: gained(self.measured, before.measured),
            squares: gained(self.squares, before.squares),
            spent: gained(self.spent, before.spent),
            finished: gained(self.finished, before.finished),
            failed: gained(self.failed, before.failed),
            parked: 0.0,
        }
    }
}

/// The learner of one backend which the balancers of a cluster share.
///
/// One balancer, the one with the lowest number, learns from the sums of all and publishes the
/// backend's limit. Each balancer takes the share of it that its demand is of all demand. So every
/// answer counts for the measurement, however many balancers there are, and no two balancers
/// measure against each other.
///
/// Learning together is slow, because reports are a second old. So each balancer begins alone, and
/// they share once one of them has found a knee. One at which nothing finishes goes on alone for a
/// while, and where a limit is no help, none is shared. Without reports it is a plain [`Learner`]:
/// losing the cluster stops nothing.
#[derive(Clone, Debug)]
pub struct SharedLearner {
    id: u64,
    /// Learns while this balancer is alone; counts what passes while it is not.
    own: Learner,
    /// Learns the limit of all balancers together, while this balancer leads.
    all: Learner,
    share: Option<u32>,
    demand: f64,
    last: Load,
    /// Tallies at the last exchange, this balancer's included.
    before: Vec<Tally>,
    /// Time of the last exchange with others.
    exchanged: Duration,
    /// Exchanges in a row at which requests waited and no balancer had found a knee.
    pressed: u32,
    /// Until then no limit is shared.
    alone_until: Duration,
}

impl SharedLearner {
    /// A learner for a backend with a queue in which a request waits for at most `wait`. `id`
    /// identifies this balancer in its cluster.
    pub fn new(wait: Duration, id: u64) -> SharedLearner {
        SharedLearner {
            id,
            own: Learner::new(wait),
            all: Learner::after_delay(wait, DELAY),
            share: None,
            demand: 0.0,
            last: Load::default(),
            before: Vec::new(),
            exchanged: Duration::ZERO,
            pressed: 0,
            alone_until: Duration::ZERO,
        }
    }

    /// Changes the number by which the cluster knows this balancer.
    pub fn identify(&mut self, id: u64) {
        self.id = id;
    }

    /// See [`Learner::set_wait`].
    pub fn set_wait(&mut self, wait: Duration) {
        self.own.set_wait(wait);
        self.all.set_wait(wait);
    }

    /// Requests that this balancer may have in flight now. At least 1.
    pub fn limit(&self) -> u32 {
        match self.share {
            Some(share) => share.saturating_add(self.own.parked()),
            None => self.own.limit(),
        }
    }

    /// See [`Learner::observe`].
    pub fn observe(&mut self, samples: &[Sample]) {
        self.own.observe(samples);
    }

    /// See [`Learner::step`].
    pub fn step(&mut self, load: Load) {
        let seconds = load.now.saturating_sub(self.last.now).as_secs_f64().min(1.0);
        let counted = load.in_flight.saturating_sub(self.own.parked());
        let demand = f64::from(counted) + f64::from(load.waiting);
        self.demand += seconds * (demand - self.demand);
        self.last = load;
        if self.share.is_some() {
            self.own.watch(load);
            if load.now.saturating_sub(self.exchanged) > SILENT {
                self.leave();
            } else if self.own.is_stuck() {
                self.leave();
                self.alone_until = load.now + ALONE;
            }
        } else {
            self.own.step(load);
        }
    }

    /// The learned state. Limit and knee are this balancer's share of them.
    pub fn report(&self) -> Report {
        let own = self.own.report();
        let Some(share) = self.share else { return own };
        let part = f64::from(share) / f64::from(self.all.limit());
        let knee = self.all.report().knee.map(|knee| knee * part);
        let region = Region::of(self.own.in_flight, knee, f64::from(share));
        let group_limit = Some(self.all.limit());
        Report { limit: self.limit(), group_limit, knee, region, ..own }
    }

    /// The figures that the other balancers need.
    pub fn tally(&self) -> Tally {
        let sums = self.own.sums();
        Tally {
            balancer: self.id,
            demand: self.demand,
            in_flight: self.last.in_flight.saturating_sub(self.own.parked()),
            waiting: self.last.waiting,
            finished: sums.finished,
            answers: sums.answers,
            service: sums.service,
            measured: sums.measured,
            squares: sums.squares,
            spent: sums.spent,
            failed: sums.failed,
            limit: match self.share {
                Some(_) => self.all.limit(),
                None if self.is_harmful() => 0,
                None => self.own.limit().saturating_sub(self.own.parked()),
            },
            known: self.own.is_known(),
            falls: self.own.is_known() && self.own.hold.is_narrow(),
            shared: self.share.is_some(),
        }
    }

    /// Takes the newest tally of each other balancer that reported in the last seconds. Call it
    /// about once a second, also without any.
    pub fn exchange(&mut self, now: Duration, others: &[Tally]) {
        if others.is_empty() || now < self.alone_until || self.is_harmful() {
            self.leave();
            return;
        }
        self.exchanged = now;
        let mut tallies: Vec<Tally> = others.to_vec();
        tallies.retain(|one| one.balancer != self.id);
        tallies.push(self.tally());
        tallies.sort_by_key(|one| one.balancer);
        let leader = tallies[0];
        if leader.balancer != self.id {
            if !leader.shared {
                self.leave();
                return;
            }
            if leader.limit != self.all.limit() {
                self.all.adopt(leader.limit);
            }
        } else if self.share.is_none() {
            if !self.found(&tallies) {
                return;
            }
        } else {
            self.lead(now, &tallies);
        }
        let share = share(&tallies, self.id, self.all.limit());
        self.own.note_limit(share);
        self.share = Some(share);
        self.before = tallies;
    }

    /// Begins with the limit that the others share, or searches below the sum of those found alone.
    /// False if there is none yet.
    ///
    /// Each sees what all of them together gain, so that the sum is usually too high. The knee is
    /// rarely above it, and a search from below would pass a limit at which the backend collapses.
    fn found(&mut self, tallies: &[Tally]) -> bool {
        if let Some(other) = tallies.iter().find(|one| one.shared) {
            self.all.adopt(other.limit);
            return true;
        }
        if tallies.iter().any(|one| one.limit == 0) {
            self.pressed = 0;
            return false;
        }
        if tallies.iter().any(|one| one.known) {
            let sum = sum_of_limits(tallies);
            match self.all.is_known() {
                // After an outage the shares have not gone far.
                true => self.all.adopt(sum),
                false => self.all.search_below(sum),
            }
            return true;
        }
        self.is_pressed(tallies)
    }

    /// Begins at a low limit if requests have waited for some time and no balancer has found a
    /// knee. All of them together have then made the backend so slow that a balancer alone gains by
    /// each rise, at the cost of the others.
    fn is_pressed(&mut self, tallies: &[Tally]) -> bool {
        let waits = tallies.iter().any(|one| one.waiting > 0);
        self.pressed = if waits { self.pressed + 1 } else { 0 };
        let is_pressed = self.pressed > PRESSED;
        if is_pressed {
            self.pressed = 0;
            self.all.ascend_from(0);
        }
        is_pressed
    }

    /// A shared limit would do harm here.
    fn is_harmful(&self) -> bool {
        self.share.is_none() && (self.own.gave_way || self.own.is_wide())
    }

    /// Learns from what passed at all balancers since the last exchange.
    fn lead(&mut self, now: Duration, tallies: &[Tally]) {
        for tally in tallies {
            let before = self.before.iter().find(|one| one.balancer == tally.balancer);
            if let Some(before) = before {
                self.all.add(&tally.since(before));
            }
        }
        let in_flight = tallies.iter().map(|one| one.in_flight).sum();
        let waiting = tallies.iter().map(|one| one.waiting).sum();
        // Where requests wait at some balancers alone, the shares bind, and not the limit.
        let has_room = tallies.iter().any(|one| one.waiting == 0 && one.in_flight > 0);
        let binds = self.all.settles() || !has_room;
        self.all.step(Load {
            now,
            in_flight,
            waiting: if binds { waiting } else { 0 },
            oldest_wait: self.last.oldest_wait,
        });
    }

    /// Goes on alone, with the share as the limit.
    fn leave(&mut self) {
        if let Some(share) = self.share.take() {
            self.own.adopt(share);
            self.before.clear();
        }
    }
}

/// The sum of the limits that balancers have found alone.
///
/// If some of them have seen the throughput fall above their limits, the others probably cause it,
/// and their limits count as those of the first at most.
fn sum_of_limits(tallies: &[Tally]) -> u32 {
    let sum: u32 = tallies.iter().map(|one| one.limit).sum();
    let fallen: Vec<u32> = tallies.iter().filter(|one| one.falls).map(|one| one.limit).collect();
    match fallen.len() as u32 {
        0 => sum,
        count => sum.min(fallen.iter().sum::<u32>() * tallies.len() as u32 / count),
    }
}

/// The part of `limit` that a balancer takes: its demand, and an even part of what is left over; or
/// its part of all demand if that exceeds the limit. Rounded so that the parts add up.
fn share(tallies: &[Tally], id: u64, limit: u32) -> u32 {
    let limit = f64::from(limit);
    let demand: f64 = tallies.iter().map(|one| one.demand).sum();
    let part = |one: &Tally| match demand < limit {
        true => one.demand + (limit - demand) / tallies.len() as f64,
        false => limit * one.demand / demand,
    };
    let lower = tallies.iter().filter(|one| one.balancer < id);
    let below: f64 = lower.map(part).sum();
    let own: f64 = tallies.iter().filter(|one| one.balancer == id).map(part).sum();
    (((below + own).round() - below.round()) as u32).max(1)
}
