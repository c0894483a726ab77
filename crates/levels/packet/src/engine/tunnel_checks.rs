//! Health checks on the data path: a TCP handshake with a VIP through the tunnel to one backend.
//!
//! A thread sends each backend a SYN for the VIP, with the same outer headers as the program. The
//! source is an address of this machine, so the backend's SYN-ACK returns directly. A RST through
//! the tunnel ends the connection before an application sees it. In: [`TunnelCheck`]s and next
//! hops. Out: a [`TunnelReport`] for each backend, [`Notice`]s.

mod encapsulation;
mod rounds;
mod segment;
mod sockets;

use std::collections::{BTreeMap, HashMap, HashSet};
use std::io;
use std::net::{IpAddr, SocketAddr};
use std::os::fd::OwnedFd;
use std::sync::{Arc, Mutex, MutexGuard};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

use equipoise_basics::lock;
use equipoise_core::Health;
use equipoise_health::ActiveHealth;
use rustix::event::{EventfdFlags, PollFd, PollFlags, Timespec, eventfd, poll};
use thiserror::Error;

use super::notice::Notice;
use crate::abi::Forward;
use crate::control::Settings;
use crate::own_address::source_towards;
use crate::privileges::{Capabilities, give_up};
use crate::snapshot::{BackendId, NextHop, VipId};
use encapsulation::Outer;
use rounds::{Key, Outgoing, Rounds, Way};
use segment::{RST, SYN, Segment};
use sockets::Sockets;

/// Minimum interval between two passes over all backends.
const TICK_MIN: Duration = Duration::from_millis(5);
/// Maximum number of answers processed in one pass.
const ANSWERS_MAX: usize = 1024;

/// A check of one backend of a VIP through its tunnel.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TunnelCheck {
    /// The VIP; its protocol is TCP.
    pub vip: VipId,
    /// Port of the VIP to check.
    pub port: u16,
    /// Forwarding method: tunnel or GUE.
    pub forward: Forward,
    /// The backend.
    pub backend: BackendId,
    /// Interval, timeout, rise and fall. The kind of check and the port belong to the pool's own
    /// checks and are ignored.
    pub rules: ActiveHealth,
}

/// State of a backend's check through its tunnel.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TunnelReport {
    /// Verdict of the checks; unknown before the first one.
    pub health: Health,
    /// Error of the last check, if it failed.
    pub error: Option<TunnelError>,
}

/// A check through a tunnel failed.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
pub enum TunnelError {
    /// There was no answer.
    #[error("no answer through the tunnel within {0:?}")]
    NoAnswer(Duration),
    /// The backend has the VIP, but no process listens on the port.
    #[error("connection refused through the tunnel")]
    Refused,
    /// The next hop of the backend is unresolved.
    #[error("the MAC address of the next hop to it is not known")]
    NoNextHop,
    /// No address of this machine is suitable as the source.
    #[error(
        "not checked through the tunnel: this machine has no address of the VIP's IP family that the backend could answer to"
    )]
    NoSource,
    /// No check of any backend is possible.
    #[error(
        "not checked through the tunnel: cannot open a packet socket (it needs CAP_NET_RAW): {0}"
    )]
    NoSocket(String),
    /// The kernel did not send the packet.
    #[error("not checked through the tunnel: cannot send: {0}")]
    CannotSend(io::ErrorKind),
}

impl TunnelError {
    /// Whether the error is the backend's, not this machine's.
    fn blames_backend(&self) -> bool {
        matches!(self, TunnelError::NoAnswer(_) | TunnelError::Refused | TunnelError::NoNextHop)
    }
}

/// The checks through tunnels. Without any check, there is no thread and no socket.
pub(super) struct TunnelChecks {
    outer: Outer,
    heard: Arc<dyn Fn(Vec<Notice>) -> bool + Send + Sync>,
    running: Option<Running>,
    /// Reports of configured checks that are not possible.
    not_made: BTreeMap<Key, TunnelReport>,
}

struct Running {
    shared: Arc<Shared>,
    thread: Option<JoinHandle<()>>,
}

struct Shared {
    state: Mutex<State>,
    /// Wakes the thread.
    wake: OwnedFd,
}

