use super::learner::{FIRST, Learner, Mode};
use super::search::FAILING;
use super::window::Window;

/// Highest and lowest of the held limits over the knee.
pub(super) const HEADROOM: f64 = 1.3;
pub(super) const HEADROOM_MIN: f64 = 1.08;
const HEADROOM_MAX: f64 = 1.5;
/// Ratio of the upper arm to the high arm; and while the knee is still moving.
const UP: f64 = 1.5;
const UP_MOVING: f64 = 2.0;
/// Spread of a knee that has just moved.
const MOVING: f64 = 0.3;
/// Limit of a probe over the knee.
const PROBE: f64 = 0.75;
/// Factor of the knee when requests begin to fail.
const RETREAT: f64 = 0.8;
/// Slots of a cycle.
const SLOTS: u32 = 8;
/// Unexplained drift of the knee between two probes (logarithm).
const DRIFT: f64 = 0.035;
/// Standard deviations from which on an estimate replaces the known knee.
const SURPRISE: f64 = 2.0;

/// Requests that a backend finishes within so many seconds may be in flight in any case, as long as
/// its rate does not suffer: a queue of ours costs more than such a wait.
const UNIMPORTANT: f64 = 0.002;

/// Limits at which a held knee is measured. The low and the high arm lie around the best limit.
const HIGH: usize = 1;
pub(super) const UPPER: usize = 2;

/// A knee, and what was measured around it.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct Hold {
    /// Number in flight from which the rate stops growing.
    pub(super) knee: f64,
    /// The knee was found, and is no default.
    pub(super) is_found: bool,
    /// Standard deviation of the knee's logarithm.
    spread: f64,
    /// Highest held limit over the knee.
    headroom: f64,
    arms: [Window; 3],
    pub(super) arm: usize,
    /// The rate falls above the held limits.
    up_hurts: bool,
    /// Lowest limit above the held ones at which the rate collapsed.
    pub(super) ceiling: f64,
    /// A limit far above the knee, which does no harm: see [`UNIMPORTANT`]. 0 if there is none.
    pub(super) wide: f64,
    /// A wide limit did harm.
    is_wide_bad: bool,
    /// Seconds of a cycle of one measurement above and at most one below; a power of four.
    period: f64,
    /// Slots since the epoch.
    slot: u64,
}

impl Default for Hold {
    fn default() -> Hold {
        Hold {
            knee: FIRST,
            is_found: false,
            spread: 1.0,
            headroom: HEADROOM,
            arms: [Window::default(); 3],
            arm: HIGH,
            up_hurts: false,
            ceiling: f64::INFINITY,
            wide: 0.0,
            is_wide_bad: false,
            period: 1.0,
            slot: 0,
        }
    }
}

impl Hold {
    pub(super) fn found(&mut self, knee: f64, spread: f64) {
        self.knee = knee.max(1.0);
        self.is_found = true;
        self.spread = spread.max(0.1);
        self.headroom = HEADROOM;
        self.up_hurts = false;
        self.ceiling = f64::INFINITY;
        (self.wide, self.is_wide_bad) = (0.0, false);
    }

    /// Holds close to the knee: the rate falls above it.
    pub(super) fn narrow(&mut self) {
        self.headroom = HEADROOM_MIN;
    }

    /// The rate falls above the knee.
    pub(super) fn is_narrow(&self) -> bool {
        self.headroom < 1.2
    }

    /// Answers a second at the held limit.
    pub(super) fn rate(&self) -> Option<f64> {
        let [low, high, _] = &self.arms;
        let all = low.plus(high);
        (all.answers > 0.0).then(|| all.rate())
    }

    /// The limits of the arms.
    fn limits(&self) -> [f64; 3] {
        // A wide pair is rounded up, to keep off the knee. A narrow one is where more would hurt.
        let less = if self.is_narrow() { 0.5 } else { 0.25 };
        let whole = |limit: f64| (limit - less).ceil().max(1.0);
        // An estimate of the knee is noisy. That the rate collapsed at a limit is certain.
        let below = |limit: f64| limit.min(self.ceiling - 1.0).max(1.0);
        let high = below(whole(self.knee * self.headroom));
        let up = if self.spread >= MOVING { UP_MOVING } else { UP };
        let up = up.min((self.ceiling / high).sqrt());
        let upper = (up * high).floor().max(high + 1.0);
        [below(whole(self.knee * self.headroom.powf(0.3))), high, upper]
    }

