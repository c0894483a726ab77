//! Our program with its tables.

use std::os::fd::{AsFd, BorrowedFd};
use std::sync::atomic::Ordering::Relaxed;

use anyhow::{Context, Result};
use equipoise_packet::abi::{Forward, How};
use equipoise_packet::{
    Capacity, CpuMemory, Entry, Limits, OBJECT, Program, Reason, TRANSLATED_FLOWS, TablesPublisher,
    TranslatedFlows,
};

use libbpf_rs::MapCore;

use crate::contender::{Contender, Counters};
use crate::kernel_memory::map_bytes;
use crate::tables::{self, Plan};
use crate::traffic::{Family, Traffic};

/// The program, loaded, with tables published.
pub(crate) struct Equipoise {
    name: &'static str,
    program: Program,
    plan: Plan,
    traffic: Traffic,
    logged: u64,
    _publisher: TablesPublisher,
}

/// Room for what the traffic needs, on one CPU that forwards.
pub(crate) fn capacity(traffic: &Traffic, plan: &Plan, cpus: u32) -> Capacity {
    let pins = if plan.pinned { traffic.flows } else { Capacity::default().pins };
    Capacity {
        flows: traffic.flows,
        pins,
        services: traffic.vips.max(8),
        rings: 2 * traffic.vips.max(8),
        full_nat_flows: if plan.forward == Forward::FullNat { traffic.flows } else { 0 },
        cpus,
        sample_every: plan.sample_every,
        ..Capacity::default()
    }
}

impl Equipoise {
    pub(crate) fn load(
        name: &'static str,
        traffic: &Traffic,
        plan: Plan,
        cpus: u32,
    ) -> Result<Equipoise> {
        Equipoise::load_build(OBJECT, name, traffic, plan, cpus)
    }

    /// The same with another build of the program.
    pub(crate) fn load_build(
        object: &[u8],
        name: &'static str,
        traffic: &Traffic,
        plan: Plan,
        cpus: u32,
    ) -> Result<Equipoise> {
        let capacity = capacity(traffic, &plan, cpus);
        let limits = Limits::new(&capacity);
        let mut program = Program::load_build(object, &limits)?;
        if plan.forward == Forward::Nat {
            program.translate(TranslatedFlows::create(&limits)?)?;
        }
        let publisher = tables::publish(program.memory(), &limits, &capacity, traffic, &plan)?;
        Ok(Equipoise { name, program, plan, traffic: *traffic, logged: 0, _publisher: publisher })
    }
}

impl Contender for Equipoise {
    fn name(&self) -> &str {
        self.name
    }

    fn program(&self) -> BorrowedFd<'_> {
        self.program.entry_fd(Entry::Balance)
    }

    fn vips(&self) -> u32 {
        self.traffic.vips
    }

    fn keep_up(&mut self) -> Result<()> {
        for cpu in &self.program.memory().cpus {
            self.logged += cpu.drain(|_| {}) as u64;
        }
        Ok(())
    }

    fn counters(&self) -> Result<Counters> {
        let memory = self.program.memory();
        let mut counters = Counters { new_flows: self.logged, ..Counters::default() };
        for service in 0..self.traffic.vips as usize {
            for cpu in &memory.cpus {
                counters.forwarded += cpu.service(service)[0];
                counters.recorded += cpu.hows(service)[How::Pin as usize].load(Relaxed);
            }
        }
        for backend in 0..usize::from(self.plan.backends) {
            let of_vip = |cpu: &CpuMemory, vip| {
                cpu.backend(tables::first_backend(vip, &self.plan) + backend)[0]
            };
            let of_cpu = |cpu| (0..self.traffic.vips).map(|vip| of_vip(cpu, vip)).sum::<u64>();
            let packets: u64 = memory.cpus.iter().map(of_cpu).sum();
            counters.backends += usize::from(packets > 0);
        }
        Ok(counters)
    }

    fn complaints(&self) -> String {
        let memory = self.program.memory();
        let rows: Vec<_> = (0..self.traffic.vips as usize).map(Some).chain([None]).collect();
        let of_cpu = |cpu: &CpuMemory, reason: Reason| -> u64 {
            rows.iter().map(|row| cpu.reasons(*row)[reason as usize].load(Relaxed)).sum()
        };
        let packets = |reason| memory.cpus.iter().map(|cpu| of_cpu(cpu, reason)).sum::<u64>();
        let counted = Reason::ALL.iter().map(|reason| (reason.name(), packets(*reason)));
        let counted = counted.filter(|(_, packets)| *packets > 0);
        counted.map(|(name, packets)| format!("{name} {packets}")).collect::<Vec<_>>().join(", ")
    }

    fn grows_by(&self) -> usize {
        let family = if self.traffic.family == Family::V4 { 4 } else { 6 };
        let second = match (self.plan.replaced, family) {
            (None, _) => 0,
            (Some(_), 4) => 12,
            (Some(_), _) => 24,
        };
        self.plan.forward.header_bytes(family) + second
    }

    fn keeps_packet(&self) -> bool {
        !self.plan.forward.translates()
    }

    fn maps(&self) -> Result<Vec<(String, u64)>> {
        let object = self.program.object();
        let of_object = object.maps().map(|map| {
            let name = map.name().to_str().context("names of maps are text")?.to_string();
            Ok((name, map_bytes(map.as_fd())?))
        });
        let flows = self.program.translated().map(TranslatedFlows::map);
        let flows = flows.map(|map| Ok((TRANSLATED_FLOWS.to_string(), map_bytes(map.as_fd())?)));
        of_object.chain(flows).collect()
    }
}
