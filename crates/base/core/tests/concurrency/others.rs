//! Algorithms of others, as far as the comparison needs them.

use std::collections::VecDeque;

use equipoise_core::concurrency::{Load, Sample};

use super::simulator::Limiter;

/// These algorithms adjust their limit every 20 ms.
const PERIOD: f64 = 0.02;

#[derive(Default)]
struct Every {
    next: f64,
}

impl Every {
    fn due(&mut self, now: f64) -> bool {
        let due = now >= self.next;
        if due {
            self.next = now + PERIOD;
        }
        due
    }
}

/// A limit that does not change.
pub(crate) struct Fixed(pub u32);

impl Limiter for Fixed {
    fn limit(&self) -> u32 {
        self.0
    }

    fn finished(&mut self, _: &[Sample], _: &[u32]) {}

    fn step(&mut self, _: Load) {}
}

/// Netflix concurrency-limits, `Gradient2Limit`.
#[derive(Default)]
pub(crate) struct Gradient2 {
    limit: f64,
    long: Option<f64>,
    sum: f64,
    count: f64,
    in_flight: f64,
    every: Every,
}

impl Gradient2 {
    pub(crate) fn new() -> Gradient2 {
        Gradient2 { limit: 20.0, ..Gradient2::default() }
    }
}

impl Limiter for Gradient2 {
    fn limit(&self) -> u32 {
        self.limit as u32
    }

    fn finished(&mut self, samples: &[Sample], in_flight: &[u32]) {
        for (one, &n) in samples.iter().zip(in_flight) {
            self.sum += one.service_time.as_secs_f64();
            self.count += 1.0;
            self.in_flight = self.in_flight.max(f64::from(n));
        }
    }

    fn step(&mut self, load: Load) {
        if !self.every.due(load.now.as_secs_f64()) || self.count < 10.0 {
            return;
        }
        let short = self.sum / self.count;
        let in_flight = self.in_flight;
        (self.sum, self.count, self.in_flight) = (0.0, 0.0, 0.0);
        let mut long = self.long.map_or(short, |long| long + (short - long) * 0.01 * 10.0 / 6.0);
        if long / short > 2.0 {
            long *= 0.95;
        }
        self.long = Some(long);
        if in_flight >= self.limit / 2.0 {
            let gradient = (1.5 * long / short).clamp(0.5, 1.0);
            let new = self.limit * gradient + 4.0;
            self.limit = (self.limit * 0.8 + new * 0.2).clamp(1.0, 1000.0);
        }
    }
}

/// Netflix concurrency-limits, `VegasLimit`.
pub(crate) struct Vegas {
    limit: f64,
    least: f64,
    count: f64,
}

impl Vegas {
    pub(crate) fn new() -> Vegas {
        Vegas { limit: 20.0, least: f64::INFINITY, count: 0.0 }
    }
}

impl Limiter for Vegas {
    fn limit(&self) -> u32 {
        self.limit as u32
    }

    fn finished(&mut self, samples: &[Sample], in_flight: &[u32]) {
        for (one, &n) in samples.iter().zip(in_flight) {
            let time = one.service_time.as_secs_f64();
            self.count += 1.0;
            if self.count > 300.0 * self.limit {
                (self.count, self.least) = (0.0, time);
            }
            self.least = self.least.min(time);
            if f64::from(n) * 2.0 < self.limit {
                continue;
            }
            let queued = self.limit * (1.0 - self.least / time);
            let step = self.limit.log10().max(1.0);
            if queued < 3.0 * step {
                self.limit += step;
            } else if queued > 6.0 * step {
                self.limit = (self.limit - step).max(1.0);
            }
        }
    }

    fn step(&mut self, _: Load) {}
}

/// Envoy's adaptive concurrency: the smallest time is measured in windows at a concurrency of 3.
#[derive(Default)]
pub(crate) struct Envoy {
    limit: f64,
    before: f64,
    least: Option<f64>,
    next: f64,
    times: Vec<f64>,
    every: Every,
}

impl Envoy {
    pub(crate) fn new() -> Envoy {
        Envoy { limit: 3.0, before: 10.0, ..Envoy::default() }
    }

    fn median(&mut self) -> f64 {
        self.times.sort_by(f64::total_cmp);
        let median = self.times[self.times.len() / 2];
        self.times.clear();
        median
    }
}

impl Limiter for Envoy {
    fn limit(&self) -> u32 {
        self.limit as u32
    }

    fn finished(&mut self, samples: &[Sample], _: &[u32]) {
        self.times.extend(samples.iter().map(|one| one.service_time.as_secs_f64()));
    }

