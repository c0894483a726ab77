use std::time::Duration;

use super::{
    ClassCosts, ClassRates, ClassUse, ForecastError, Forecaster, Measurement, Occupancy, PerClass,
    RequestClass, Signal, Signals, Smoothing,
};

/// The load of one node: smoothed, predicted, and the demand of its clients, whichever node serves
/// it.
///
/// *Offered* CPU is the CPU that the node would use if it delegated nothing and took nothing from
/// peers. It does not change when the planner moves requests, so a plan based on it does not chase
/// its own effect.
#[derive(Clone, Debug)]
pub struct NodeLoad {
    smoothing: Smoothing,
    at: Duration,
    cpu: Forecaster,
    memory: Forecaster,
    net: Option<Forecaster>,
    offered_cpu: Forecaster,
    /// Offered occupancy, in per cent; `None` without a concurrency limit.
    occupancy: Option<Forecaster>,
    costs: ClassCosts,
    rates: ClassRates,
}

/// Greatest offered CPU in per cent. A node that keeps almost nothing says almost nothing about its
/// demand.
const OFFERED_MAX: f64 = 1000.0;

impl NodeLoad {
    /// Begins with a measurement.
    pub fn new(
        smoothing: Smoothing,
        at: Duration,
        measured: &Measurement,
        rates: &ClassRates,
    ) -> NodeLoad {
        let begin = |largest, value| Forecaster::new(smoothing, largest, at, value);
        let rates = rates.sane();
        let mut costs = ClassCosts::default();
        costs.observe(measured.cpu.get(), &rates);
        let offered = offered_cpu(measured.cpu.get(), &rates, &costs);
        NodeLoad {
            smoothing,
            at,
            cpu: begin(100.0, measured.cpu.get()),
            memory: begin(100.0, measured.memory.get()),
            net: measured.net.map(|net| begin(100.0, net.get())),
            offered_cpu: begin(OFFERED_MAX, offered.unwrap_or(measured.cpu.get())),
            occupancy: None,
            costs,
            rates,
        }
    }

    /// Takes a measurement at time `at` and the requests of the same period. A measurement that is
    /// not later than the last is ignored.
    pub fn observe(&mut self, at: Duration, measured: &Measurement, rates: &ClassRates) {
        let Some(gap) = self.smoothing.gap(self.at, at) else { return };
        let (cpu, rates) = (measured.cpu.get(), rates.sane());
        self.costs.observe(cpu, &rates);
        self.cpu.observe(at, cpu);
        self.memory.observe(at, measured.memory.get());
        match (&mut self.net, measured.net) {
            (Some(net), Some(now)) => net.observe(at, now.get()),
            (net, now) => {
                *net = now.map(|now| Forecaster::new(self.smoothing, 100.0, at, now.get()));
            }
        }
        if let Some(offered) = offered_cpu(cpu, &rates, &self.costs) {
            self.offered_cpu.observe(at, offered);
        }
        let gain = 1.0 - (1.0 - self.smoothing.level_gain).powf(gap);
        for class in RequestClass::ALL {
            let (mean, now) = (&mut self.rates[class], rates[class]);
            mean.arrived += gain * (now.arrived - mean.arrived);
            mean.delegated += gain * (now.delegated - mean.delegated);
            mean.refused += gain * (now.refused - mean.refused);
            mean.taken += gain * (now.taken - mean.taken);
            mean.bytes += gain * (now.bytes - mean.bytes);
        }
        self.at = at;
    }

    /// Takes the occupancy of the node's application in the period of the last measurement, which
    /// had these rates; `None` without a concurrency limit.
    pub fn observe_occupancy(&mut self, occupancy: Option<Occupancy>, rates: &ClassRates) {
        let Some(now) = occupancy.filter(Occupancy::is_sane) else {
            self.occupancy = None;
            return;
        };
        let Some(ratio) = offered_per_done(&rates.sane(), &self.costs) else { return };
        let (at, now) = (self.at, now.offered_percent(ratio).min(OFFERED_MAX));
        match &mut self.occupancy {
            Some(occupancy) => occupancy.observe(at, now),
            none => *none = Some(Forecaster::new(self.smoothing, OFFERED_MAX, at, now)),
        }
    }

    /// Time of the last measurement.
    pub fn at(&self) -> Duration {
        self.at
    }

    /// Smoothed utilisation.
    pub fn smoothed(&self) -> Signals {
        self.signals(Forecaster::smoothed)
    }