    /// Nothing was measured yet at the present limit.
    pub(super) fn is_new(&self) -> bool {
        self.arms[self.arm].answers == 0.0
    }

    /// Cycles from one measurement above the held limits to the next.
    fn cycles_between_ups(&self) -> u64 {
        let [_, _, upper] = self.limits();
        match upper >= self.ceiling {
            true => 16,
            false if self.up_hurts => 4,
            false => 1,
        }
    }

    /// Chooses the cycle by the length of a window. Powers of four, so that all balancers mostly
    /// agree.
    fn pace(&mut self, seconds: f64) {
        let wanted = 4.0 * seconds;
        if wanted > self.period || wanted < 0.15 * self.period {
            self.period = (wanted.log2() / 2.0).ceil().clamp(-2.0, 3.0).exp2().powi(2);
        }
    }
}

impl Learner {
    /// Plays an arm.
    pub(super) fn play(&mut self, arm: usize) {
        self.hold.arm = arm;
        self.set(self.hold.limits()[arm]);
    }

    /// Goes on at the held limit; what was measured at other limits is dropped.
    pub(super) fn hold_from_here(&mut self) {
        self.mode = Mode::Hold;
        self.hold.arms = [Window::default(); 3];
        self.play(HIGH);
    }

    /// How much the rate grows from one arm to another (logarithm), and the noise of that.
    fn gain(&self, from: usize, to: usize) -> Option<(f64, f64)> {
        let (from, to) = (&self.hold.arms[from], &self.hold.arms[to]);
        let known = from.answers > 0.0 && to.answers > 0.0;
        known.then(|| ((to.rate() / from.rate()).ln(), self.noise(from, to)))
    }

    /// The low arm if it is known to be better, or the high one.
    pub(super) fn best(&self) -> usize {
        let falls =
            self.gain(0, HIGH).is_some_and(|(gain, noise)| gain < -0.02 && gain < -1.5 * noise);
        usize::from(!falls)
    }

    pub(super) fn hold(&mut self, now: f64) {
        let is_fresh = self.hold.arms.iter().all(|arm| arm.answers == 0.0);
        if is_fresh && self.window.finished == 0.0 && self.gives_way() {
            return;
        }
        if self.hold.wide > 0.0 {
            self.hold_wide();
            return;
        }
        if self.turns(now) || !self.full() {
            return;
        }
        if self.hold.arm == UPPER {
            // Old measurements would hide that the backend has grown.
            if f64::from(self.limit) >= self.hold.ceiling {
                self.hold.ceiling = f64::INFINITY;
            }
            let little = 0.5 * self.need();
            self.hold.arms[UPPER].shrink(little);
            self.keep();
            self.compare_up();
            return;
        }
        self.hold.pace(self.window.elapsed);
        if self.has_changed() {
            let window = self.window;
            self.hold.arms = [Window::default(); 3];
            self.hold.spread = 1.0;
            self.hold.arms[self.hold.arm] = window;
        } else {
            self.keep();
            self.adapt_headroom();
        }
        self.play(self.best());
        self.widen();
    }

    /// Takes a wide limit if the backend is so fast that it does no harm.
    fn widen(&mut self) {
        let hold = &self.hold;
        if hold.arms[hold.arm].answers == 0.0 {
            return;
        }
        let falls = hold.is_wide_bad || hold.up_hurts || hold.ceiling.is_finite();
        let wide = hold.rate().map_or(0.0, |rate| (UNIMPORTANT * rate).floor());
        if !falls && self.delay == 0.0 && wide > hold.limits()[UPPER] {
            self.hold.wide = wide;
            self.hold.arms[UPPER] = Window::default();
            self.set(wide);
        }
    }

