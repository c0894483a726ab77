//! The engine's thread.

mod load;
mod observing;
mod sharing;
mod translating;

use std::collections::BTreeSet;
use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;
use std::sync::mpsc::{Receiver, RecvTimeoutError, Sender};
use std::thread;
use std::time::{Duration, Instant};

use equipoise_core::Health;

use self::load::{Loaded, load};
use self::translating::translate_at_start;
use super::attach::Attachments;
use super::capturing::{Capturing, forget};
use super::device::Device;
use super::exhausted::PortsExhausted;
use super::kernel::{accepts_local, forwards};
use super::netlink::Netlink;
use super::next_hops::{Change, NextHops};
use super::notice::Notice;
use super::offloads::Offloads;
use super::place::Place;
use super::sources::SourceAddresses;
use super::tunnel_checks::TunnelChecks;
use super::watch::Watch;
use super::{EngineError, EngineOptions, EngineStatus, Explanation, Input, Leave, Wanted};
use crate::abi::Forward;
use crate::clock::monotonic_ns;
use crate::config::FleetSecret;
use crate::control::{ApplyError, Control, FlowId, FullNatFlow, Tick};
use crate::fleet::Exchange;
use crate::limits::Limits;
use crate::own_address::is_own;
use crate::packet::Parsed;
use crate::privileges::{Capabilities, give_up};
use crate::program::Program;
use crate::snapshot::{BackendSpec, Protocol, Snapshot, Station, VipId, VipSpec};
use crate::twin::{Surroundings, Twin};

/// Maximum time to resolve next hops at the start, before the program is attached.
const RESOLVE_WAIT: Duration = Duration::from_millis(300);
/// Interval between log lines about a full registry.
const REGISTRY_FULL_LOG_EVERY: Duration = Duration::from_secs(60);
/// Delay after a failure to read the kernel's tables.
const NETWORK_RETRY: Duration = Duration::from_secs(1);

/// After a longer pause, the control side has nothing left to publish.
const PUBLISH_PAUSE_MAX: Duration = Duration::from_millis(20);
/// Maximum number of publications to wait for; later ones happen in ticks.
const PUBLICATIONS_MAX: usize = 3;

/// State of the engine's thread.
pub(super) struct Worker {
    place: Place,
    program: Program,
    limits: Limits,
    control: Control,
    hops: NextHops<Netlink>,
    attachments: Attachments,
    tunnels: TunnelChecks,
    wanted: Wanted,
    /// Destination MAC addresses of frames for this machine.
    stations: BTreeSet<Station>,
    /// Backends without a usable route, which have already been logged.
    said: BTreeSet<IpAddr>,
    /// Notices about settings of the kernel, which have already been logged.
    said_settings: Vec<Notice>,
    sources: SourceAddresses,
    exhausted: PortsExhausted,
    not_learnt: (usize, Option<Instant>),
    network_retry: Option<Instant>,
    /// Whether the last write of the ledger failed.
    ledger_failed: bool,
    /// For the threads that share flows.
    inputs: Sender<Input>,
    secret: Option<FleetSecret>,
    exchange: Option<Exchange>,
    capturing: Capturing,
    _watch: Watch,
}

