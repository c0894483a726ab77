//! Runs a program under test on packets, through the kernel's `BPF_PROG_TEST_RUN`.

use std::mem::MaybeUninit;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd};

use anyhow::{Context, Result, ensure};
use libbpf_rs::skel::{OpenSkel, SkelBuilder};
use libbpf_rs::{MapCore, MapFlags, OpenObject, ProgramInput};
use rustix::time::{ClockId, clock_gettime};

use crate::contender::Contender;
use crate::skew::Zipf;
use crate::traffic::{Family, LINK_BYTES, Traffic};

mod skeleton {
    #![allow(warnings, clippy::all, reason = "generated")]
    include!(concat!(env!("OUT_DIR"), "/driver.skel.rs"));
}
pub(crate) use skeleton::DriverSkel;

/// XDP_TX, XDP_REDIRECT
pub(crate) const FORWARDED: [u32; 2] = [3, 4];

/// Which flows come.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Order {
    /// Independent draws; the same for the same seed.
    Random { seed: u64 },
    /// As drawn before by [`Driver::draw`], from this draw on.
    Drawn { from: u32 },
    /// From this one on, each once.
    From(u32),
}

/// Packets of flows that the programs have not seen, between those of others.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Strangers {
    /// Share of packets, of 65536.
    pub(crate) share: u32,
    pub(crate) tcp_flags: u8,
}

/// The driver, loaded.
pub(crate) struct Driver {
    skeleton: DriverSkel<'static>,
    traffic: Traffic,
}

impl Driver {
    pub(crate) fn load(traffic: Traffic) -> Result<Driver> {
        // Lives as long as the process: a lab program loads a handful.
        let object: &'static mut MaybeUninit<OpenObject> =
            Box::leak(Box::new(MaybeUninit::uninit()));
        let open = skeleton::DriverSkelBuilder::default().open(object)?;
        let skeleton = open.load().context("loading the driver: are you root?")?;
        let mut driver = Driver { skeleton, traffic };
        driver.set_up()?;
        Ok(driver)
    }

    fn set_up(&mut self) -> Result<()> {
        let traffic = self.traffic;
        // Flow 0 is the one with zero bits.
        let frame = traffic.frame(0);
        let address_bytes = traffic.family.address_bytes();
        let ports_at = LINK_BYTES + traffic.family.header_bytes();
        let destination_at = ports_at - address_bytes;
        let source_at = destination_at - address_bytes;
        let shared = self.shared()?;
        for (word, bytes) in shared.frame.iter_mut().zip(frame.chunks(8)) {
            *word = word_of(bytes);
        }
        let words = |at: usize| match traffic.family {
            Family::V4 => [0, word_of(&frame[at..at + 4])],
            Family::V6 => [word_of(&frame[at..at + 8]), word_of(&frame[at + 8..at + 16])],
        };
        shared.source = words(source_at);
        shared.destination = words(destination_at);
        shared.ports = word_of(&frame[ports_at..ports_at + 4]) as u32;
        shared.flows = traffic.flows;
        shared.vip_mask = traffic.vips - 1;
        Ok(())
    }

    fn shared(&mut self) -> Result<&mut skeleton::types::traffic> {
        let bss = self.skeleton.maps.bss_data.as_mut().context("the driver's variables")?;
        Ok(&mut bss.traffic)
    }

    /// Whether a packet waits for the one before: see the driver's `arrived`.
    pub(crate) fn set_apart(&mut self, apart: bool) -> Result<()> {
        self.shared()?.apart = apart.into();
        Ok(())
    }

    /// The number of VIPs, of those of the traffic, that packets go to.
    pub(crate) fn set_vips(&mut self, vips: u32) -> Result<()> {
        self.shared()?.vip_mask = vips - 1;
        Ok(())
    }

    /// Packets of strangers from now on, or none. IPv4 only.
    pub(crate) fn set_strangers(&mut self, strangers: Option<Strangers>) -> Result<()> {
        ensure!(strangers.is_none() || self.traffic.family == Family::V4, "strangers have IPv4");
        let strangers = strangers.unwrap_or(Strangers { share: 0, tcp_flags: 0 });
        let shared = self.shared()?;
        shared.strangers = strangers.share;
        shared.stranger_flags = strangers.tcp_flags.into();
        Ok(())
    }

    /// Draws flows for [`Order::Drawn`].
    pub(crate) fn draw(&mut self, zipf: &Zipf, seed: u64) -> Result<()> {
        let bss = self.skeleton.maps.bss_data.as_mut().context("the driver's variables")?;
        bss.draws.iter_mut().zip(zipf.draws(seed)).for_each(|(place, flow)| *place = flow);
        Ok(())
    }

