use super::learner::{FEW, Learner, MANY, Mode};
use super::window::Window;

/// Standard deviations from which on it is clear that the rate does not follow the limit.
const CLEAR: f64 = 2.0;
/// Squared coefficient of variation of the service times above which a few answers cannot tell a
/// fall.
const SPREAD_MAX: f64 = 2.0;
/// A steeper fall than this is a long request which others wait for (logarithm of the rate over
/// that of the limit).
const FALL_MIN: f64 = -1.5;
/// Seconds after which the limit doubles if nothing has finished.
pub(super) const PATIENCE: f64 = 0.03;
/// Limit up to which it does so.
const RAMP_MAX: f64 = 2048.0;
/// Limit from which on it does so however few wait: then many arrive in that time.
const RAMP_FREE: f64 = 64.0;

impl Learner {
    /// Doubles the limit after a few answers, up to [`MANY`], and goes back at once when the rate
    /// falls. `below` was measured at that limit.
    ///
    /// A window at a small limit has few answers, and a backend that slows down under a few
    /// requests gives no more of them. So this is where a fall must be seen early. That the rate
    /// does not grow takes longer to see and costs nothing; [`Learner::ascend`] finds it out.
    pub(super) fn start(&mut self, below: Option<(Window, f64)>) {
        if self.gives_way() || self.ramps() {
            return;
        }
        let (window, limit) = (self.window, f64::from(self.limit));
        let Some((below, from)) = below else {
            if limit >= MANY && self.full() {
                self.mode = Mode::Descend { above: window, is_first: true };
                self.set((limit / 2.0).floor());
            } else if limit < MANY && window.answers >= FEW {
                self.rise((window, limit));
            }
            return;
        };
        // Only an answer is news.
        if window.answers < FEW || self.silent > 0.0 {
            return;
        }
        let step = (limit / from).ln();
        let (gain, noise) = (below.change(&window, step), below.noise(&window));
        let lags = step - gain > 3.0 * noise;
        if lags && gain + CLEAR * noise < 0.0 && gain > FALL_MIN * step {
            if self.variation.max(window.variation(&below)) > SPREAD_MAX {
                self.mode = Mode::Ascend { below: None };
                self.set(from);
            } else {
                self.arrive_below_a_fall(from);
            }
        } else if limit < MANY {
            if gain > 0.0 || window.answers >= 2.0 * FEW {
                self.rise((below, from));
            }
        } else if self.is_measured(&below) {
            if lags && gain < 0.25 * step {
                self.descend_from(limit, window);
            } else {
                self.mode = Mode::Ascend { below: Some((window, limit)) };
                self.set(2.0 * limit);
            }
        }
    }

    /// The window at [`MANY`] has answers enough for the spread of their service times.
    fn is_measured(&mut self, below: &Window) -> bool {
        self.variation = self.variation.max(self.window.variation(below).min(10.0));
        self.full()
    }

    /// Doubles the limit, if enough requests wait to fill it. `below` was measured at that limit.
    fn rise(&mut self, below: (Window, f64)) {
        let (limit, time) = (f64::from(self.limit), self.window.time());
        if !self.has_backlog() {
            return;
        }
        if 2.0 * time <= self.wait {
            self.mode = Mode::Start { below: Some(below) };
            self.set(2.0 * limit);
            self.window = Window::after(0.0, time);
        } else if self.full() {
            // If the rate does not follow, requests take twice as long, and so does finding that
            // out.
            self.mode = Mode::Ascend { below: Some((self.window, limit)) };
            self.set(2.0 * limit);
        }
    }

    /// Doubles the limit while requests wait and nothing has finished at the first one.
    ///
    /// Where requests take long, the queue's wait would be over before enough of them have
    /// finished.
    fn ramps(&mut self) -> bool {
        let first = matches!(self.mode, Mode::Start { below: None });
        let silent = self.window.finished == 0.0 && self.window.waited >= PATIENCE;
        let limit = f64::from(self.limit);
        let is_filled = limit >= RAMP_FREE || self.has_backlog();
        let ramps = first && silent && limit < RAMP_MAX && is_filled;
        if ramps {
            self.set(2.0 * limit);
        }
        ramps
    }
}