    /// Keeps a wide limit while the rate does not suffer, in proportion to the rate.
    fn hold_wide(&mut self) {
        let known = self.hold.arms[self.hold.arm];
        if self.window.collapsed(known.rate(), self.variation) {
            self.narrow_again();
        } else if self.full() {
            let most = 8.0 * self.need();
            let mut all = self.hold.arms[UPPER].plus(&self.window);
            all.shrink(most);
            self.hold.arms[UPPER] = all;
            let noise = self.noise(&all, &known);
            let suffers = (all.rate() / known.rate()).ln() < -(0.03 + 2.0 * noise);
            let wide = (UNIMPORTANT * all.rate()).floor();
            let [_, high, _] = self.hold.limits();
            if suffers || wide <= high {
                self.narrow_again();
            } else {
                let moved = (wide / self.hold.wide).ln().abs() > 0.2;
                self.hold.wide = if moved { wide } else { self.hold.wide };
                self.set(self.hold.wide);
            }
        }
    }

    /// Gives a wide limit up, and measures anew.
    fn narrow_again(&mut self) {
        (self.hold.wide, self.hold.is_wide_bad) = (0.0, true);
        self.hold.spread = 1.0;
        self.hold_from_here();
    }

    /// Begins what the clock asks for: a measurement above, one below, or one at the other held
    /// limit.
    ///
    /// All balancers before a backend do so at the same time. Each of them then sees what all of
    /// them together gain or lose. One that went up alone would gain at the cost of the others, and
    /// so would each in its turn.
    fn turns(&mut self, now: f64) -> bool {
        let slot = (f64::from(SLOTS) * now / self.hold.period) as u64;
        let best = self.best();
        if slot == self.hold.slot || self.hold.arm == UPPER || self.hold.arms[best].answers == 0.0 {
            return false;
        }
        self.hold.slot = slot;
        let cycle = slot / u64::from(SLOTS);
        self.hold.is_wide_bad &= !cycle.is_multiple_of(64);
        match slot % u64::from(SLOTS) {
            0 if cycle.is_multiple_of(self.hold.cycles_between_ups()) => {
                self.keep();
                self.play(UPPER);
            }
            4 if cycle.is_multiple_of(4) || self.hold.spread > 0.2 => {
                let lower = (PROBE * self.hold.knee - 0.01).round().max(1.0);
                if lower >= f64::from(self.limit) {
                    return false;
                }
                self.keep();
                self.mode = Mode::Probe;
                self.set(lower);
            }
            2 | 6 if self.hold.limits()[0] != self.hold.limits()[HIGH] => {
                self.keep();
                self.play(HIGH - best);
            }
            _ => return false,
        }
        true
    }

    /// Adds the window to its arm.
    fn keep(&mut self) {
        if self.window.settles() {
            return;
        }
        self.note_sound();
        let most = 8.0 * self.need();
        let arm = &mut self.hold.arms[self.hold.arm];
        *arm = arm.plus(&self.window);
        arm.shrink(most);
    }

    /// The rate is no longer what it was at this limit.
    fn has_changed(&self) -> bool {
        let kept = &self.hold.arms[self.hold.arm];
        let change = (self.window.rate() / kept.rate()).ln().abs();
        kept.answers > 0.0 && change > (3.0 * self.noise(&self.window, kept)).max(0.15)
    }

    /// Goes back from the upper arm, or lowers the knee, if requests usually do not fail.
    pub(super) fn hold_retreats(&mut self, usual: f64) -> bool {
        if self.hold.wide > 0.0 {
            self.narrow_again();
            return true;
        }
        let best = self.best();
        let kept = &self.hold.arms[if self.hold.arm == UPPER { best } else { self.hold.arm }];
        if kept.answers == 0.0
            && let Some((from, _)) = self.sound.filter(|(from, _)| *from < f64::from(self.limit))
        {
            self.collapsed_from(from);
            return true;
        }
        if kept.answers == 0.0 || kept.failing() > usual {
            return false;
        }
        if self.hold.arm == UPPER {
            self.hold.up_hurts = true;
            self.hold.ceiling = f64::from(self.limit);
            self.play(best);
        } else {
            self.hold.knee = (RETREAT * self.hold.knee).max(1.0);
            self.hold.spread = 1.0;
            self.hold_from_here();
        }
        true
    }