impl Worker {
    /// Starts everything up to the attached program.
    pub(super) fn start(
        options: EngineOptions,
        wanted: Wanted,
        inputs: Sender<Input>,
        receive: &Receiver<Input>,
    ) -> Result<Worker, EngineError> {
        let now = Instant::now();
        let place = Place::open(&options.instance, &options.run_folder)?;
        let cpus = libbpf_rs::num_possible_cpus().map_err(EngineError::Cpus)?;
        let full_nat = wanted.snapshot.vips.iter().any(|vip| vip.forward == Forward::FullNat);
        let cpus = u32::try_from(cpus).unwrap_or(u32::MAX);
        let capacity = options.flows.capacity(cpus, full_nat);
        let seed = match &options.flows.seed {
            Some(secret) => secret.seed(),
            None => place.seed()?,
        };
        let settings = options.flows.settings(seed);
        let Loaded { mut program, control, is_new } = load(&place, &capacity, &settings, now)?;
        translate_at_start(&mut program, &place, &wanted.snapshot, is_new)?;
        give_up(Capabilities::LOADING);
        // Starts watching before the first read, so that no change is missed.
        let (checked, for_exchange) = (inputs.clone(), inputs.clone());
        let watch = Watch::start(move |changes| inputs.send(Input::Network(changes)).is_ok());
        let watch = watch.map_err(EngineError::Network)?;
        let network = Netlink::open().map_err(EngineError::Network)?;
        let mut worker = Worker {
            attachments: Attachments::new(
                place.pins(),
                Offloads::open(place.offloads(), options.flows.adjust_offloads),
            ),
            tunnels: TunnelChecks::new(&settings, move |notices| {
                checked.send(Input::Checked(notices)).is_ok()
            }),
            limits: *program.limits(),
            hops: NextHops::new(network).map_err(EngineError::Network)?,
            place,
            program,
            control,
            wanted: Wanted::default(),
            stations: BTreeSet::new(),
            said: BTreeSet::new(),
            said_settings: Vec::new(),
            sources: SourceAddresses::default(),
            exhausted: PortsExhausted::default(),
            not_learnt: (0, None),
            network_retry: None,
            ledger_failed: false,
            inputs: for_exchange,
            secret: options.flows.seed,
            exchange: None,
            capturing: Capturing::default(),
            _watch: watch,
        };
        // A killed process may have left a capture.
        forget(&worker.program);
        worker.sources.look(&wanted.snapshot);
        worker.control.apply(&worker.effective(&wanted), now)?;
        worker.wanted = wanted;
        // Only after the snapshot is accepted: a rejected one must leave nothing behind.
        if is_new {
            worker.place.pin_maps(&mut worker.program, &worker.limits)?;
        }
        worker.judge_forwarding();
        worker.aim(now);
        worker.resolve(receive);
        worker.take_frames();
        worker.publish_whole();
        worker.follow_interfaces(true);
        worker.check_tunnels();
        worker.follow_fleet();
        Ok(worker)
    }

    /// Waits briefly for next hops, so that the first packets find them.
    fn resolve(&mut self, receive: &Receiver<Input>) {
        let until = Instant::now() + RESOLVE_WAIT;
        loop {
            let now = Instant::now();
            self.follow_network(now);
            let hops = self.hops.hops();
            let all = hops.values().all(|hop| hop.destination_mac.is_some());
            if all || now >= until {
                self.spread_hops();
                return;
            }
            let due = self.hops.next_tick().map_or(until, |at| at.min(until));
            if let Ok(Input::Network(changes)) = receive.recv_timeout(due - now) {
                self.hear(changes);
            }
        }
    }

    /// Processes requests and due work until it is stopped.
    pub(super) fn run(mut self, inputs: &Receiver<Input>) {
        loop {
            let wait = self.next_due().saturating_duration_since(Instant::now());
            match inputs.recv_timeout(wait) {
                Ok(Input::Ask(question)) => question(&mut self),
                Ok(Input::Network(changes)) => self.hear(changes),
                Ok(Input::Checked(notices)) => self.judge_tunnels(&notices),
                Ok(Input::Stop(leave)) => return self.stop(leave),
                Err(RecvTimeoutError::Timeout) => {}
                Err(RecvTimeoutError::Disconnected) => return,
            }
            let now = Instant::now();
            self.follow_network(now);
            if self.control.next_tick() <= now {
                self.publish(now);
            }
        }
    }

    fn next_due(&self) -> Instant {
        let hops = self.network_retry.or(self.hops.next_tick());
        hops.map_or(self.control.next_tick(), |at| at.min(self.control.next_tick()))
    }

    fn stop(mut self, leave: Leave) {
        self.end_captures();
        // Flows in the logs are learned, for the next process.
        self.publish(Instant::now());
        if leave == Leave::Running {
            tracing::info!(
                "packet: left running; the next equipoise of this instance takes it over"
            );
            return;
        }
        self.attachments.clear().iter().for_each(Notice::log);
        self.place.remove();
    }

    pub(super) fn apply(&mut self, wanted: Wanted, now: Instant) -> Result<(), ApplyError> {
        self.translate(&wanted.snapshot)?;
        let before = self.sources.look(&wanted.snapshot);
        if let Err(error) = self.control.apply(&self.effective(&wanted), now) {
            self.sources.restore(before);
            return Err(error);
        }
        self.end_capture_of_removed();
        self.wanted = wanted;
        self.judge_forwarding();
        self.aim(now);
        self.spread_hops();
        self.take_frames();
        self.publish_whole();
        self.follow_interfaces(true);
        self.check_tunnels();
        self.follow_fleet();
        Ok(())
    }

    /// Updates the checks through tunnels.
    fn check_tunnels(&mut self) {
        let vips = self.wanted.snapshot.vips.iter().map(|vip| vip.address).collect();
        let notice = self.tunnels.follow(&self.wanted.checks, vips, &self.hops.hops());
        notice.iter().for_each(Notice::log);
    }

