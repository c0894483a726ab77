use std::time::Duration;

use super::hold::{HEADROOM, Hold};
use super::parked::Parked;
use super::search::FAILING_USUAL;
use super::window::{Passed, Times, Window};
use super::{Load, Region, Report, Sample};

/// Limit before anything was seen.
pub(super) const FIRST: f64 = 4.0;
/// Limit from which on a window has answers enough to see whether the rate grows.
pub(super) const MANY: f64 = 16.0;
/// Largest limit.
const LARGEST: f64 = 1e6;
/// A window ends after this many seconds, if it has [`FEW`] answers.
pub(super) const WINDOW_SECONDS_MAX: f64 = 4.0;
/// A window begins after this many seconds, though more is in flight than the limit.
const SETTLE_SECONDS_MAX: f64 = 8.0;
/// Part of the queue's wait after which a request will probably be refused.
const PART_OF_WAIT: f64 = 0.4;
/// Answers which a window has at least.
pub(super) const FEW: f64 = 8.0;

#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) enum Mode {
    /// Doubles the limit quickly while it is small. `below` was measured at that limit.
    Start { below: Option<(Window, f64)> },
    /// Raises the limit while the rate follows. `below` was measured at that limit.
    Ascend { below: Option<(Window, f64)> },
    /// Halves the limit while the rate does not follow. `above` was measured at twice the limit, to
    /// which the limit was raised blindly if `is_first`.
    Descend { above: Window, is_first: bool },
    /// Measures at the limit from which the search descends.
    Top,
    /// Keeps the limit near the knee.
    Hold,
    /// Measures under the knee.
    Probe,
    /// Measures at the held limit again, to compare it with the probe that was measured at `at`.
    After { probe: Window, at: f64 },
}

/// Learns the limit of one backend from what passes.
///
/// One owner calls [`Self::observe`] and [`Self::step`] every few milliseconds and publishes
/// [`Self::limit`]; permits are counted elsewhere. A call allocates nothing. The module's page
/// describes the algorithm.
#[derive(Clone, Debug)]
pub struct Learner {
    /// Longest wait in the queue, in seconds.
    pub(super) wait: f64,
    pub(super) mode: Mode,
    /// Limit without parked requests.
    pub(super) limit: u32,
    pub(super) window: Window,
    /// The last limit at which requests did not fail, and the rate that was measured there.
    pub(super) sound: Option<(f64, f64)>,
    pub(super) hold: Hold,
    pub(super) last: Load,
    /// Squared coefficient of variation of the service time at one limit.
    pub(super) variation: f64,
    /// Seconds since a request finished or since the limit did not bind.
    pub(super) silent: f64,
    /// Mean seconds between two finished requests while the limit binds.
    pub(super) gap: f64,
    /// The limit rose because nothing finished, and nothing has finished since.
    pub(super) gave_way: bool,
    times: Times,
    passed: Passed,
    /// Requests that passed since the beginning.
    sums: Passed,
    /// Seconds from a change of the limit until its effect is seen.
    pub(super) delay: f64,
    parked: Parked,
    started: bool,
    /// Seconds since the limit bound.
    unbound: f64,
    /// Seconds in flight of all requests together, and how many finished in that time.
    area: f64,
    finished: f64,
    /// The part of `area` since a request last finished.
    area_unfinished: f64,
    /// Share of the last fifty requests that failed or timed out.
    pub(super) failing: f64,
    /// Requests in flight that count, smoothed over about a second.
    pub(super) in_flight: f64,
}

impl Learner {
    /// A learner for a backend with a queue in which a request waits for at most `wait`.
    pub fn new(wait: Duration) -> Learner {
        Learner {
            wait: wait.as_secs_f64(),
            mode: Mode::Start { below: None },
            limit: FIRST as u32,
            window: Window::after(FIRST, 0.0),
            sound: None,
            hold: Hold::default(),
            last: Load::default(),
            variation: 1.0,
            silent: 0.0,
            gap: 0.0,
            gave_way: false,
            times: Times::default(),
            passed: Passed::default(),
            sums: Passed::default(),
            delay: 0.0,
            parked: Parked::default(),
            started: false,
            unbound: 0.0,
            area: 0.0,
            finished: 0.0,
            area_unfinished: 0.0,
            failing: 0.0,
            in_flight: 0.0,
        }
    }

