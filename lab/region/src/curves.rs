//! Capacity, and load from a part of it to four times it.

use std::cell::RefCell;
use std::collections::BTreeMap;
use std::time::Duration;

use anyhow::Result;
use equipoise_lab_runner::{Case, Row};

use crate::backends::{self, KINDS, Peak, Sweep};
use crate::balancers::{self, Balancer};
use crate::load::{self, AFTER_WINDOW, Plan};
use crate::place::Place;
use crate::seen::{End, Window, goodput, latency_ms, percent};

const CURVES: &str = include_str!("../experiments/curves.toml");
/// The time of a start in which hardly any request may be refused.
const START_S: f64 = 10.0;

/// The peaks and best limits that were measured, for the curves.
#[derive(Default)]
pub(crate) struct Capacities(RefCell<BTreeMap<String, Capacity>>);

#[derive(Clone, Copy, Debug)]
struct Capacity {
    peak: Peak,
    /// HAProxy's best static maxconn.
    maxconn: usize,
    /// Its goodput at twice the capacity.
    good: f64,
}

/// The description of the curves of each kind of backend.
pub(crate) fn descriptions() -> impl Iterator<Item = String> {
    KINDS.iter().map(|(name, title, _)| CURVES.replace("@KIND@", name).replace("@TITLE@", title))
}

impl Capacities {
    /// The capacity of a kind, which is measured once.
    fn of(&self, place: &Place, case: &Case, seed: u64) -> Result<Capacity> {
        let kind = case.word("backend")?;
        if let Some(known) = self.0.borrow().get(kind) {
            return Ok(*known);
        }
        let window = Duration::from_secs_f64(case.number("sweep_s")?);
        let sweep = Sweep { warm_up: window / 3, window };
        let peak = backends::peak(sweep, || backends::start(place, kind))?;
        let mut best: Option<Capacity> = None;
        for maxconn in limits_around(peak.best_n) {
            let plan = Plan { requests_per_second: 2.0 * peak.speed, time: 5 * window, seed };
            let seen = through(place, kind, &Balancer::leastconn(Some(maxconn)), plan)?;
            let measured =
                Window { from_s: 2.0 * window.as_secs_f64(), to_s: plan.time.as_secs_f64() };
            let good = goodput(&seen.answers, measured);
            if best.is_none_or(|best| good > best.good) {
                best = Some(Capacity { peak, maxconn, good });
            }
        }
        let capacity = best.unwrap_or(Capacity { peak, maxconn: peak.best_n, good: 0.0 });
        self.0.borrow_mut().insert(kind.to_string(), capacity);
        Ok(capacity)
    }

    /// The row of a kind in the table of capacities.
    pub(crate) fn measure(
        &self,
        place: &Place,
        case: &Case,
        row: &mut Row,
        seed: u64,
    ) -> Result<()> {
        let Capacity { peak, maxconn, good } = self.of(place, case, seed)?;
        row.figure("peak", peak.speed)
            .figure("best_n", peak.best_n as f64)
            .figure("v_at_4_times_n", peak.at_four_times)
            .figure("haproxy_maxconn", maxconn as f64)
            .figure("haproxy_good", good / peak.speed);
        Ok(())
    }

    /// The row of a load: every balancer that the case names, each with a new backend.
    pub(crate) fn curve(&self, place: &Place, case: &Case, row: &mut Row, seed: u64) -> Result<()> {
        let capacity = self.of(place, case, seed)?;
        let peak = capacity.peak.speed;
        let (warm_up, window) = (case.number("warm_up_s")?, case.number("window_s")?);
        let measured = Window { from_s: warm_up, to_s: warm_up + window };
        let requests_per_second = case.number("load")? * peak;
        let time = Duration::from_secs_f64(measured.to_s) + AFTER_WINDOW;
        row.figure("offered", requests_per_second);
        for name in case.word("balancers")?.split(' ') {
            let balancer = match name {
                "none" => Balancer::equipoise("concurrency = \"none\""),
                "haproxy" => Balancer::leastconn(None),
                "static" => Balancer::leastconn(Some(capacity.maxconn)),
                "fixed" => Balancer::equipoise(&format!("concurrency = {}", capacity.maxconn)),
                _ => Balancer::learnt(""),
            };
            let plan = Plan { requests_per_second, time, seed };
            let seen = through(place, case.word("backend")?, &balancer, plan)?;
            let answers = &seen.answers;
            let start = Window { from_s: 0.0, to_s: START_S.min(measured.to_s) };
            let lost =
                percent(answers, End::Failed, measured) + percent(answers, End::GaveUp, measured);
            row.figure(&format!("good_{name}"), goodput(answers, measured) / peak)
                .figure(&format!("p50_{name}"), latency_ms(answers, 0.5, measured))
                .figure(&format!("p99_{name}"), latency_ms(answers, 0.99, measured))
                .figure(&format!("refused_{name}"), percent(answers, End::Refused, measured))
                .figure(&format!("refused_start_{name}"), percent(answers, End::Refused, start))
                .figure(&format!("lost_{name}"), lost);
            if let Some(limit) = seen.limit {
                row.figure(&format!("limit_{name}"), limit);
            }
        }
        beside(row);
        Ok(())
    }
}

/// equipoise with learnt limits beside HAProxy with its best static limit.
fn beside(row: &mut Row) {
    for what in ["good", "p99"] {
        let of = |name: &str| row.number(&format!("{what}_{name}"));
        if let (Some(ours), Some(theirs)) = (of("equipoise"), of("static")) {
            row.figure(&format!("{what}_over_static"), ours / theirs);
        }
    }
}

/// Limits to try: half of the best number in flight to four times it.
fn limits_around(best_n: usize) -> Vec<usize> {
    let mut limits: Vec<usize> = [0.5, 1.0, 1.5, 2.0, 4.0]
        .iter()
        .map(|times| (times * best_n as f64).ceil() as usize)
        .collect();
    limits.dedup();
    limits
}

/// A run of open load.
struct Run {
    answers: Vec<crate::seen::Answer>,
    /// equipoise's limit at the end.
    limit: Option<f64>,
}

/// Offers a load through a balancer to one new backend.
fn through(place: &Place, kind: &str, balancer: &Balancer, plan: Plan) -> Result<Run> {
    let backend = backends::start(place, kind)?;
    let guest = balancer.start(place, &[backend.address])?;
    let answers = load::open(guest.address, plan)?;
    let limit = match balancer {
        Balancer::Equipoise { .. } => balancers::limit(place)?,
        Balancer::Haproxy { .. } => None,
    };
    Ok(Run { answers, limit })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn limits_are_tried_once_each_around_the_best_number() {
        assert_eq!(limits_around(1), [1, 2, 4]);
        assert_eq!(limits_around(8), [4, 8, 12, 16, 32]);
    }

    #[test]
    fn every_kind_has_a_description_that_is_understood() {
        for description in descriptions() {
            assert!(!description.contains('@'), "{description}");
            equipoise_lab_runner::Experiment::parse(&description).expect("a description");
        }
    }
}