    /// Expected utilisation in the coming period.
    pub fn coming(&self) -> Signals {
        self.signals(Forecaster::coming)
    }

    /// CPU that clients are expected to demand of this node in the coming period, whichever node
    /// serves them; in per cent of the node, at most ten times it.
    pub fn offered_cpu(&self) -> f64 {
        self.offered_cpu.coming()
    }

    /// Requests in flight and queued that clients are expected to demand of this node in the coming
    /// period, whichever node serves them; in per cent of the application's concurrency limit, at
    /// most ten times it. `None` without a limit.
    pub fn offered_occupancy(&self) -> Option<f64> {
        self.occupancy.as_ref().map(Forecaster::coming)
    }

    /// The part of [`Self::offered_cpu`] that does not come from requests, as far as it is known.
    pub fn idle_cpu(&self) -> f64 {
        self.costs.idle_cpu_percent().min(self.offered_cpu())
    }

    /// CPU utilisation that neither idling nor the requests served here explain, in per cent; 0
    /// while costs are unknown.
    pub fn unexplained_cpu(&self) -> f64 {
        if !self.costs.is_known() {
            return 0.0;
        }
        let cost = |class| self.rates[class].done() * self.costs.cpu_percent(class);
        let explained =
            self.costs.idle_cpu_percent() + RequestClass::ALL.map(cost).iter().sum::<f64>();
        (self.cpu.smoothed() - explained).max(0.0)
    }

    /// Errors of the predictions of a signal; `None` without the signal.
    pub fn error(&self, signal: Signal) -> Option<ForecastError> {
        match signal {
            Signal::Cpu => Some(self.cpu.error()),
            Signal::Memory => Some(self.memory.error()),
            Signal::Net => self.net.as_ref().map(Forecaster::error),
        }
    }

    /// The costs of requests of each class at this node.
    pub fn costs(&self) -> &ClassCosts {
        &self.costs
    }

    /// Resource use of the requests that clients bring to this node, by class; zeros where unknown.
    pub fn class_use(&self) -> PerClass<ClassUse> {
        PerClass::from_fn(|class| ClassUse {
            cpu: self.rates[class].arrived * self.costs.cpu_percent(class),
            bytes: self.rates[class].arrived * self.costs.bytes(class),
        })
    }

    fn signals(&self, of: impl Fn(&Forecaster) -> f64) -> Signals {
        Signals { cpu: of(&self.cpu), memory: of(&self.memory), net: self.net.as_ref().map(of) }
    }
}

/// `None` if the node served none of its requests, so that their cost is not visible.
fn offered_cpu(cpu: f64, rates: &ClassRates, costs: &ClassCosts) -> Option<f64> {
    let idle = costs.idle_cpu_percent().min(cpu);
    let offered = idle + (cpu - idle) * offered_per_done(rates, costs)?;
    Some(offered.min(OFFERED_MAX))
}