    /// Goes back if requests fail since the limit rose, though none waits.
    ///
    /// Failures are quick, so that a backend which refuses requests leaves no queue.
    pub(super) fn retreats_at_rest(&mut self) {
        let rose = self.sound.is_some_and(|(from, _)| f64::from(self.limit) > from);
        if self.failing > FAILING && rose {
            self.failing = 0.0;
            self.hold.knee = (RETREAT * self.hold.knee).max(1.0);
            self.hold.spread = 1.0;
        }
    }

    /// Moves the knee up if the rate grows above the held limits.
    fn compare_up(&mut self) {
        let best = self.best();
        let limits = self.hold.limits();
        if let Some((gain, noise)) = self.gain(best, UPPER) {
            let upper = &self.hold.arms[UPPER];
            let gain = gain + (upper.risen_rate() / upper.rate()).ln();
            if gain - 0.5 * noise > 0.45 * (limits[UPPER] / limits[best]).ln() {
                self.hold.knee = limits[best] * gain.exp();
                self.hold.spread = MOVING;
                self.hold_from_here();
                return;
            }
            let hurts =
                if self.hold.up_hurts { gain - noise < 0.0 } else { gain + 1.5 * noise < -0.03 };
            self.hold.up_hurts = hurts;
        }
        self.play(best);
    }

    /// Holds nearer to the knee if the rate falls beyond it, and farther from it if the rate still
    /// grows.
    fn adapt_headroom(&mut self) {
        let Some((gain, noise)) = self.gain(0, HIGH) else { return };
        let sure = gain.abs() > (2.0 * noise).max(0.02);
        let headroom = self.hold.headroom;
        if sure && gain < 0.0 && headroom > HEADROOM_MIN {
            self.hold.headroom = headroom.powf(0.6).max(HEADROOM_MIN);
        } else if sure && gain > 0.0 && headroom < HEADROOM_MAX {
            self.hold.headroom = headroom.powf(1.3).min(HEADROOM_MAX);
        } else {
            return;
        }
        self.hold.arms = [Window::default(); 3];
    }

    pub(super) fn probe(&mut self) {
        if self.full() || self.confirms() {
            self.mode = Mode::After { probe: self.window, at: f64::from(self.limit) };
            self.play(self.best());
        }
    }

    /// A short probe is enough if it agrees with the known knee.
    fn confirms(&self) -> bool {
        let (window, limit) = (&self.window, f64::from(self.limit));
        let top = &self.hold.arms[self.hold.arm];
        if window.settles() || window.answers < (16.0 * self.variation).max(limit) {
            return false;
        }
        let estimate = limit * (top.rate() / window.rate()).max(1.0);
        (estimate / self.hold.knee).ln().abs() < 0.1 + 0.5 * self.noise(window, top)
    }

    /// Moves the knee to where the rate at the held limit meets the line through the probe.
    pub(super) fn after(&mut self, probe: Window, at: f64) {
        if !self.full() {
            return;
        }
        let mut before = self.hold.arms[self.hold.arm];
        before.shrink(self.window.answers);
        let top = before.plus(&self.window);
        let gain = (top.rate() / probe.rate()).ln();
        let noise = self.noise(&top, &probe);
        self.keep();
        let hold = &mut self.hold;
        if gain + noise < 0.3 * (hold.knee / at).ln()
            && (hold.headroom * at).ceil() < f64::from(self.limit)
        {
            self.descend_from(at, probe);
            return;
        }
        // Noise may go over the limit, or the mean of many estimates would be too low.
        let estimate = at * gain.clamp(0.0, (f64::from(self.limit) / at).ln() + 0.3).exp();
        let (limits, arms) = (hold.limits(), hold.arms);
        let mut variance = hold.spread * hold.spread + DRIFT * DRIFT;
        let surprise = (estimate / hold.knee).ln().abs();
        if surprise > SURPRISE * (variance + noise * noise).sqrt() {
            // The backend is no longer what it was.
            variance = 1.0;
        }
        let trust = variance / (variance + noise * noise);
        hold.knee = (hold.knee * (estimate / hold.knee).powf(trust)).max(1.0);
        hold.spread = (variance * (1.0 - trust)).sqrt();
        hold.is_found = true;
        self.hold_from_here();
        if self.hold.limits() == limits {
            self.hold.arms = arms;
        }
    }
}
