//! The cost of a request, by the kind of backend.

use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};
use std::sync::{Condvar, Mutex, PoisonError};
use std::thread;
use std::time::Duration;

use anyhow::Result;
use clap::ValueEnum;
use rand::RngExt;

use crate::Arguments;
use crate::gate::Gate;
use crate::memory::Regions;

/// How a backend serves.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum Kind {
    /// CPU time of `work-ms`
    Cpu,
    /// 20 ms of waiting, then CPU time of `work-ms` under a lock that wakes every waiter when it is
    /// free
    Lock,
    /// A MiB of memory for `work-ms`, of which `memory-mib` holds a few
    Memory,
    /// `work-ms` in one of `slots`
    Slots,
    /// `work-ms` on average, exponentially spread, in one of `slots`
    Pool,
    /// In one of `slots`: 1 ms, and every tenth `work-ms`
    Mixed,
    /// `work-ms` in one of `slots`, the longer the more requests wait
    Slowing,
}

/// The part of a request that needs no lock.
const BEFORE_LOCK: Duration = Duration::from_millis(20);
/// CPU time of a thread that wakes to find the lock taken.
const HERD: Duration = Duration::from_micros(150);
/// A slowing backend takes twice the time at so many requests beyond twice its slots.
const SLOWS_OVER: f64 = 16.0;

/// State shared by all connections.
pub(crate) struct Server {
    kind: Kind,
    work: Duration,
    slots: AtomicUsize,
    gate: Gate,
    lock: Herd,
    memory: Option<Regions>,
    in_flight: AtomicUsize,
}

impl Server {
    pub(crate) fn new(arguments: &Arguments) -> Result<Server> {
        let regions = || Regions::new(&arguments.name, arguments.threads);
        Ok(Server {
            kind: arguments.kind,
            work: Duration::try_from_secs_f64(arguments.work_ms / 1e3)?,
            slots: AtomicUsize::new(arguments.slots),
            gate: Gate::new(arguments.slots),
            lock: Herd::default(),
            memory: (arguments.kind == Kind::Memory).then(regions).transpose()?,
            in_flight: AtomicUsize::new(0),
        })
    }

    /// Changes a running backend, as `slots=4`.
    pub(crate) fn change(&self, change: &str) {
        if let Some(("slots", value)) = change.split_once('=')
            && let Ok(slots @ 1..) = value.parse()
        {
            self.slots.store(slots, Relaxed);
            self.gate.resize(slots);
        }
    }

    /// Serves a request, on the calling thread.
    pub(crate) fn work(&self) {
        self.in_flight.fetch_add(1, Relaxed);
        match self.kind {
            Kind::Cpu => burn(self.work),
            Kind::Lock => {
                thread::sleep(BEFORE_LOCK);
                self.lock.hold(self.work);
            }
            Kind::Memory => {
                if let Some(memory) = &self.memory {
                    memory.work(self.work);
                }
            }
            Kind::Slots | Kind::Pool | Kind::Mixed | Kind::Slowing => {
                self.gate.enter();
                thread::sleep(self.in_slot());
                self.gate.leave();
            }
        }
        self.in_flight.fetch_sub(1, Relaxed);
    }

    /// How long a request stays in its slot.
    fn in_slot(&self) -> Duration {
        let uniform: f64 = rand::rng().random_range(0.0..1.0);
        match self.kind {
            Kind::Pool => self.work.mul_f64(-(1.0 - uniform).ln()),
            Kind::Mixed if uniform < 0.9 => Duration::from_millis(1),
            Kind::Slowing => {
                let beyond =
                    self.in_flight.load(Relaxed) as f64 - 2.0 * self.slots.load(Relaxed) as f64;
                self.work.mul_f64(1.0 + beyond.max(0.0) / SLOWS_OVER)
            }
            _ => self.work,
        }
    }
}

/// A lock that wakes every waiter when it is free, of which all but one wait again.
#[derive(Default)]
struct Herd {
    is_held: Mutex<bool>,
    freed: Condvar,
}

impl Herd {
    fn hold(&self, work: Duration) {
        let mut is_held = self.is_held.lock().unwrap_or_else(PoisonError::into_inner);
        while *is_held {
            is_held = self.freed.wait(is_held).unwrap_or_else(PoisonError::into_inner);
            burn(HERD);
        }
        *is_held = true;
        drop(is_held);
        burn(work);
        *self.is_held.lock().unwrap_or_else(PoisonError::into_inner) = false;
        self.freed.notify_all();
    }
}

/// Uses CPU time of this thread: not what passes while it does not run.
fn burn(time: Duration) {
    let begun = cpu_time();
    while cpu_time().saturating_sub(begun) < time {
        std::hint::spin_loop();
    }
}

/// CPU time that this thread has used.
fn cpu_time() -> Duration {
    let mut time = libc::timespec { tv_sec: 0, tv_nsec: 0 };
    // SAFETY: the clock exists on Linux, and `time` is a timespec to write to.
    let result = unsafe { libc::clock_gettime(libc::CLOCK_THREAD_CPUTIME_ID, &raw mut time) };
    assert_eq!(result, 0, "a thread has a CPU clock");
    // The kernel's times are not negative.
    Duration::new(time.tv_sec as u64, time.tv_nsec as u32)
}