#[derive(Default)]
struct State {
    rounds: Rounds,
    hops: HashMap<IpAddr, NextHop>,
    /// The addresses of all VIPs. Backends have them, too, so none can be the source of a check.
    vips: HashSet<IpAddr>,
    is_stopped: bool,
}

impl TunnelChecks {
    /// Makes it without checks. `heard` receives changes of verdicts, and returns `false` when they
    /// are no longer needed.
    pub(super) fn new(
        settings: &Settings,
        heard: impl Fn(Vec<Notice>) -> bool + Send + Sync + 'static,
    ) -> TunnelChecks {
        TunnelChecks {
            outer: Outer::new(settings),
            heard: Arc::new(heard),
            running: None,
            not_made: BTreeMap::new(),
        }
    }

    /// Replaces the set of checks. Returns a notice if they are not possible.
    pub(super) fn follow(
        &mut self,
        checks: &[TunnelCheck],
        vips: HashSet<IpAddr>,
        hops: &HashMap<IpAddr, NextHop>,
    ) -> Option<Notice> {
        let had_trouble = !std::mem::take(&mut self.not_made).is_empty();
        let running = self.running.take().filter(|_| !checks.is_empty());
        if running.is_none() && !checks.is_empty() {
            match Running::start(self.outer.clone(), Arc::clone(&self.heard)) {
                Ok(running) => self.running = Some(running),
                Err(error) => {
                    let error = TunnelError::NoSocket(error.to_string());
                    let report =
                        TunnelReport { health: Health::Unknown, error: Some(error.clone()) };
                    let keys = checks.iter().map(|check| (check.vip, check.backend));
                    self.not_made = keys.map(|key| (key, report.clone())).collect();
                    return (!had_trouble).then_some(Notice::NoTunnelChecks { error });
                }
            }
        } else {
            self.running = running;
        }
        self.tell(|state| {
            state.hops.clone_from(hops);
            state.vips = vips;
            state.rounds.follow(checks, Instant::now());
        });
        None
    }

    /// Replaces the next hops.
    pub(super) fn next_hops(&self, hops: &HashMap<IpAddr, NextHop>) {
        self.tell(|state| state.hops.clone_from(hops));
    }

    /// Returns the reports of all backends.
    pub(super) fn reports(&self) -> BTreeMap<Key, TunnelReport> {
        match &self.running {
            Some(running) => running.shared.lock().rounds.reports(),
            None => self.not_made.clone(),
        }
    }

    /// Returns the reports of backends with the same checks as these, which may be newer than the
    /// current ones.
    pub(super) fn reports_of(&self, checks: &[TunnelCheck]) -> BTreeMap<Key, TunnelReport> {
        let running = self.running.as_ref();
        running.map(|it| it.shared.lock().rounds.reports_of(checks)).unwrap_or_default()
    }

    fn tell(&self, change: impl FnOnce(&mut State)) {
        if let Some(running) = &self.running {
            change(&mut running.shared.lock());
            running.shared.wake();
        }
    }
}

impl Running {
    fn start(
        outer: Outer,
        heard: Arc<dyn Fn(Vec<Notice>) -> bool + Send + Sync>,
    ) -> io::Result<Running> {
        // Opened here, because the network namespace is that of this thread.
        let rounds = Rounds::default();
        let sockets = Sockets::open(rounds.mark())?;
        let wake = eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK)?;
        let state = State { rounds, ..State::default() };
        let shared = Arc::new(Shared { state: Mutex::new(state), wake });
        let of_thread = Arc::clone(&shared);
        let thread = thread::Builder::new().name("packet-checks".into()).spawn(move || {
            give_up(Capabilities::ALL);
            run(&of_thread, &sockets, &outer, &*heard);
        })?;
        Ok(Running { shared, thread: Some(thread) })
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        self.shared.lock().is_stopped = true;
        self.shared.wake();
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }
}

impl Shared {
    fn lock(&self) -> MutexGuard<'_, State> {
        lock(&self.state)
    }

    fn wake(&self) {
        // The write fails only if the counter overflows.
        let _ = rustix::io::write(&self.wake, &1u64.to_ne_bytes());
    }
}