    fn set_order(&mut self, order: Order) -> Result<()> {
        let shared = self.shared()?;
        (shared.in_order, shared.drawn) = (0, 0);
        match order {
            Order::Random { seed } => {
                // The generator's zero would stay zero; and neighbouring seeds begin alike.
                shared.random = (seed | 1).wrapping_mul(0x9e37_79b9_7f4a_7c15);
            }
            Order::Drawn { from } => {
                shared.drawn = 1;
                shared.next = from;
                shared.random = u64::from(from) << 1 | 1;
            }
            Order::From(flow) => {
                shared.in_order = 1;
                shared.next = flow;
            }
        }
        Ok(())
    }

    /// The program that does nothing.
    pub(crate) fn nothing(&self) -> BorrowedFd<'_> {
        self.skeleton.progs.nothing.as_fd()
    }

    /// Makes `program` the one under test.
    fn call(&self, program: BorrowedFd<'_>) -> Result<()> {
        let value = program.as_raw_fd().to_ne_bytes();
        self.skeleton
            .maps
            .contender
            .update(&0u32.to_ne_bytes(), &value, MapFlags::ANY)
            .context("the program cannot be called by the driver")
    }

    /// Runs `program` on `packets` packets; `None`: the program that does nothing. Gives
    /// nanoseconds of CPU time a packet, the driver's included.
    ///
    /// CPU time of this thread and not the kernel's own clock: what else runs on the machine is not
    /// in it.
    pub(crate) fn run(
        &mut self,
        program: Option<BorrowedFd<'_>>,
        order: Order,
        packets: u32,
    ) -> Result<f64> {
        self.set_order(order)?;
        self.call(program.unwrap_or(self.nothing()))?;
        let frame = self.traffic.frame(0);
        let input = ProgramInput { data_in: Some(&frame), repeat: packets, ..Default::default() };
        let before = cpu_time_ns();
        let output = self.drive().test_run(input)?;
        let elapsed_ns = cpu_time_ns() - before;
        let verdict = output.return_value;
        ensure!(FORWARDED.contains(&verdict), "the last packet's verdict is {verdict}");
        Ok(elapsed_ns as f64 / f64::from(packets))
    }

    /// The frame that `program` makes of a packet of `flow`, and its verdict.
    pub(crate) fn run_one(&mut self, program: BorrowedFd<'_>, flow: u32) -> Result<(u32, Vec<u8>)> {
        self.set_order(Order::From(flow))?;
        self.call(program)?;
        let frame = self.traffic.frame(0);
        let mut out = vec![0; 256];
        let input =
            ProgramInput { data_in: Some(&frame), data_out: Some(&mut out), ..Default::default() };
        let output = self.drive().test_run(input)?;
        let frame = output.data.map(|data| data.to_vec()).unwrap_or_default();
        Ok((output.return_value, frame))
    }

    /// Sends packets by the interface `ifindex` of this thread's network namespace.
    pub(crate) fn send(&mut self, ifindex: u32, order: Order, packets: u32) -> Result<()> {
        const LIVE_FRAMES: u32 = 1 << 1; // BPF_F_TEST_XDP_LIVE_FRAMES
        ensure!(self.traffic.family == Family::V4, "only IPv4 is sent");
        self.set_order(order)?;
        self.shared()?.ifindex = ifindex;
        let frame = self.traffic.frame(0);
        let input = ProgramInput {
            data_in: Some(&frame),
            repeat: packets,
            flags: LIVE_FRAMES,
            ..Default::default()
        };
        self.skeleton.progs.send4.test_run(input).context("sending live frames")?;
        Ok(())
    }

    fn drive(&self) -> &libbpf_rs::ProgramMut<'static> {
        match self.traffic.family {
            Family::V4 => &self.skeleton.progs.drive4,
            Family::V6 => &self.skeleton.progs.drive6,
        }
    }

    /// Takes every flow through a contender once, so that it knows them all, with userspace keeping
    /// up.
    pub(crate) fn introduce(&mut self, contender: &mut dyn Contender) -> Result<()> {
        const STEP: u32 = 1 << 15;
        self.set_vips(contender.vips())?;
        let mut flow = 0;
        while flow < self.traffic.flows {
            let packets = STEP.min(self.traffic.flows - flow);
            self.run(Some(contender.program()), Order::From(flow), packets)?;
            contender.keep_up()?;
            flow += packets;
        }
        Ok(())
    }
}

/// Up to eight bytes as they lie in memory, the rest zero.
fn word_of(bytes: &[u8]) -> u64 {
    let mut padded = [0; 8];
    padded[..bytes.len()].copy_from_slice(bytes);
    u64::from_ne_bytes(padded)
}

/// Of this thread.
pub(crate) fn cpu_time_ns() -> u64 {
    let time = clock_gettime(ClockId::ThreadCPUTime);
    time.tv_sec as u64 * 1_000_000_000 + time.tv_nsec as u64
}