    /// A learner which sees the effect of a limit only after `delay` seconds.
    pub(super) fn after_delay(wait: Duration, delay: f64) -> Learner {
        let mut one = Learner { delay, ..Learner::new(wait) };
        one.ascend_from(0);
        one
    }

    /// Changes how long requests wait in the queue at most.
    pub fn set_wait(&mut self, wait: Duration) {
        self.wait = wait.as_secs_f64();
    }

    /// Requests that may be in flight now. At least 1.
    pub fn limit(&self) -> u32 {
        self.limit.saturating_add(self.parked.count())
    }

    /// The learned state, for people and for schedulers.
    pub fn report(&self) -> Report {
        let known = self.is_known();
        let knee = known.then_some(self.hold.knee);
        Report {
            limit: self.limit(),
            group_limit: None,
            parked: self.parked.count(),
            knee,
            answers_per_second: known.then(|| self.hold.rate()).flatten(),
            service_time: Duration::from_secs_f64(self.mean_time()),
            region: Region::of(self.in_flight, knee, f64::from(self.limit)),
        }
    }

    /// Takes in requests that have finished since the last step, in any order.
    pub fn observe(&mut self, samples: &[Sample]) {
        for sample in samples {
            let seconds = sample.service_time.as_secs_f64();
            if self.parked.finished(sample) {
                self.passed.add_parked(seconds);
                continue;
            }
            self.passed.add(sample.outcome, seconds);
        }
    }

    /// Takes in what passed elsewhere.
    pub(super) fn add(&mut self, passed: &Passed) {
        self.passed.plus(passed);
    }

    /// Requests that passed since the beginning.
    pub(super) fn sums(&self) -> &Passed {
        &self.sums
    }

    /// Learns anew, from this limit on or from the first one if that is higher.
    pub(super) fn ascend_from(&mut self, limit: u32) {
        self.mode = Mode::Ascend { below: None };
        self.set(f64::from(limit).max(MANY));
    }

    /// Learns anew, from this limit down.
    pub(super) fn search_below(&mut self, limit: u32) {
        self.mode = Mode::Top;
        self.set(f64::from(limit));
    }

    /// The effect of the present limit is not seen yet.
    pub(super) fn settles(&self) -> bool {
        self.window.settles()
    }

    /// A knee was found.
    pub(super) fn is_known(&self) -> bool {
        let rises = matches!(self.mode, Mode::Start { .. } | Mode::Ascend { .. } | Mode::Top);
        self.hold.is_found && !rises
    }

    /// The limit is far above the knee, because the backend is fast.
    pub(super) fn is_wide(&self) -> bool {
        self.hold.wide > 0.0
    }

    /// Requests in flight that do not count.
    pub(super) fn parked(&self) -> u32 {
        self.parked.count()
    }

    /// Goes on from a limit that was learned elsewhere.
    pub(super) fn adopt(&mut self, limit: u32) {
        self.sound = None;
        self.hold.found(f64::from(limit) / HEADROOM, 1.0);
        self.hold_from_here();
    }

    /// Notes a limit that holds while this learner only watches.
    pub(super) fn note_limit(&mut self, limit: u32) {
        self.limit = limit;
    }

