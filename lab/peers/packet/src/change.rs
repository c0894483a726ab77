//! How soon flows are learnt, and how long a change of a pool takes to publish, while packets run.

use std::collections::HashMap;
use std::sync::mpsc::{Receiver, Sender, channel};
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};
use equipoise_core::{AdminState, Generation, Health, Weight};
use equipoise_lab_runner::{Case, Row};
use equipoise_packet::abi::{FlowKey, Forward};
use equipoise_packet::{
    Access, BackendSpec, Capacity, Control, Entry, FlowScheduler, Limits, NextHop, OnDown,
    OwnTimeouts, Ports, Program, Protocol, Registry, Settings, Snapshot, Station, VipSpec,
};

use crate::driver::{Driver, Order, cpu_time_ns};
use crate::katran_style::mac;
use crate::network::stay_on;
use crate::time::BACKENDS;
use crate::traffic::{BALANCER_MAC, Family, PORT, Traffic};

/// The CPU of the packets, and that of the control side.
const PACKETS_CPU: usize = 0;
const CONTROL_CPU: usize = 1;
/// New flows that arrive at once when learning is measured: a tenth of a second's at 100 k a
/// second.
const NEW_FLOWS: u32 = 10_000;
/// Packets between two looks at what the control side has done.
const STEP: u32 = 1 << 13;
/// Nothing takes that long.
const PATIENCE: Duration = Duration::from_secs(60);

/// Requests to the control side.
enum Wish {
    Apply(Snapshot),
    Stop,
}

/// Its report after each tick.
struct Told {
    at: Instant,
    /// Of the tick, an application before it included.
    took: Duration,
    /// The same in CPU time: without what else ran on its CPU.
    worked_ms: f64,
    flows: usize,
    pins: usize,
    pending: usize,
    published: bool,
    began: bool,
    settled: bool,
}

pub(crate) fn measure(case: &Case, row: &mut Row, repetitions: usize) -> Result<()> {
    let flows = case.count("flows")? as u32;
    let traffic = Traffic { family: Family::V4, flows, vips: 1 };
    let new_flows = NEW_FLOWS * repetitions as u32;
    let capacity = Capacity {
        flows: flows + new_flows + flows / 8,
        pins: flows / 2,
        services: 8,
        rings: 16,
        ..Capacity::default()
    };
    let program = Program::load(&Limits::new(&capacity))?;
    let registry = Registry::anonymous(capacity.flows).context("memory of the registry")?;
    let memory = program.memory().clone();
    let control =
        Control::new(vec![memory], capacity, registry, Settings::default(), Instant::now())?;
    let (wish, wishes) = channel();
    let (tell, told) = channel();
    let driver = Driver::load(traffic)?;
    stay_on(None, PACKETS_CPU)?;
    thread::scope(|scope| {
        let control = scope.spawn(move || run_control(control, wishes, tell));
        let mut lab = Lab { driver, program: &program, told, seed: 0, generation: 0 };
        let measured = lab.measure(&wish, traffic, repetitions, row);
        // It may have ended by an error, which is the better one to tell.
        let _ = wish.send(Wish::Stop);
        let ended = control.join().map_err(|_| anyhow::anyhow!("the control side panicked"))?;
        ended.and(measured)
    })
}

/// Ticks when ticks are due, as the engine does.
fn run_control(mut control: Control, wishes: Receiver<Wish>, tell: Sender<Told>) -> Result<()> {
    stay_on(None, CONTROL_CPU)?;
    control.next_hops(&next_hops());
    control.take_frames(&[Station { ifindex: 1, mac: BALANCER_MAC }].into());
    loop {
        let pause = control.next_tick().saturating_duration_since(Instant::now());
        let wish = wishes.recv_timeout(pause);
        let (start, cpu_start_ns) = (Instant::now(), cpu_time_ns());
        match wish {
            Ok(Wish::Apply(snapshot)) => control.apply(&snapshot, start)?,
            Ok(Wish::Stop) => return Ok(()),
            Err(_) => {}
        }
        let tick = control.tick(Instant::now());
        let (at, took) = (Instant::now(), start.elapsed());
        let worked_ms = (cpu_time_ns() - cpu_start_ns) as f64 / 1e6;
        let status = control.status();
        let told = Told {
            at,
            took,
            worked_ms,
            flows: status.flows,
            pins: status.pins,
            pending: status.pending,
            published: tick.published.is_some(),
            began: !tick.began.is_empty(),
            settled: !tick.settled.is_empty(),
        };
        if tell.send(told).is_err() {
            return Ok(());
        }
    }
}

/// The side of the packets.
struct Lab<'a> {
    driver: Driver,
    program: &'a Program,
    told: Receiver<Told>,
    seed: u64,
    generation: u64,
}