    /// Returns the snapshot as far as it can be used: without source addresses that this machine
    /// does not have, and with backends marked unhealthy if their checks through the tunnel fail.
    fn effective(&self, wanted: &Wanted) -> Snapshot {
        let mut snapshot = self.with_tunnels(wanted);
        self.sources.restrict(&mut snapshot);
        snapshot
    }

    /// Returns the snapshot, with backends marked unhealthy if their checks through the tunnel
    /// fail. Ignores verdicts of checks that `wanted` no longer has. Ignores the checks of a VIP if
    /// they pass for none of its backends: more likely no backend can answer this machine's address
    /// than that all tunnels are dead.
    fn with_tunnels(&self, wanted: &Wanted) -> Snapshot {
        let mut snapshot = wanted.snapshot.clone();
        let reports = self.tunnels.reports_of(&wanted.checks);
        for vip in &mut snapshot.vips {
            let id = vip.id();
            let health = |backend: &BackendSpec| {
                reports.get(&(id, backend.id())).map(|report| report.health)
            };
            if vip.backends.iter().all(|backend| health(backend) != Some(Health::Healthy)) {
                continue;
            }
            for backend in &mut vip.backends {
                if health(backend) == Some(Health::Unhealthy) {
                    backend.health = Health::Unhealthy;
                }
            }
        }
        snapshot
    }

    /// Applies new verdicts of checks through tunnels. The next tick publishes them; it is due at
    /// once.
    fn judge_tunnels(&mut self, notices: &[Notice]) {
        notices.iter().for_each(Notice::log);
        self.apply_again("verdicts of checks through tunnels");
    }

    /// Notices that this machine has lost or got source addresses.
    fn follow_sources(&mut self) {
        let before = self.sources.look(&self.wanted.snapshot);
        if self.sources.differ_from(&before) {
            self.apply_again("source addresses");
            self.sources.judge(&self.wanted.snapshot).iter().for_each(Notice::log);
        }
    }

    /// Applies the same snapshot after a change of `what` decides how far it can be used. The next
    /// tick publishes it; it is due at once.
    fn apply_again(&mut self, what: &str) {
        let snapshot = self.effective(&self.wanted);
        // The same snapshot was accepted before.
        if let Err(error) = self.control.apply(&snapshot, Instant::now()) {
            tracing::error!("packet: changed {what} have no effect: {error}");
        }
    }

    /// Distributes the current next hops.
    fn spread_hops(&mut self) {
        let hops = self.hops.hops();
        self.control.next_hops(&hops);
        self.tunnels.next_hops(&hops);
    }

    pub(super) fn status(&mut self) -> EngineStatus {
        EngineStatus {
            control: self.control.status(),
            interfaces: self.attachments.status(),
            tunnels: self.tunnels.reports(),
            ports: self.control.ports_in_use(monotonic_ns()),
            absent_sources: self.sources.absent().clone(),
            kernel_bytes: self.program.map_bytes() as u64,
            fleet: self.fleet_status(),
            heavy: self.control.heavy_traffic().cloned(),
        }
    }

    pub(super) fn flows_of_source(&self, source: SocketAddr) -> Vec<FullNatFlow> {
        self.control.flows_of_source(source, monotonic_ns())
    }

    pub(super) fn control(&self) -> &Control {
        &self.control
    }

    /// Changes a pin and publishes it.
    pub(super) fn steer<R>(&mut self, change: impl FnOnce(&mut Control) -> R) -> R {
        let result = change(&mut self.control);
        self.publish_whole();
        result
    }

    pub(super) fn explain(
        &self,
        source: SocketAddr,
        destination: SocketAddr,
        protocol: Protocol,
        source_mac: Option<[u8; 6]>,
    ) -> Explanation {
        let parsed = Parsed::of_flow(source, destination, protocol.number(), source_mac);
        let twin = Twin::new(self.program.memory().clone(), self.limits);
        let around = Surroundings { now_ns: monotonic_ns(), ..Surroundings::default() };
        let decision = twin.decide(&parsed, &around);
        let at_backend = twin.source_of(&parsed, &decision);
        let serves = |vip: &VipId| {
            let (first, last) = vip.ports.bounds();
            vip.address == destination.ip()
                && vip.protocol == protocol
                && (first..=last).contains(&destination.port())
        };
        let vips = self.wanted.snapshot.vips.iter().map(|vip| vip.id());
        let vip = vips.filter(serves).min_by_key(|vip| {
            let (first, last) = vip.ports.bounds();
            last - first
        });
        let of_flow = |flow: &FlowId| match flow {
            FlowId::FiveTuple(from, to) => (*from, *to) == (source, destination),
            FlowId::SourceAddress(address) => *address == source.ip(),
            FlowId::SourcePrefix(_, bits) => *flow == FlowId::prefix(source.ip(), *bits),
            FlowId::SourceMac(mac) => Some(*mac) == source_mac,
        };
        let pins = self.control.pins();
        let registered = pins.into_iter().find(|pin| Some(pin.vip) == vip && of_flow(&pin.flow));
        let known = decision.digest.is_some_and(|digest| self.control.is_registered(digest));
        let is_registered = registered.is_some() || known;
        Explanation { decision, vip, source: at_backend, registered, is_registered }
    }

