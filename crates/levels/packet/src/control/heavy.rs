//! The flows with the most bytes, and the load of backends that comes from them: SDLB estimates the
//! load of hosts by a count-min sketch of elephant flows.
//!
//! The program adds sampled packets to sketches (`bpf/include/sketch.h`). At the end of a window,
//! the estimates of all CPUs are added: each is at least the flow's sampled bytes at its CPU.

use std::collections::HashMap;
use std::net::SocketAddr;
use std::time::{Duration, Instant};

use super::Control;
use super::registered::FlowId;
use super::service::Service;
use crate::abi::{FlowKey, Heavy};
use crate::directory::address_of;
use crate::memory::Sketch;
use crate::snapshot::{BackendId, VipId};

/// Length of a window.
const WINDOW: Duration = Duration::from_secs(10);
/// Largest number of flows in the result.
const FLOWS_MAX: usize = 64;
/// Largest number of flows whose estimates are added over all CPUs.
const CANDIDATES_MAX: usize = 1024;

/// A flow with many bytes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Elephant {
    /// VIP of the flow.
    pub vip: VipId,
    /// The flow.
    pub flow: FlowId,
    /// Its backend; `None` if it has left since.
    pub backend: Option<BackendId>,
    /// Estimate of its bytes in the window.
    pub bytes: u64,
}

/// Bytes of a backend in a window.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct BackendBytes {
    /// VIP of the backend.
    pub vip: VipId,
    /// The backend.
    pub backend: BackendId,
    /// Bytes, counted.
    pub bytes: u64,
    /// Estimate of the bytes of its flows that are listed.
    pub heavy_bytes: u64,
}

/// The last complete window.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Elephants {
    /// Length of the window.
    pub window: Duration,
    /// Packets for each sample.
    pub sample_every: u32,
    /// The flows with the most bytes, the largest first.
    pub flows: Vec<Elephant>,
    /// Backends that have a slot.
    pub backends: Vec<BackendBytes>,
}

/// State between windows.
#[derive(Debug, Default)]
pub(super) struct Weighing {
    began: Option<Instant>,
    /// Bytes of each backend number at the beginning of the window.
    bytes_before: Vec<u64>,
    last: Option<Elephants>,
}

impl Control {
    /// Returns the flows with the most bytes in the last complete window; `None` if none is
    /// complete, or packets are not sampled.
    pub fn heavy_traffic(&self) -> Option<&Elephants> {
        self.weighing.last.as_ref()
    }

    /// Ends a window whose time is over.
    pub(super) fn weigh(&mut self, now: Instant) {
        if self.limits.sample_every == 0 {
            return;
        }
        let began = self.weighing.began;
        let window = began.map(|began| now.saturating_duration_since(began));
        if window.is_some_and(|window| window < WINDOW) {
            return;
        }
        let bytes = self.backend_bytes();
        let cpus = self.memories.iter().flat_map(|memory| &memory.cpus);
        let sketches: Vec<_> = cpus.map(|cpu| cpu.turn_sketches()).collect();
        // The first window began before this process.
        let last = window.map(|window| self.traffic(window, &sketches, &bytes));
        sketches.iter().for_each(Sketch::clear);
        self.weighing = Weighing { began: Some(now), bytes_before: bytes, last };
    }

    /// Bytes forwarded, by backend number.
    fn backend_bytes(&self) -> Vec<u64> {
        let cpus = || self.memories.iter().flat_map(|memory| &memory.cpus);
        let bytes = |number| cpus().map(|cpu| cpu.backend(number)[1]).sum();
        (0..self.limits.backends_max as usize).map(bytes).collect()
    }

    fn traffic(&self, window: Duration, sketches: &[Sketch<'_>], bytes: &[u64]) -> Elephants {
        let sample_every = self.limits.sample_every;
        let mut flows: Vec<_> = candidates(sketches)
            .into_iter()
            .filter_map(|it| {
                let sampled: u64 = sketches.iter().map(|sketch| sketch.estimate(it.digest)).sum();
                let service = self.services.get(usize::from(it.service))?.as_ref()?;
                Some(Elephant {
                    vip: service.id,
                    flow: flow_of(&it, service)?,
                    backend: service.slots.holder(it.slot).map(|holder| holder.backend),
                    bytes: sampled * u64::from(sample_every),
                })
            })
            .collect();
        flows.sort_by_key(|flow| std::cmp::Reverse(flow.bytes));
        flows.truncate(FLOWS_MAX);
        let mut heavy = HashMap::<_, u64>::new();
        for flow in &flows {
            *heavy.entry((flow.vip, flow.backend)).or_default() += flow.bytes;
        }
        let mut backends = Vec::new();
        for service in self.services.iter().flatten() {
            for (_, holder) in service.slots.held() {
                let (vip, backend) = (service.id, holder.backend);
                let number = usize::from(holder.number);
                let before = self.weighing.bytes_before.get(number).copied().unwrap_or_default();
                // A number that got another backend began at 0.
                let bytes = bytes[number].checked_sub(before).unwrap_or(bytes[number]);
                let heavy_bytes = heavy.get(&(vip, Some(backend))).copied().unwrap_or_default();
                backends.push(BackendBytes { vip, backend, bytes, heavy_bytes });
            }
        }
        Elephants { window, sample_every, flows, backends }
    }
}

/// The flows that any CPU remembers, by digest; those with the largest estimates if there are many.
fn candidates(sketches: &[Sketch<'_>]) -> Vec<Heavy> {
    let mut largest = HashMap::<u64, (u64, Heavy)>::new();
    for heavy in sketches.iter().flat_map(Sketch::heavy) {
        let (bytes, _) = largest.entry(heavy.digest).or_insert((0, heavy));
        *bytes += u64::from(heavy.bytes);
    }
    let mut all: Vec<_> = largest.into_values().collect();
    all.sort_by_key(|(bytes, _)| std::cmp::Reverse(*bytes));
    all.truncate(CANDIDATES_MAX);
    all.into_iter().map(|(_, heavy)| heavy).collect()
}

/// The flow of an entry, in the form of the VIP's flow key.
fn flow_of(heavy: &Heavy, service: &Service) -> Option<FlowId> {
    let vip = service.id.address;
    let source = address_of(&heavy.source, if vip.is_ipv4() { 4 } else { 6 })?;
    Some(match service.key {
        FlowKey::FiveTuple => {
            let port = |bytes: [u8; 2]| u16::from_be_bytes(bytes);
            let client = SocketAddr::new(source, port(heavy.source_port));
            FlowId::FiveTuple(client, SocketAddr::new(vip, port(heavy.destination_port)))
        }
        FlowKey::SourceAddress => FlowId::SourceAddress(source),
        FlowKey::SourceMac => FlowId::SourceMac(heavy.source_mac),
        FlowKey::SourcePrefix(bits) => FlowId::prefix(source, bits),
    })
}
