use super::hold::{HEADROOM, HEADROOM_MIN, UPPER};
use super::learner::{FEW, Learner, Mode};
use super::start::PATIENCE;
use super::window::Window;

/// Failed requests of a window, and their share of it, from which on the limit retreats.
const FAILED_MIN: f64 = 5.0;
pub(super) const FAILING: f64 = 0.1;
/// Share of failed requests that says nothing.
pub(super) const FAILING_USUAL: f64 = 0.03;

impl Learner {
    /// Doubles the limit while the rate grows with it, and quadruples it once the rate did so
    /// fully.
    pub(super) fn ascend(&mut self, below: Option<(Window, f64)>) {
        if self.gives_way() || !self.full() {
            return;
        }
        let window = self.window;
        let limit = f64::from(self.limit);
        let mut factor = 2.0;
        if let Some((below, from)) = below {
            let step = (limit / from).ln();
            let gain = below.growth(&window, step);
            let noise = 0.5 * self.noise(&window, &below);
            if gain + noise < 0.7 * step {
                if gain - noise < 0.25 * step {
                    self.descend_from(from, below);
                } else {
                    self.arrive(from * gain.exp(), 2.0 * noise);
                }
                return;
            }
            if gain > 0.85 * step {
                factor = 4.0;
            }
        }
        self.mode = Mode::Ascend { below: Some((window, limit)) };
        self.set(factor * limit);
    }

    /// Seconds for which nothing may finish while requests wait.
    fn silence_max(&self) -> f64 {
        let usual = (6.0 * self.gap).max(4.0 * self.usual_time());
        (0.7 * self.wait).max(usual)
    }

    /// Nothing finishes while requests wait.
    pub(super) fn is_stuck(&self) -> bool {
        self.silent > self.silence_max()
    }

    /// Raises the limit if nothing finishes while requests wait: a queue cannot help what takes
    /// longer than its wait.
    pub(super) fn gives_way(&mut self) -> bool {
        let (silence_max, gives_way) = (self.silence_max(), self.is_stuck());
        let limit = f64::from(self.limit);
        let from = match self.mode {
            Mode::Ascend { below } => below.map(|(_, from)| from),
            Mode::Hold => self.sound.map(|(from, _)| from).filter(|from| *from < limit),
            _ => None,
        };
        if let (true, Some(from)) = (gives_way, from) {
            // It may be the rise that stopped everything. If not, nothing finishes below, either.
            self.silent = 0.0;
            self.collapsed_from(from);
        } else if gives_way {
            self.gave_way = true;
            self.mode = self.first_mode();
            // Step by step, because a few long requests may hold up many short ones.
            self.silent = silence_max - PATIENCE;
            self.set(2.0 * f64::from(self.limit));
        } else if self.silent == 0.0 {
            self.gave_way = false;
        }
        gives_way
    }

    /// Goes back at once when requests begin to fail, without waiting for the window's end.
    ///
    /// Only a rise counts. A backend that fails at every limit fails for another reason, and a
    /// lower limit is no help.
    pub(super) fn retreats(&mut self) -> bool {
        let failing = self.window.failed >= FAILED_MIN && self.window.failing() > FAILING;
        match self.mode {
            Mode::Start { below: Some((below, _)) }
                if failing && below.failing() < FAILING_USUAL =>
            {
                self.arrive(0.5 * f64::from(self.limit) / HEADROOM, 0.3);
                true
            }
            Mode::Ascend { below: Some((below, from)) }
                if failing && below.failing() < FAILING_USUAL =>
            {
                self.arrive(from / HEADROOM, 0.3);
                true
            }
            Mode::Hold => failing && self.hold_retreats(FAILING_USUAL),
            _ => false,
        }
    }

    /// Goes back at once when the rate collapses after a rise, without waiting for enough answers:
    /// there may be none.
    pub(super) fn collapses(&mut self) -> bool {
        // With a delay the rate is that of several balancers.
        let Some((from, rate)) = self.sound.filter(|_| self.delay == 0.0) else { return false };
        // Where nothing at all finishes, requests may be long ones: see `gives_way`.
        let some = self.window.finished >= FEW;
        let is_new = match self.mode {
            Mode::Ascend { .. } => some,
            Mode::Hold if self.hold.wide > 0.0 => false,
            Mode::Hold => self.hold.arm == UPPER || some && self.hold.is_new(),
            _ => false,
        };
        let rose = f64::from(self.limit) > from;
        // Requests in flight may have started together, and then finish together.
        let is_early = self.window.waited < self.usual_time();
        if !is_new || !rose || is_early || !self.window.collapsed(rate, self.variation) {
            return false;
        }
        self.collapsed_from(from);
        true
    }

    /// Goes back to a limit, because the rate collapsed at the present one.
    pub(super) fn collapsed_from(&mut self, limit: f64) {
        let ceiling = f64::from(self.limit);
        if self.mode == Mode::Hold && self.hold.arm == UPPER {
            self.play(self.best());
        } else {
            self.arrive_below_a_fall(limit);
        }
        self.hold.ceiling = ceiling;
    }

    /// Goes on at half of a limit at which the rate was `above`.
    pub(super) fn descend_from(&mut self, limit: f64, above: Window) {
        self.mode = Mode::Descend { above, is_first: false };
        self.set((limit / 2.0).floor());
    }

    /// Halves the limit while the rate stays.
    pub(super) fn descend(&mut self, above: Window, is_first: bool) {
        if !self.full() {
            return;
        }
        let limit = f64::from(self.limit);
        let step = 2f64.ln();
        let gain = (above.rate() / self.window.rate()).ln();
        let noise = self.noise(&self.window, &above);
        // One step too many costs little: the next window sees the rate fall.
        let own = above.noise(&self.window).min(noise);
        if gain + 0.5 * own < 0.25 * step && limit > 1.0 {
            self.descend_from(limit, self.window);
        } else if is_first && gain + noise > 0.7 * step {
            self.mode = Mode::Ascend { below: Some((above, 2.0 * limit)) };
            self.set(4.0 * limit);
        } else {
            self.arrive(limit * gain.clamp(0.0, step).exp(), noise);
        }
    }

    /// Holds a limit above which the rate falls.
    pub(super) fn arrive_below_a_fall(&mut self, limit: f64) {
        self.hold.found(limit / HEADROOM_MIN, 0.3);
        self.hold.narrow();
        self.hold_from_here();
    }

    /// Holds a knee that was found.
    pub(super) fn arrive(&mut self, knee: f64, spread: f64) {
        self.hold.found(knee, spread);
        self.hold_from_here();
    }
}