    /// Waits until the change is published. The control side pauses between publications, so this
    /// may take some milliseconds. Does not wait for the end of a transition.
    fn publish_whole(&mut self) {
        for _ in 0..PUBLICATIONS_MAX {
            let now = Instant::now();
            self.publish(now);
            let pause = self.control.next_tick().saturating_duration_since(now);
            if pause > PUBLISH_PAUSE_MAX {
                return;
            }
            thread::sleep(pause);
        }
    }

    fn publish(&mut self, now: Instant) {
        let (place, has_failed) = (&self.place, &mut self.ledger_failed);
        let tick = self.control.tick_noting(now, |ledger| {
            let noted = place.note(ledger);
            if let Err(error) = &noted
                && !*has_failed
            {
                Notice::Ledger { error: error.to_string() }.log();
            }
            *has_failed = noted.is_err();
            noted.is_ok()
        });
        for address in self.control.release_sources(monotonic_ns()) {
            Notice::SourceDrained { address }.log();
        }
        self.tell(&tick, now);
        self.tell_peers();
        let has_seated = self.control.has_seated();
        if has_seated || !tick.drained.is_empty() {
            self.aim(now);
        }
        if has_seated {
            // The next hop of a new backend may be known already.
            self.spread_hops();
        }
    }

    fn tell(&mut self, tick: &Tick, now: Instant) {
        for (vip, backend) in &tick.drained {
            let (vip, backend) = (vip.to_string(), backend.to_string());
            Notice::Drained { vip, backend }.log();
        }
        if tick.moved > 0 {
            Notice::Moved { flows: tick.moved, pins_full: tick.pins_full }.log();
        }
        let dropped = self.control.ports_exhausted();
        self.exhausted.look(dropped, now).iter().for_each(Notice::log);
        let (flows, said_at) = &mut self.not_learnt;
        *flows += tick.registry_full;
        let quiet = said_at.is_none_or(|at| now - at >= REGISTRY_FULL_LOG_EVERY);
        if *flows > 0 && quiet {
            Notice::RegistryFull { flows: std::mem::take(flows) }.log();
            *said_at = Some(now);
        }
    }

    fn hear(&mut self, changes: Vec<Change>) {
        let now = Instant::now();
        let mut changed = false;
        for change in changes {
            changed |= self.hops.change(change, now);
        }
        if changed {
            self.spread_hops();
        }
    }

    fn follow_network(&mut self, now: Instant) {
        if self.network_retry.is_some_and(|at| now < at) {
            return;
        }
        self.network_retry = None;
        match self.hops.tick(now) {
            Ok(false) => {}
            Ok(true) => {
                self.spread_hops();
                self.judge_routes();
                self.follow_sources();
                if self.take_frames() {
                    // Frames to a new address must not wait for a tick.
                    self.publish(now);
                }
                self.follow_interfaces(false);
            }
            Err(error) => self.network_failed(&error, now),
        }
    }

    fn network_failed(&mut self, error: &std::io::Error, now: Instant) {
        Notice::Network { error: error.to_string() }.log();
        self.network_retry = Some(now + NETWORK_RETRY);
        self.hops.change(Change::Lost, now);
    }

    /// Requests next hops for all backends, including those that still drain.
    fn aim(&mut self, now: Instant) {
        let wanted = self.wanted.snapshot.vips.iter().flat_map(|vip| &vip.backends);
        let mut targets: BTreeSet<IpAddr> = wanted.map(|backend| backend.address).collect();
        let vips = self.control.status().vips;
        targets.extend(vips.iter().flat_map(|vip| &vip.backends).map(|b| b.backend.address));
        if let Err(error) = self.hops.aim(targets, now) {
            self.network_failed(&error, now);
        }
        self.judge_routes();
    }

