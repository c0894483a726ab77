//! The climber of the first study, from which the learner began: windows at L, 1.5 L and L / 1.5.

use equipoise_core::concurrency::{Load, Sample};

use super::simulator::Limiter;

#[derive(Clone, Copy, Debug, PartialEq)]
enum Mode {
    At,
    Up,
    Down,
    Hold,
}

pub(crate) struct Climb {
    base: f64,
    limit: f64,
    mode: Mode,
    factor: f64,
    up: f64,
    down: f64,
    rate: f64,
    reference: Option<f64>,
    next: f64,
    skip: Option<u32>,
    begin: Option<f64>,
    count: f64,
    sum: f64,
    squares: f64,
    bound: f64,
    ticks: f64,
    next_step: f64,
}

impl Climb {
    pub(crate) fn new() -> Climb {
        let mut one = Climb {
            base: 8.0,
            limit: 8.0,
            mode: Mode::At,
            factor: 2.0,
            up: 0.0,
            down: 0.0,
            rate: 0.0,
            reference: None,
            next: 0.0,
            skip: None,
            begin: None,
            count: 0.0,
            sum: 0.0,
            squares: 0.0,
            bound: 0.0,
            ticks: 0.0,
            next_step: 0.0,
        };
        one.set(8.0);
        one
    }

    fn set(&mut self, limit: f64) {
        self.limit = (limit.max(1.0) * if self.mode == Mode::Hold { 1.2 } else { 1.0 }).ceil();
        (self.skip, self.begin) = (None, None);
        (self.count, self.sum, self.squares, self.bound, self.ticks) = (0.0, 0.0, 0.0, 0.0, 0.0);
    }

    fn stay(&mut self, now: f64) {
        (self.reference, self.mode, self.next, self.factor) = (None, Mode::Hold, now + 3.0, 1.5);
        self.set(self.base);
    }

    fn try_up(&mut self, rate: f64) {
        self.rate = rate;
        self.mode = Mode::Up;
        self.up = (self.base + 1.0).max(self.base * self.factor);
        self.set(self.up);
    }

    fn try_down(&mut self, now: f64) {
        if self.base <= 1.0 {
            self.stay(now);
            return;
        }
        self.mode = Mode::Down;
        self.down = (self.base - 1.0).min(self.base / 1.5).max(1.0);
        self.set(self.down);
    }

    fn hold(&mut self, now: f64, length: f64, need: f64) {
        if length < 0.25 {
            return;
        }
        let rate = self.count / length;
        if self.count >= need {
            if self.reference.is_some_and(|reference| (rate / reference).ln().abs() > 0.3) {
                self.next = self.next.min(now);
            }
            self.reference.get_or_insert(rate);
        }
        if now >= self.next {
            self.mode = Mode::At;
            self.set(self.base);
        } else if self.count >= need {
            self.set(self.base);
        }
    }

    fn decide(&mut self, now: f64, rate: f64) {
        match self.mode {
            Mode::At => self.try_up(rate),
            Mode::Up => {
                let elasticity = (rate / self.rate).ln() / (self.up / self.base).ln();
                if elasticity > 0.4 {
                    self.base = self.up;
                    self.try_up(rate);
                } else {
                    self.factor = 1.5;
                    self.try_down(now);
                }
            }
            Mode::Down => {
                let elasticity = (self.rate / rate).ln() / (self.base / self.down).ln();
                if elasticity < 0.25 {
                    (self.base, self.rate) = (self.down, rate);
                    self.try_down(now);
                } else {
                    self.stay(now);
                }
            }
            Mode::Hold => {}
        }
    }
}

impl Limiter for Climb {
    fn limit(&self) -> u32 {
        self.limit as u32
    }

    fn finished(&mut self, samples: &[Sample], _: &[u32]) {
        for one in samples {
            let now = one.finished.as_secs_f64();
            if let Some(skip) = self.skip.as_mut().filter(|skip| **skip > 0) {
                *skip -= 1;
                if *skip == 0 {
                    self.begin = Some(now);
                    (self.ticks, self.bound) = (0.0, 0.0);
                }
                continue;
            }
            self.begin.get_or_insert(now);
            let time = one.service_time.as_secs_f64();
            self.count += 1.0;
            self.sum += time;
            self.squares += time * time;
        }
    }

    fn step(&mut self, load: Load) {
        let now = load.now.as_secs_f64();
        self.ticks += 1.0;
        self.bound += f64::from(u8::from(load.waiting > 0));
        self.skip.get_or_insert(load.in_flight);
        let Some(begin) = self.begin else { return };
        if now < self.next_step || self.count < 8.0 {
            return;
        }
        self.next_step = now + 0.02;
        let mean = self.sum / self.count;
        let variation = (self.squares / self.count / mean / mean - 1.0).max(0.0);
        let need = (2.5 * self.limit).max(40.0) * (0.5 + variation.min(4.0));
        let length = now - begin;
        if self.ticks > 0.0 && self.bound / self.ticks < 0.6 {
            if length > 0.5 {
                if self.mode != Mode::Hold {
                    self.next = now + 0.5;
                }
                self.mode = Mode::Hold;
                self.set(self.base);
            }
            return;
        }
        if self.mode == Mode::Hold {
            self.hold(now, length, need);
        } else if (self.count >= need && length >= 0.15) || length >= 4.0 {
            self.decide(now, self.count / length);
        }
    }
}