    /// Adjusts the limit. Call it every few milliseconds, after [`Self::observe`].
    pub fn step(&mut self, load: Load) {
        let now = load.now.as_secs_f64();
        self.watch(load);
        if self.unbound > 0.5f64.max(4.0 * self.mean_time()) + self.delay {
            self.rest();
            return;
        }
        if self.retreats() || self.collapses() {
            return;
        }
        match self.mode {
            Mode::Start { below } => self.start(below),
            Mode::Ascend { below } => self.ascend(below),
            Mode::Descend { above, is_first } => self.descend(above, is_first),
            Mode::Top if self.full() => self.descend_from(f64::from(self.limit), self.window),
            Mode::Top => {}
            Mode::Hold => self.hold(now),
            Mode::Probe => self.probe(),
            Mode::After { probe, at } => self.after(probe, at),
        }
    }

    /// Counts what passed and how much was in flight, without adjusting the limit.
    pub(super) fn watch(&mut self, load: Load) {
        let passed = std::mem::take(&mut self.passed);
        let seconds = match self.started {
            true => load.now.saturating_sub(self.last.now).as_secs_f64(),
            false => 0.0,
        };
        let bound = self.started && self.last.waiting > 0 && load.waiting > 0;
        self.started = true;
        self.last = load;
        self.account(&passed, seconds, bound);
    }

    /// Adds up what passed in the last `seconds`.
    fn account(&mut self, passed: &Passed, seconds: f64, bound: bool) {
        let load = self.last;
        self.sums.plus(passed);
        self.times.add(passed);
        let counted = f64::from(load.in_flight.saturating_sub(self.parked.count()));
        self.area += counted * seconds + passed.parked;
        let unfinished = self.area_unfinished + counted * seconds;
        self.area_unfinished = if passed.finished > 0.0 { 0.0 } else { unfinished };
        if passed.finished > 0.0 {
            let share = passed.failed / passed.finished;
            self.failing += (passed.finished / 50.0).min(1.0) * (share - self.failing);
        }
        self.finished += passed.finished;
        if self.finished > 1000.0 {
            (self.area, self.finished) = (self.area / 2.0, self.finished / 2.0);
        }
        self.in_flight += seconds.min(1.0) * (counted - self.in_flight);
        let age = (20.0 * self.mean_time()).max(self.wait / 2.0);
        // While nothing finishes, nothing is known to take longer than most. With a delay the load
        // is that of several balancers, which leave out what they parked.
        if self.finished >= 1.0 && self.delay == 0.0 {
            self.parked.step(load.now, load.in_flight, Duration::from_secs_f64(age));
        }
        if bound && passed.finished > 0.0 {
            self.gap += 0.1 * ((self.silent + seconds) / passed.finished - self.gap);
        }
        // While requests from a higher limit are in flight, this one neither holds up others nor is
        // it what slows the backend. One that knows nothing yet has lowered no limit: what is in
        // flight took no permit of it, and may never end.
        let is_first = matches!(self.mode, Mode::Start { below: None });
        let is_old = load.in_flight > self.limit() && !is_first;
        let is_silent = bound && !is_old && passed.finished == 0.0;
        self.silent = if is_silent { self.silent + seconds } else { 0.0 };
        self.unbound = if bound { 0.0 } else { self.unbound + seconds };
        let settles = self.window.settles();
        self.window.elapsed += seconds;
        if !is_old {
            self.window.finished += passed.finished;
            self.window.waited += if bound { seconds } else { 0.0 };
        }
        self.window.failed += passed.failed;
        if settles {
            if load.in_flight <= self.limit() {
                self.window.settle -= passed.finished;
            }
            let late = self.window.elapsed > self.delay + 2f64.max(1.5 * self.mean_time());
            let above = load.in_flight > self.limit() && self.window.elapsed < SETTLE_SECONDS_MAX;
            if late && !above {
                (self.window.settle, self.window.settle_seconds) = (0.0, 0.0);
            }
        } else if bound {
            self.window.answers += passed.answers;
            self.window.service += passed.service;
            self.window.squares += passed.squares;
            self.window.spent += passed.spent;
            self.window.area += counted * seconds;
            self.window.seconds += seconds;
        }
        if self.times.count() >= 32.0 && !self.window.settles() {
            // Where requests queue in the backend their times differ little, though its rate is as
            // uneven as before. So a small spread is believed more slowly than a large one.
            let seen = self.times.variation().clamp(0.2, 10.0);
            let weight = 0.3 * (seen / self.variation).min(1.0).powi(2);
            self.variation += weight * (seen - self.variation);
            self.times = Times::default();
        }
    }