    /// Checks forwarding: replies under nat use the kernel's routing tables, which require
    /// forwarding to be enabled.
    fn judge_forwarding(&mut self) {
        let mut notices = Vec::new();
        for v6 in [false, true] {
            let translates =
                |vip: &VipSpec| vip.forward.translates() && vip.address.is_ipv6() == v6;
            if !self.wanted.snapshot.vips.iter().any(translates) {
                continue;
            }
            let off = self.wanted.interfaces.keys().find(|name| !forwards(name, v6));
            if let Some(interface) = off {
                notices.push(Notice::NotForwarding { interface: Arc::clone(interface), v6 });
            }
        }
        notices.extend(self.judge_own_vips());
        notices.iter().filter(|it| !self.said_settings.contains(it)).for_each(Notice::log);
        self.said_settings = notices;
        self.sources.judge(&self.wanted.snapshot).iter().for_each(Notice::log);
    }

    /// Checks nat's VIPs that this machine has itself. The kernel routes replies while the MAC
    /// address of their next hop is unknown, and takes those from its own address for forged.
    fn judge_own_vips(&self) -> Option<Notice> {
        let vips = self.wanted.snapshot.vips.iter();
        let mut vips = vips.filter(|vip| vip.forward.translates() && vip.address.is_ipv4());
        let vip = vips.find(|vip| is_own(vip.address))?.address;
        let interface = self.wanted.interfaces.keys().find(|name| !accepts_local(name))?;
        Some(Notice::OwnVip { vip, interface: Arc::clone(interface) })
    }

    /// Logs problems with the route to each backend, once.
    fn judge_routes(&mut self) {
        let mut wrong = BTreeSet::new();
        for vip in &self.wanted.snapshot.vips {
            for backend in vip.backends.iter().map(|backend| backend.address) {
                let notice = match self.hops.route(backend) {
                    None => Notice::NoRoute { backend },
                    Some(route) if route.local => Notice::Local { backend },
                    Some(route) => match route.gateway {
                        Some(gateway) if vip.forward == Forward::DirectRouting => {
                            Notice::OffLink { backend, gateway }
                        }
                        _ => continue,
                    },
                };
                if wrong.insert(backend) && !self.said.contains(&backend) {
                    notice.log();
                }
            }
        }
        self.said = wrong;
    }

    /// Sets the accepted destination MAC addresses in the program. Returns whether they changed.
    fn take_frames(&mut self) -> bool {
        let mut stations = BTreeSet::new();
        for name in self.wanted.interfaces.keys() {
            let Some(interface) = self.hops.interface(name) else { continue };
            let own = self.hops.stations(interface);
            let more = self.wanted.macs.get(name).into_iter().flatten();
            let places: BTreeSet<u32> = own.iter().map(|it| it.ifindex).collect();
            for &mac in more {
                stations.extend(places.iter().map(|&ifindex| Station { ifindex, mac }));
            }
            stations.extend(own);
        }
        let has_changed = stations != self.stations;
        if has_changed && stations.len() > Station::MAX {
            Notice::TooManyMacs { macs: stations.len() }.log();
        }
        self.control.take_frames(&stations);
        self.stations = stations;
        has_changed
    }

    /// Attaches to the configured interfaces. `may_switch`: a running program may be attached again
    /// in another mode, which ends nat's flows; changes of routes do not justify that.
    fn follow_interfaces(&mut self, may_switch: bool) {
        let (hops, programs) = (&self.hops, &self.wanted.interfaces);
        let ways_out = self.ways_out();
        let device =
            |name: &str| Some(Device::of(hops.interface(name)?, hops, programs, &ways_out));
        let program = |role: super::Role| self.program.entry_fd(role.entry());
        let notices = self.attachments.follow(programs, device, program, may_switch);
        notices.iter().for_each(Notice::log);
    }

    /// Returns the indices of interfaces that send packets: those to backends, and those of replies
    /// as far as known.
    fn ways_out(&self) -> BTreeSet<u32> {
        let is_nat = |vip: &VipSpec| vip.forward.translates();
        let translates = self.wanted.snapshot.vips.iter().any(is_nat);
        let replies = self.wanted.interfaces.keys().filter(|_| translates);
        let replies = replies.filter_map(|name| Some(self.hops.interface(name)?.index));
        let hops = self.hops.hops();
        // Packets to an address of this machine do not leave it.
        let leaves = |address: &IpAddr| self.hops.route(*address).is_some_and(|it| !it.local);
        let to_backends = hops.iter().filter(|(address, _)| leaves(address));
        to_backends.map(|(_, hop)| hop.ifindex).chain(replies).collect()
    }
}