/// Main function of the thread.
fn run(
    shared: &Shared,
    sockets: &Sockets,
    outer: &Outer,
    heard: &(dyn Fn(Vec<Notice>) -> bool + Send + Sync),
) {
    let mut ticked: Option<Instant> = None;
    loop {
        let (notices, wait) = {
            let state = &mut *shared.lock();
            if state.is_stopped {
                return;
            }
            let mut wire = Wire { sockets, outer, hops: &state.hops, vips: &state.vips };
            // Answers first: a thread that had no CPU for a while finds answers and expired
            // timeouts together.
            let receivers = [Some(&sockets.v4), sockets.v6.as_ref()];
            let answers =
                receivers.into_iter().flatten().flat_map(|it| std::iter::from_fn(|| it.next()));
            let rounds = &mut state.rounds;
            let mut notices: Vec<_> = answers
                .take(ANSWERS_MAX)
                .filter_map(|segment| rounds.hear(&segment, Instant::now(), &mut wire))
                .collect();
            let now = Instant::now();
            let pause = ticked.map_or(Duration::ZERO, |at| (at + TICK_MIN).duration_since(now));
            if pause.is_zero() {
                notices.extend(rounds.tick(now, &mut wire));
                ticked = Some(now);
            }
            let due = rounds.next_tick().map(|at| at.duration_since(now));
            (notices, due.map(|due| due.max(pause).max(TICK_MIN)))
        };
        if !notices.is_empty() && !heard(notices) {
            return;
        }
        await_input(shared, sockets, wait);
    }
}

fn await_input(shared: &Shared, sockets: &Sockets, wait: Option<Duration>) {
    let v6 = sockets.v6.as_ref().unwrap_or(&sockets.v4);
    let mut ready = [
        PollFd::new(&sockets.v4.packets, PollFlags::IN),
        PollFd::new(&v6.packets, PollFlags::IN),
        PollFd::new(&shared.wake, PollFlags::IN),
    ];
    let wait = wait.and_then(|it| Timespec::try_from(it).ok());
    if poll(&mut ready, wait.as_ref()).is_err() {
        // A signal, or no memory: no descriptor is ready.
        thread::sleep(TICK_MIN);
    }
    let _ = rustix::io::read(&shared.wake, &mut [0; 8]);
}

/// Sends segments to all backends.
struct Wire<'w> {
    sockets: &'w Sockets,
    outer: &'w Outer,
    hops: &'w HashMap<IpAddr, NextHop>,
    vips: &'w HashSet<IpAddr>,
}

impl Way for Wire<'_> {
    fn send(&mut self, check: &TunnelCheck, segment: Outgoing) -> Result<(), TunnelError> {
        let hop = self.hops.get(&check.backend.address).ok_or(TunnelError::NoNextHop)?;
        let vip = SocketAddr::new(check.vip.address, check.port);
        let source = source(vip.ip(), check.backend.address)
            .filter(|source| !self.vips.contains(source))
            .ok_or(TunnelError::NoSource)?;
        let port = self.sockets.port(vip.is_ipv4()).ok_or(TunnelError::NoSource)?;
        let (flags, sequence) = match segment {
            Outgoing::Syn { sequence } => (SYN, sequence),
            Outgoing::Rst { sequence } => (RST, sequence),
        };
        let from = SocketAddr::new(source, port);
        let packet = Segment { from, to: vip, sequence, acknowledged: 0, flags }.packet();
        let packet = packet.ok_or(TunnelError::NoSource)?;
        // The program uses bits of the flow's digest; each check uses other bits.
        let address = check.backend.address;
        let frame = self.outer.frame(&packet, check.forward, address, hop, sequence);
        let frame = frame.ok_or(TunnelError::NoNextHop)?;
        let sent = self.sockets.send(&frame, hop.ifindex);
        sent.map_err(|error| TunnelError::CannotSend(error.kind()))
    }
}

/// Returns the source of checks: this machine's address towards the backend, or towards the VIP's
/// clients if the VIP has the other IP family.
fn source(vip: IpAddr, backend: IpAddr) -> Option<IpAddr> {
    let towards = if vip.is_ipv4() == backend.is_ipv4() { backend } else { vip };
    source_towards(towards).filter(|it| !it.is_unspecified() && !it.is_loopback())
}