/// Demand of clients relative to the requests that the node served. `None` if it served none.
fn offered_per_done(rates: &ClassRates, costs: &ClassCosts) -> Option<f64> {
    let is_known = costs.is_known();
    rates.offered_per_done(|class| if is_known { costs.cpu_percent(class) } else { 1.0 })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::load::{ClassRate, Percent};

    fn measured(cpu: f64, net: Option<f64>) -> Measurement {
        let percent = |value| Percent::new(value).unwrap();
        Measurement { cpu: percent(cpu), memory: percent(30.0), net: net.map(percent) }
    }

    fn rates(arrived: f64, delegated: f64, taken: f64) -> ClassRates {
        let computing = ClassRate { arrived, delegated, taken, ..ClassRate::default() };
        ClassRates { computing, ..ClassRates::default() }
    }

    fn second(at: u64) -> Duration {
        Duration::from_secs(at)
    }

    #[test]
    fn offered_cpu_stays_constant_when_work_is_delegated() {
        let all = rates(90.0, 0.0, 0.0);
        let mut node = NodeLoad::new(Smoothing::default(), second(0), &measured(90.0, None), &all);
        for at in 1..10 {
            node.observe(second(at), &measured(90.0, None), &all);
        }
        for at in 10..40 {
            node.observe(second(at), &measured(45.0, None), &rates(90.0, 45.0, 0.0));
        }
        assert!((node.coming().cpu - 45.0).abs() < 1.0, "{node:?}");
        assert!((node.offered_cpu() - 90.0).abs() < 2.0, "{node:?}");
    }

    #[test]
    fn a_queue_that_moves_to_peers_stays_part_of_the_offered_occupancy() {
        let all = rates(90.0, 0.0, 0.0);
        let mut node = NodeLoad::new(Smoothing::default(), second(0), &measured(50.0, None), &all);
        assert_eq!(node.offered_occupancy(), None);
        let queues = Occupancy { in_flight: 8.0, queued: 8.0, limit: 8.0 };
        for at in 1..20 {
            node.observe(second(at), &measured(50.0, None), &all);
            node.observe_occupancy(Some(queues), &all);
        }
        let is_near = |node: &NodeLoad, percent: f64| {
            node.offered_occupancy().is_some_and(|it| (it - percent).abs() < 2.0)
        };
        assert!(is_near(&node, 200.0), "{node:?}");
        let (half, full) = (rates(90.0, 45.0, 0.0), Occupancy { queued: 0.0, ..queues });
        for at in 20..60 {
            node.observe(second(at), &measured(50.0, None), &half);
            node.observe_occupancy(Some(full), &half);
        }
        assert!(is_near(&node, 200.0), "{node:?}");
        let before = node.offered_occupancy();
        node.observe_occupancy(Some(full), &rates(90.0, 90.0, 0.0));
        assert_eq!(node.offered_occupancy(), before, "it served none");
        node.observe_occupancy(None, &all);
        assert_eq!(node.offered_occupancy(), None, "its limit is gone");
    }

    #[test]
    fn work_taken_from_peers_does_not_count_as_offered_cpu() {
        let some = rates(10.0, 0.0, 30.0);
        let node = NodeLoad::new(Smoothing::default(), second(0), &measured(40.0, None), &some);
        // Part of the 40 may be idle use, which peers do not cause; one measurement cannot tell.
        assert!((10.0..13.0).contains(&node.offered_cpu()), "{node:?}");
    }

    #[test]
    fn cpu_that_requests_do_not_explain_is_reported_as_unexplained() {
        let none = ClassRates::default();
        let mut node = NodeLoad::new(Smoothing::default(), second(0), &measured(5.0, None), &none);
        for at in 1..60 {
            let taken = (at % 10) as f64;
            node.observe(second(at), &measured(5.0 + 5.0 * taken, None), &rates(0.0, 0.0, taken));
        }
        assert!(node.unexplained_cpu() < 5.0, "{node:?}");
        for at in 60..64 {
            node.observe(second(at), &measured(85.0, None), &rates(0.0, 0.0, 6.0));
        }
        assert!(node.unexplained_cpu() > 35.0, "{node:?}");
    }

    /// Requests are counted when they arrive, and served a moment later. In a short period the two
    /// differ a lot.
    #[test]
    fn requests_that_span_two_periods_do_not_count_as_idle_cpu() {
        let mut node = NodeLoad::new(
            Smoothing::default(),
            second(0),
            &measured(5.0, None),
            &ClassRates::default(),
        );
        for at in 1..20 {
            node.observe(second(at), &measured(5.0, None), &ClassRates::default());
        }
        // 13 a second that cost 5 % each, counted in bursts, half of them a period early.
        let lumps = [18.0, 8.0, 11.0, 16.0, 7.0, 18.0, 9.0, 17.0];
        for at in 20..140 {
            let lump = |at: u64| lumps[at as usize % lumps.len()];
            let done = (lump(at) + lump(at - 1)) / 2.0;
            let cpu = measured(5.0 + 5.0 * done, None);
            node.observe(second(at), &cpu, &rates(0.0, 0.0, lump(at)));
        }
        assert!(node.offered_cpu() < 12.0, "{node:?}");
    }

    #[test]
    fn the_network_signal_exists_only_while_reports_contain_it() {
        let none = ClassRates::default();
        let mut node = NodeLoad::new(Smoothing::default(), second(0), &measured(9.0, None), &none);
        assert_eq!(node.coming().net, None);
        node.observe(second(1), &measured(9.0, Some(50.0)), &none);
        assert_eq!(node.coming().net, Some(50.0));
        node.observe(second(2), &measured(9.0, None), &none);
        assert_eq!((node.coming().net, node.error(Signal::Net)), (None, None));
    }

    #[test]
    fn offered_cpu_is_unchanged_while_a_node_delegates_every_request() {
        let all = rates(50.0, 0.0, 0.0);
        let mut node = NodeLoad::new(Smoothing::default(), second(0), &measured(50.0, None), &all);
        let before = node.offered_cpu();
        node.observe(second(1), &measured(1.0, None), &rates(50.0, 50.0, 0.0));
        assert_eq!(node.offered_cpu(), before);
    }
}