    /// Mean seconds in flight, or 0 before anything finished.
    ///
    /// By Little's law, so that requests which have not finished count, too: the first to finish
    /// are the short ones.
    pub(super) fn mean_time(&self) -> f64 {
        if self.finished < 1.0 { 0.0 } else { self.area / self.finished }
    }

    /// Mean seconds in flight until a request last finished.
    ///
    /// While nothing finishes [`Self::mean_time`] grows as fast as time passes. It cannot say then
    /// whether that is unusual.
    pub(super) fn usual_time(&self) -> f64 {
        if self.finished < 1.0 { 0.0 } else { (self.area - self.area_unfinished) / self.finished }
    }

    /// Answers that a window needs before its rate says something.
    pub(super) fn need(&self) -> f64 {
        let noise = match self.mode {
            Mode::Start { .. } | Mode::Ascend { below: None } => 24.0 * self.variation,
            Mode::Ascend { .. } | Mode::Descend { .. } => 32.0 * self.variation,
            _ => 64.0 * self.variation,
        };
        noise.max(f64::from(self.limit)).max(FEW)
    }

    /// The window has seen enough.
    pub(super) fn full(&self) -> bool {
        let late = self.window.seconds >= WINDOW_SECONDS_MAX && self.window.answers >= FEW;
        !self.window.settles() && (self.window.answers >= self.need() || late)
    }

    /// Notes that requests do not fail at the present limit.
    pub(super) fn note_sound(&mut self) {
        if self.window.is_measured() && self.window.failing() < FAILING_USUAL {
            self.sound = Some((f64::from(self.limit), self.window.rate()));
        }
    }

    /// Sets the limit and begins a window once what is in flight has left.
    pub(super) fn set(&mut self, limit: f64) {
        let before = self.limit;
        self.note_sound();
        self.limit = limit.clamp(1.0, LARGEST) as u32;
        self.window = match self.limit == before {
            true => Window::default(),
            false => Window::after(f64::from(self.limit), self.delay),
        };
        self.times = Times::default();
    }

    /// Enough requests wait for a higher limit to make a difference, or one has waited for long.
    pub(super) fn has_backlog(&self) -> bool {
        let is_late = self.last.oldest_wait.as_secs_f64() > PART_OF_WAIT * self.wait;
        2 * self.last.waiting >= self.limit || is_late
    }

    /// Standard deviation of the logarithm of the quotient of two windows' rates.
    pub(super) fn noise(&self, one: &Window, other: &Window) -> f64 {
        (self.variation * (1.0 / one.answers.max(1.0) + 1.0 / other.answers.max(1.0))).sqrt()
    }

    /// How to learn the limit of a backend of which nothing is known.
    pub(super) fn first_mode(&self) -> Mode {
        match self.delay > 0.0 {
            true => Mode::Ascend { below: None },
            false => Mode::Start { below: None },
        }
    }

    /// Nothing waits: nothing can be learned, and nothing moves.
    fn rest(&mut self) {
        match self.mode {
            Mode::Start { .. } => self.window = Window::after(f64::from(self.limit), 0.0),
            Mode::Ascend { .. } | Mode::Top => self.window = Window::default(),
            // Too little was seen at this limit. The one above it gave as much as any, so that the
            // knee is at most that, and not known.
            Mode::Descend { .. } => {
                let is_found = self.hold.is_found;
                self.arrive(2.0 * f64::from(self.limit) / HEADROOM, 1.0);
                self.hold.is_found = is_found;
            }
            // It rarely binds.
            Mode::Hold if self.hold.wide > 0.0 => self.window = Window::default(),
            _ => {
                self.retreats_at_rest();
                self.hold_from_here();
            }
        }
    }
}