    fn step(&mut self, load: Load) {
        let now = load.now.as_secs_f64();
        if !self.every.due(now) {
            return;
        }
        let Some(least) = self.least else {
            if self.times.len() >= 50 {
                self.least = Some(self.median());
                (self.next, self.limit) = (now + 15.0, self.before);
            }
            return;
        };
        if now > self.next {
            (self.before, self.limit, self.least) = (self.limit, 3.0, None);
            self.times.clear();
        } else if self.times.len() >= 5 {
            let gradient = (least * 1.25 / self.median()).clamp(0.5, 2.0);
            let new = self.limit * gradient;
            self.limit = (new + new.sqrt()).clamp(3.0, 1000.0);
        }
    }
}

/// Rate and smallest time apart, as TCP BBR has it: limit = gain x greatest rate x time at half the
/// limit.
#[derive(Default)]
pub(crate) struct Delivery {
    limit: f64,
    base: f64,
    sum: f64,
    count: f64,
    begin: f64,
    area: f64,
    ticks: f64,
    bound: f64,
    rates: VecDeque<f64>,
    floor: Option<f64>,
    down: Option<u32>,
    running: bool,
    previous: f64,
    next_down: f64,
    turn: u32,
    every: Every,
}

impl Delivery {
    pub(crate) fn new() -> Delivery {
        Delivery { limit: 4.0, base: 4.0, next_down: 3.0, ..Delivery::default() }
    }

    fn greatest(&self) -> Option<f64> {
        self.rates.iter().copied().max_by(f64::total_cmp)
    }

    fn keep(&mut self, rate: f64) {
        self.rates.push_back(rate);
        if self.rates.len() > 10 {
            self.rates.pop_front();
        }
    }

    fn begin(&mut self, now: f64, rate: f64, time: f64) {
        if rate > self.previous * 1.2 {
            self.previous = rate;
            self.base *= 1.6;
        } else {
            self.running = true;
            self.keep(rate.max(self.previous));
            self.floor = None;
            self.next_down = now;
        }
        self.floor = Some(self.floor.map_or(time, |floor| floor.min(time)));
    }

    fn window(&mut self, now: f64, rate: f64, time: f64, n: f64, bound: bool) {
        if !self.running {
            if bound {
                self.begin(now, rate, time);
            }
            self.limit = self.base;
            return;
        }
        if let Some(windows) = self.down {
            self.down = Some(windows + 1);
            if windows >= 1 {
                (self.down, self.floor, self.turn) = (None, Some(time), 0);
                self.next_down = now + 5.0;
                if self.greatest().is_some_and(|greatest| rate > 0.93 * greatest) {
                    self.base = (self.base * 0.7).max(1.0);
                    self.next_down = now + 0.3;
                }
            }
        } else if bound {
            self.keep(rate);
        } else if n < self.limit * 0.7 {
            self.floor = Some(self.floor.map_or(time, |floor| floor + (time - floor) * 0.2));
        }
        let rate = self.greatest().unwrap_or(rate);
        self.base = (1.15 * rate * self.floor.unwrap_or(time) + 1.0).max(1.0);
        self.turn += 1;
        if bound && now >= self.next_down {
            self.down = Some(0);
            self.limit = (self.base * 0.5).max(1.0);
        } else if self.turn.is_multiple_of(6) {
            self.limit = (self.base + 1.0).max(self.base * 1.25);
        } else {
            self.limit = self.base;
        }
    }
}

impl Limiter for Delivery {
    fn limit(&self) -> u32 {
        self.limit as u32
    }

    fn finished(&mut self, samples: &[Sample], _: &[u32]) {
        self.count += samples.len() as f64;
        self.sum += samples.iter().map(|one| one.service_time.as_secs_f64()).sum::<f64>();
    }

    fn step(&mut self, load: Load) {
        let now = load.now.as_secs_f64();
        self.area += f64::from(load.in_flight);
        self.ticks += 1.0;
        self.bound += f64::from(u8::from(load.waiting > 0));
        let length = now - self.begin;
        if !self.every.due(now) || (self.count < self.limit.max(8.0) && length < 1.0) {
            return;
        }
        if length > 0.0 && self.count > 0.0 {
            let (n, bound) = (self.area / self.ticks, self.bound / self.ticks > 0.5);
            self.window(now, self.count / length, self.sum / self.count, n, bound);
        }
        (self.sum, self.count, self.area, self.ticks, self.bound) = (0.0, 0.0, 0.0, 0.0, 0.0);
        self.begin = now;
    }
}
