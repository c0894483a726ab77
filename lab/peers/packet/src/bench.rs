//! Times programs under test side by side.

use anyhow::{Result, ensure};
use equipoise_lab_runner::measure::median;

use crate::contender::Contender;
use crate::driver::{Driver, FORWARDED, Order};
use crate::skew::Zipf;
use crate::traffic::{LINK_BYTES, Traffic};

/// Flows that are looked at one by one before anything is timed.
const FLOWS_CHECKED: u32 = 64;

/// Nanoseconds a packet of each repetition, net of the program that does nothing.
#[derive(Clone, Debug, Default)]
pub(crate) struct Times {
    pub(crate) nothing: Vec<f64>,
    /// By contender.
    pub(crate) net: Vec<Vec<f64>>,
    /// Share of packets with a flow that was reported as new, by contender.
    pub(crate) new_flows: Vec<f64>,
}

impl Times {
    pub(crate) fn median(&self, contender: usize) -> f64 {
        median(&self.net[contender])
    }

    /// The median of what `one` takes more than `other`, by repetition.
    pub(crate) fn more(&self, one: usize, other: usize) -> f64 {
        let pairs = self.net[one].iter().zip(&self.net[other]);
        median(&pairs.map(|(one, other)| one - other).collect::<Vec<_>>())
    }
}

/// Looks at what a contender makes of single packets: each to a backend, always to the same one,
/// with the packet that came inside.
pub(crate) fn check(
    driver: &mut Driver,
    contender: &dyn Contender,
    traffic: &Traffic,
) -> Result<()> {
    let name = contender.name();
    driver.set_vips(contender.vips())?;
    for flow in (0..FLOWS_CHECKED).map(|at| at * (traffic.flows / FLOWS_CHECKED)) {
        let (verdict, frame) = driver.run_one(contender.program(), flow)?;
        let why = contender.complaints();
        let forwarded = FORWARDED.contains(&verdict);
        ensure!(forwarded, "{name} gives flow {flow} the verdict {verdict}: {why}");
        let (_, again) = driver.run_one(contender.program(), flow)?;
        ensure!(frame == again, "{name} sends flow {flow} to two backends");
        let came = traffic.frame(flow);
        let grown = contender.grows_by();
        ensure!(frame.len() == came.len() + grown, "{name} sends {} bytes", frame.len());
        if contender.keeps_packet() {
            let inside = &frame[LINK_BYTES + grown..];
            ensure!(inside == &came[LINK_BYTES..], "{name} changes the packet of flow {flow}");
        }
    }
    Ok(())
}

/// The measurement to make.
pub(crate) struct Plan {
    pub(crate) seed: u64,
    pub(crate) repetitions: usize,
    pub(crate) packets: u32,
    /// Packets after which userspace does its share, which is not timed.
    pub(crate) step: u32,
    /// Skewed traffic.
    pub(crate) zipf: Option<Zipf>,
}

impl Plan {
    /// Flows alike, and userspace follows after each batch.
    pub(crate) fn even(seed: u64, repetitions: usize, packets: u32) -> Plan {
        Plan { seed, repetitions, packets, step: packets, zipf: None }
    }

    /// Packets `at` and later ones of the timed batch of a repetition, or of the one before it.
    fn order(&self, repetition: usize, timed: bool, at: u32) -> Order {
        if self.zipf.is_some() {
            return Order::Drawn { from: if timed { at } else { self.packets + at } };
        }
        Order::Random {
            seed: self.seed ^ (repetition as u64) << 32 ^ u64::from(timed) << 63 ^ u64::from(at),
        }
    }

    /// Nanoseconds a packet of a batch.
    fn batch(
        &self,
        driver: &mut Driver,
        mut contender: Option<&mut dyn Contender>,
        repetition: usize,
        timed: bool,
    ) -> Result<f64> {
        let packets = if timed { self.packets } else { self.packets / 2 };
        let mut sum_ns = 0.0;
        for at in (0..packets).step_by(self.step as usize) {
            let some = self.step.min(packets - at);
            let program = contender.as_ref().map(|contender| contender.program());
            let ns = driver.run(program, self.order(repetition, timed, at), some)?;
            sum_ns += ns * f64::from(some);
            if let Some(contender) = &mut contender {
                contender.keep_up()?;
            }
        }
        Ok(sum_ns / f64::from(packets))
    }
}

/// Times all contenders, which know their flows: in each repetition one after the other, on the
/// same packets, after half as many untimed ones; each repetition begins with another one.
pub(crate) fn time(
    driver: &mut Driver,
    contenders: &mut [&mut dyn Contender],
    plan: &Plan,
) -> Result<Times> {
    let count = contenders.len();
    let mut gross = vec![Vec::with_capacity(plan.repetitions); count];
    let mut new_flows = vec![0.0; count];
    let mut nothing = Vec::with_capacity(plan.repetitions);
    for repetition in 0..plan.repetitions {
        if let Some(zipf) = &plan.zipf {
            driver.draw(zipf, plan.seed ^ (repetition as u64) << 32)?;
        }
        for turn in 0..=count {
            let at = (repetition + turn) % (count + 1);
            let Some(contender) = contenders.get_mut(at) else {
                plan.batch(driver, None, repetition, false)?;
                nothing.push(plan.batch(driver, None, repetition, true)?);
                continue;
            };
            driver.set_vips(contender.vips())?;
            plan.batch(driver, Some(&mut **contender), repetition, false)?;
            let before = contender.counters()?;
            gross[at].push(plan.batch(driver, Some(&mut **contender), repetition, true)?);
            let after = contender.counters()?;
            let (name, forwarded) = (contender.name(), after.forwarded - before.forwarded);
            ensure!(
                forwarded == u64::from(plan.packets),
                "{name} forwarded {forwarded} of {} packets: {}",
                plan.packets,
                contender.complaints()
            );
            let new = (after.new_flows - before.new_flows) as f64;
            new_flows[at] += new / f64::from(plan.packets) / plan.repetitions as f64;
        }
    }
    let net = |of: Vec<f64>| of.iter().zip(&nothing).map(|(gross, base)| gross - base).collect();
    Ok(Times { net: gross.into_iter().map(net).collect(), nothing, new_flows })
}
