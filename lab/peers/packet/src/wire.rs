//! Packets a second through a pair of veth interfaces in native mode: generator, balancer,
//! receiver.

use std::mem::MaybeUninit;
use std::os::fd::{AsFd, BorrowedFd};
use std::time::Instant;

use anyhow::{Context, Result, ensure};
use libbpf_rs::OpenObject;
use libbpf_rs::skel::{OpenSkel, SkelBuilder};
use rustix::thread::Pid;

use crate::contender::Contender;
use crate::driver::{Driver, Order};
use crate::network::{Network, seconds_run, stay_on};

mod skeleton {
    #![allow(warnings, clippy::all, reason = "generated")]
    include!(concat!(env!("OUT_DIR"), "/receiver.skel.rs"));
}

/// Of generator and receiver.
const ROUTER_CPU: usize = 0;

/// Where the balancer runs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Place {
    /// Generator, balancer and receiver take turns on one CPU: nothing waits, wakes up or is
    /// dropped.
    SameCpu,
    /// The balancer's interface has a thread and a CPU of its own.
    OwnCpu,
}

impl Place {
    pub(crate) fn balancer_cpu(self) -> usize {
        match self {
            Place::SameCpu => ROUTER_CPU,
            Place::OwnCpu => ROUTER_CPU + 1,
        }
    }
}

/// The wire with a receiver at its end.
pub(crate) struct Wire {
    pub(crate) network: Network,
    receiver: skeleton::ReceiverSkel<'static>,
    place: Place,
    balancer_thread: Option<Pid>,
}

/// The measured rate on the wire.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Rate {
    pub(crate) sent_per_second: f64,
    /// As the receiver expects them of the balancer.
    pub(crate) received_per_second: f64,
    /// Part of the time in which the balancer's thread, if it has one, was running.
    pub(crate) balancer_busy: f64,
}

impl Wire {
    pub(crate) fn make(place: Place) -> Result<Wire> {
        let network = Network::make()?;
        let object: &'static mut MaybeUninit<OpenObject> =
            Box::leak(Box::new(MaybeUninit::uninit()));
        let receiver = skeleton::ReceiverSkelBuilder::default()
            .open(object)?
            .load()
            .context("loading the receiver: are you root?")?;
        network.router.attach(Some(receiver.progs.receive.as_fd()))?;
        if place == Place::OwnCpu {
            network.router.receive_on(ROUTER_CPU)?;
        }
        Ok(Wire { network, receiver, place, balancer_thread: None })
    }

    /// Puts a program on the balancer's interface.
    pub(crate) fn balance_by(&mut self, program: BorrowedFd<'_>) -> Result<()> {
        self.network.balancer.attach(Some(program))?;
        // Replacing the program keeps the thread.
        if self.place == Place::OwnCpu && self.balancer_thread.is_none() {
            let cpu = self.place.balancer_cpu();
            self.balancer_thread = Some(self.network.balancer.receive_on(cpu)?);
        }
        Ok(())
    }

    /// Sends `packets` packets as fast as they go.
    pub(crate) fn send(
        &mut self,
        driver: &mut Driver,
        contender: &mut dyn Contender,
        order: Order,
        packets: u32,
    ) -> Result<Rate> {
        stay_on(None, ROUTER_CPU)?;
        let run = || self.balancer_thread.map_or(Ok(f64::NAN), seconds_run);
        let (before, run_before) = (self.received()?, run()?);
        let start = Instant::now();
        let ifindex = self.network.router.ifindex;
        self.network.router.inside(|| driver.send(ifindex, order, packets))?;
        let seconds = start.elapsed().as_secs_f64();
        let (after, run_after) = (self.received()?, run()?);
        contender.keep_up()?;
        ensure!(after.1 == before.1, "{} packets came back otherwise", after.1 - before.1);
        Ok(Rate {
            sent_per_second: f64::from(packets) / seconds,
            received_per_second: (after.0 - before.0) as f64 / seconds,
            balancer_busy: (run_after - run_before) / seconds,
        })
    }

    /// Packets that came back as they should, and others.
    fn received(&self) -> Result<(u64, u64)> {
        let bss = self.receiver.maps.bss_data.as_ref().context("the receiver's variables")?;
        let counts = std::ptr::from_ref(&bss.received);
        // SAFETY: the mapped counters, aligned and alive; the program writes them concurrently,
        // hence volatile.
        let counts = unsafe { counts.read_volatile() };
        Ok((counts.tunnelled + counts.direct, counts.other))
    }
}
