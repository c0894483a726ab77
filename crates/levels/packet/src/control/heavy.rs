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
#[derive(Clone, Debug, PartialEq)]
pub struct Elephant {
    /// VIP of the flow.
    pub vip: VipId,
    /// The flow.
    pub flow: FlowId,
    /// Its backend; `None` if it has left since.
    pub backend: Option<BackendId>,
    /// Estimate of its bytes in the window; those of all flows are at most the bytes counted at
    /// their backend.
    pub bytes: u64,
    /// Standard error of the estimate, as a part of it. `None` without packets
    /// at the backend.
    pub error: Option<f64>,
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
#[derive(Clone, Debug, Default, PartialEq)]
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
    /// Packets and bytes of each backend number at the beginning of the window.
    before: Vec<[u64; 2]>,
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
        let counts = self.backend_counts();
        let cpus = self.memories.iter().flat_map(|memory| &memory.cpus);
        let sketches: Vec<_> = cpus.map(|cpu| cpu.turn_sketches()).collect();
        // The first window began before this process.
        let last = window.map(|window| self.traffic(window, &sketches, &counts));
        sketches.iter().for_each(Sketch::clear);
        self.weighing = Weighing { began: Some(now), before: counts, last };
    }

    /// Packets and bytes forwarded, by backend number.
    fn backend_counts(&self) -> Vec<[u64; 2]> {
        let cpus = || self.memories.iter().flat_map(|memory| &memory.cpus);
        let counts = |number| {
            cpus()
                .map(|cpu| cpu.backend(number))
                .fold([0; 2], |sum, it| [sum[0] + it[0], sum[1] + it[1]])
        };
        (0..self.limits.backends_max as usize).map(counts).collect()
    }

    fn traffic(&self, window: Duration, sketches: &[Sketch<'_>], counts: &[[u64; 2]]) -> Elephants {
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
                    error: None,
                })
            })
            .collect();
        flows.sort_by_key(|flow| std::cmp::Reverse(flow.bytes));
        flows.truncate(FLOWS_MAX);
        let mut backends = Vec::new();
        for service in self.services.iter().flatten() {
            for (_, holder) in service.slots.held() {
                let (vip, backend) = (service.id, holder.backend);
                let [packets, bytes] = self.counted_in_window(usize::from(holder.number), counts);
                let of_backend =
                    flows.iter_mut().filter(|it| (it.vip, it.backend) == (vip, Some(backend)));
                let heavy_bytes = bounded(of_backend, [packets, bytes], sample_every);
                backends.push(BackendBytes { vip, backend, bytes, heavy_bytes });
            }
        }
        // Those of other backends may have become smaller.
        flows.sort_by_key(|flow| std::cmp::Reverse(flow.bytes));
        Elephants { window, sample_every, flows, backends }
    }

    /// Packets and bytes of a backend number in the window.
    fn counted_in_window(&self, number: usize, counts: &[[u64; 2]]) -> [u64; 2] {
        let before = self.weighing.before.get(number).copied().unwrap_or_default();
        // A number that got another backend began at 0.
        [0, 1].map(|of| counts[number][of].checked_sub(before[of]).unwrap_or(counts[number][of]))
    }
}

/// Reduces the estimates of a backend's flows in proportion, if together they are above its counted
/// bytes: with few packets, one sample stands for more than there are. Sets their errors, and
/// returns their sum.
fn bounded<'a>(
    flows: impl Iterator<Item = &'a mut Elephant>,
    [packets, bytes]: [u64; 2],
    sample_every: u32,
) -> u64 {
    let mut flows: Vec<_> = flows.collect();
    let estimated: u64 = flows.iter().map(|flow| flow.bytes).sum();
    let unsampled = 1.0 - f64::from(sample_every).recip();
    let mean_bytes = (packets > 0).then(|| bytes as f64 / packets as f64);
    for flow in &mut flows {
        let samples = mean_bytes.map(|mean| flow.bytes as f64 / mean / f64::from(sample_every));
        flow.error = samples.filter(|it| *it > 0.0).map(|it| (unsampled / it).sqrt());
        if estimated > bytes {
            flow.bytes =
                (u128::from(flow.bytes) * u128::from(bytes) / u128::from(estimated)) as u64;
        }
    }
    estimated.min(bytes)
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