impl Lab<'_> {
    fn measure(
        &mut self,
        wish: &Sender<Wish>,
        traffic: Traffic,
        repetitions: usize,
        row: &mut Row,
    ) -> Result<()> {
        self.apply(wish, BACKENDS)?;
        self.until(|told| told.published, &mut |_| {})?;
        // One log's worth at a time; otherwise flows would be reported only with their second
        // packet.
        let mut known = 0;
        for first in (0..traffic.flows).step_by(STEP as usize * 4) {
            let packets = (STEP * 4).min(traffic.flows - first);
            known = self.learn(first, packets, known)?.flows;
        }

        let mut learnt_ms: f64 = 0.0;
        for repetition in 0..repetitions as u32 {
            let first = traffic.flows + repetition * NEW_FLOWS;
            let start = Instant::now();
            self.run(Order::From(first), NEW_FLOWS)?;
            let told =
                self.until(|told| told.flows >= (first + NEW_FLOWS) as usize, &mut |_| {})?;
            learnt_ms = learnt_ms.max(ms(told.at - start));
        }
        row.figure("learnt_ms_max", learnt_ms);

        let mut worst = [0.0f64; 5];
        for repetition in 0..repetitions {
            // One backend leaves, comes back, leaves.
            let backends = if repetition % 2 == 0 { BACKENDS - 1 } else { BACKENDS };
            let (start, mut publication) = (Instant::now(), Duration::ZERO);
            self.apply(wish, backends)?;
            let (mut pending, mut worked_ms) = (0, 0.0f64);
            let mut each = |told: &Told| {
                pending = pending.max(told.pending);
                if told.published {
                    publication = publication.max(told.took);
                    worked_ms = worked_ms.max(told.worked_ms);
                }
            };
            let began = self.until(|told| told.began, &mut each)?;
            let settled = self.until(|told| told.settled, &mut each)?;
            let (announced, settled_ms) = (ms(began.at - start), ms(settled.at - start));
            let now = [announced, ms(publication), settled_ms, pending as f64, worked_ms];
            worst = std::array::from_fn(|at| worst[at].max(now[at]));
            row.figure("pins", settled.pins as f64);
        }
        row.figure("announced_ms_max", worst[0])
            .figure("publication_ms_max", worst[1])
            .figure("settled_ms_max", worst[2])
            .figure("pending_max", worst[3])
            .figure("publication_cpu_ms_max", worst[4]);
        Ok(())
    }

    /// Sends a packet of each of `flows` new flows and waits until the registry knows them. All but
    /// one in a thousand: a flow that shares its tag with another one is reported in another
    /// interval.
    fn learn(&mut self, first: u32, flows: u32, known: usize) -> Result<Told> {
        self.run(Order::From(first), flows)?;
        let enough = known + (flows - flows / 1000) as usize;
        self.until(|told| told.flows >= enough, &mut |_| {})
    }

    fn apply(&mut self, wish: &Sender<Wish>, backends: u16) -> Result<()> {
        self.generation += 1;
        let vips = vec![vip(backends)];
        let snapshot = Snapshot { generation: Generation(self.generation), vips };
        wish.send(Wish::Apply(snapshot)).context("the control side has ended")
    }

    fn run(&mut self, order: Order, packets: u32) -> Result<()> {
        self.driver.run(Some(self.program.entry_fd(Entry::Balance)), order, packets).map(drop)
    }

    /// Sends packets of known flows until a tick is what is waited for; shows every tick to `each`.
    fn until(
        &mut self,
        is_it: impl Fn(&Told) -> bool,
        each: &mut dyn FnMut(&Told),
    ) -> Result<Told> {
        let start = Instant::now();
        loop {
            while let Ok(told) = self.told.try_recv() {
                each(&told);
                if is_it(&told) {
                    return Ok(told);
                }
            }
            ensure!(start.elapsed() < PATIENCE, "the control side does not come to an end");
            // Before the tables are set up packets would pass.
            if self.generation > 1 {
                self.seed += 1;
                self.run(Order::Random { seed: self.seed }, STEP)?;
            } else {
                thread::sleep(Duration::from_millis(1));
            }
        }
    }
}

fn ms(duration: Duration) -> f64 {
    1e3 * duration.as_secs_f64()
}

fn vip(backends: u16) -> VipSpec {
    let backend = |number: u16| BackendSpec {
        backup: false,
        address: Family::V4.backend(usize::from(number)),
        port: None,
        weight: Weight::DEFAULT,
        admin: AdminState::Up,
        health: Health::Healthy,
        on_down: OnDown::Move,
    };
    VipSpec {
        sources: Default::default(),
        address: Family::V4.vip(0),
        ports: Ports::One(PORT),
        protocol: Protocol::Tcp,
        forward: Forward::DirectRouting,
        key: FlowKey::FiveTuple,
        scheduler: FlowScheduler::Maglev,
        access: Access::default(),
        timeouts: OwnTimeouts::default(),
        quic: None,
        second_chance: false,
        backends: (0..backends).map(backend).collect(),
    }
}

fn next_hops() -> HashMap<std::net::IpAddr, NextHop> {
    let hop = |number: u16| {
        let destination_mac = Some(mac(number));
        NextHop { ifindex: 1, destination_mac, source_mac: BALANCER_MAC, mtu: 1500 }
    };
    (0..BACKENDS).map(|number| (Family::V4.backend(usize::from(number)), hop(number))).collect()
}
