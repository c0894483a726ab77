//! One backend more, to see whether requests wait.
//!
//! How much of a backend's speed is in use shows in how answers change with what is in flight. Where that has always been
//! about the same and more than a few, a full backend and one that waits for a database look alike: so many in flight, so
//! long an answer. One more backend tells them apart, since each then has fewer in flight.

use std::time::Duration;

use serde::{Deserialize, Serialize};

use super::learnt::{Known, Top};

/// A probe that is being prepared, or under way.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Probe {
    /// The size that is not known.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub size: Option<String>,
    /// Backends of the pool before it.
    pub count: u32,
    /// What was seen of each with so many.
    pub before: Looks,
    /// What is seen with one more; `None` before that was asked for.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub after: Option<Looks>,
    /// How long ago it was asked for.
    pub since: Duration,
    /// How long all of them have been measured.
    pub settled: Duration,
}

/// A moving mean of what is seen of a backend.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Looks {
    /// How many looks.
    pub count: u32,
    /// Requests in flight: N.
    pub in_flight: f64,
    /// Requests per second: V.
    pub speed: f64,
}

/// Requests in flight at each backend from which a pool of which nothing is known may be full. With fewer hardly any waits.
pub(super) const IN_FLIGHT_MIN: f64 = 2.0;
/// A probe that does not come to its end is given up.
pub(super) const PROBE_MAX: Duration = Duration::from_secs(600);
/// For what was in flight when the new backend came to be answered: this many response times, and at most so long.
const SETTLE_RESPONSES: f64 = 2.0;
const SETTLE_MAX: Duration = Duration::from_secs(60);
/// Looks at least, and for each backend, as one of many makes a small difference; and at most.
const LOOKS_MIN: u32 = 10;
const LOOKS_EACH: u32 = 2;
const LOOKS_MAX: u32 = 60;

impl Looks {
    /// One more look, of which `window` count.
    pub(super) fn add(&mut self, look: Look, window: u32) {
        self.count = (self.count + 1).min(window);
        let part = 1.0 / f64::from(self.count);
        self.in_flight += part * (look.in_flight - self.in_flight);
        self.speed += part * (look.speed - self.speed);
    }

    /// By Little's law.
    fn response_s(&self) -> f64 {
        self.in_flight / self.speed
    }
}

/// What is seen of each backend of a size in one period; both above 0.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct Look {
    /// Requests in flight: N.
    pub(crate) in_flight: f64,
    /// Requests per second: V.
    pub(crate) speed: f64,
}

impl Probe {
    /// For a pool of `count` backends.
    pub(super) fn new(size: Option<String>, count: u32) -> Probe {
        Probe { size, count, ..Probe::default() }
    }

    /// Looks that are enough to compare.
    pub(super) fn window(&self) -> u32 {
        (LOOKS_EACH * self.count).clamp(LOOKS_MIN, LOOKS_MAX)
    }

    /// Whether enough has been seen of the pool as it is.
    pub(super) fn is_prepared(&self) -> bool {
        self.before.count >= self.window()
    }

    /// Takes a look with one more backend than before, after `passed`; what is known when it has looked long enough.
    pub(super) fn compare(&mut self, look: Look, passed: Duration) -> Option<Known> {
        self.settled += passed;
        let settling = SETTLE_MAX.as_secs_f64().min(SETTLE_RESPONSES * self.before.response_s());
        let window = self.window();
        let after = self.after.as_mut()?;
        if self.settled.as_secs_f64() <= settling {
            return None;
        }
        after.add(look, window);
        let after = *after;
        (after.count >= window).then(|| self.verdict(after))
    }

    /// Whether requests waited.
    ///
    /// With one more backend each has `n / (n + 1)` of the requests in flight. If they waited for the backend, answers come
    /// sooner by so much, or each backend goes on as fast as before. If backends are not full, answers take as long as
    /// before, and each backend is slower by so much. The bound is halfway.
    fn verdict(&self, after: Looks) -> Known {
        let fewer = f64::from(self.count) / f64::from(self.count + 1);
        let halfway = f64::midpoint(1.0, fewer);
        let (was_s, is_s) = (self.before.response_s(), after.response_s());
        let waited = is_s <= halfway * was_s || after.speed >= halfway * self.before.speed;
        let speed = self.before.speed.max(after.speed);
        let (in_flight, age) = (after.in_flight.max(1.0), Duration::ZERO);
        let top = waited.then_some(Top { speed, in_flight, age });
        self.known(was_s.min(is_s), after.in_flight, top)
    }

    /// When nothing came of it: answers are taken for as fast as they can be, so that it is not tried for ever.
    pub(super) fn given_up(&self) -> Known {
        self.known(self.before.response_s(), self.before.in_flight, None)
    }

    fn known(&self, response_s: f64, in_flight: f64, top: Option<Top>) -> Known {
        let (from, upto) =
            (in_flight.min(self.before.in_flight), in_flight.max(self.before.in_flight));
        Known { size: self.size.clone(), response_s, from, upto, top, age: Duration::ZERO }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const PERIOD: Duration = Duration::from_secs(1);

    /// What a probe shows of `count` backends, each with so much in flight at so much speed before and after.
    fn shown(count: u32, before: (f64, f64), after: (f64, f64)) -> Known {
        let look = |(in_flight, speed)| Look { in_flight, speed };
        let mut probe = Probe::new(None, count);
        while !probe.is_prepared() {
            let window = probe.window();
            probe.before.add(look(before), window);
        }
        probe.after = Some(Looks::default());
        let mut compared = std::iter::repeat_with(|| probe.compare(look(after), PERIOD));
        compared.by_ref().take(200).flatten().next().unwrap()
    }

    #[test]
    fn it_tells_backends_that_are_full_from_those_that_wait_themselves() {
        // Backends; in flight and speed of each before, and after; whether they were full.
        let rows = [
            // A closed loop of 24 on what does 40 a second.
            (1, (24.0, 40.0), (12.0, 40.0), true),
            (3, (8.0, 40.0), (6.0, 40.0), true),
            (10, (24.0, 40.0), (21.8, 40.0), true),
            // The same on what waits 100 ms for a database.
            (1, (24.0, 240.0), (12.0, 120.0), false),
            (3, (8.0, 80.0), (6.0, 60.0), false),
            (10, (24.0, 240.0), (21.8, 218.2), false),
            // A rate of its own: hardly full, and far beyond it.
            (1, (9.0, 90.0), (0.9, 45.0), true),
            (1, (20.0, 40.0), (20.0, 40.0), true),
            // A quarter more came meanwhile.
            (1, (24.0, 240.0), (15.0, 150.0), false),
        ];
        for (count, before, after, is_full) in rows {
            let known = shown(count, before, after);
            assert_eq!(known.top.is_some(), is_full, "{count}: {before:?} {after:?}");
            let response_s = (before.0 / before.1).min(after.0 / after.1);
            assert!((known.response_s - response_s).abs() < 1e-9, "{known:?}");
        }
    }

    #[test]
    fn answers_to_what_was_in_flight_before_are_not_looked_at() {
        let mut probe = Probe::new(None, 1);
        (0..10).for_each(|_| probe.before.add(Look { in_flight: 20.0, speed: 4.0 }, 10));
        probe.after = Some(Looks::default());
        let after = Look { in_flight: 10.0, speed: 4.0 };
        let looks = (1..).find(|_| probe.compare(after, PERIOD).is_some());
        assert_eq!(looks, Some(20), "ten seconds for two answers, and ten looks");
    }
}
