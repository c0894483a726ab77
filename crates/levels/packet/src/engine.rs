//! The engine: a thread that owns the program, its control side, its attachments and its files.
//!
//! In: [`Wanted`] (a snapshot and its interfaces), and the kernel's links, routes and neighbours.
//! Out: a running program, log lines ([`Notice`]), answers to requests. Fails with [`EngineError`]
//! at the start; later, a failed change leaves everything unchanged.

mod attach;
mod capturing;
mod device;
mod ethtool;
mod exhausted;
pub(crate) mod kernel;
mod link;
mod netlink;
mod next_hops;
mod notice;
mod offloads;
mod place;
mod sources;
mod tunnel_checks;
mod watch;
mod ways;
mod worker;

use std::collections::{BTreeMap, BTreeSet};
use std::io;
use std::net::{IpAddr, SocketAddr};
use std::path::PathBuf;
use std::sync::mpsc::{self, Sender};
use std::sync::{Arc, Mutex};
use std::thread::{self, JoinHandle};
use std::time::Instant;

use equipoise_basics::lock;
use thiserror::Error;

pub use attach::{InterfaceState, InterfaceStatus, Role};
pub use ethtool::Offload;
pub use link::XdpMode;
use next_hops::Change;
pub use notice::Notice;
pub use tunnel_checks::{TunnelCheck, TunnelError, TunnelReport};
pub use ways::Ways;
use worker::Worker;

use crate::capture::{CaptureError, CaptureRequest, CaptureSink};
use crate::config::{FleetConfig, FlowsConfig};
use crate::control::{
    ApplyError, ControlError, Elephants, FleetTotals, FlowId, FullNatFlow, PinError, PortsInUse,
    RegisteredPin, Status,
};
use crate::fleet::ExchangeStatus;
use crate::program::LoadError;
use crate::registry::RegistryError;
use crate::snapshot::{BackendId, Protocol, Snapshot, VipId};
use crate::twin::Decision;

/// Options of the engine.
#[derive(Clone, Debug)]
pub struct EngineOptions {
    /// Name of the instance; each has one engine at a time.
    pub instance: Arc<str>,
    /// Sizes, times, and other settings of all VIPs.
    pub flows: FlowsConfig,
    /// Parent folder of the flow registry; best on tmpfs.
    pub run_folder: PathBuf,
}

/// Desired state of the engine.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Wanted {
    /// The VIPs and their backends.
    pub snapshot: Snapshot,
    /// Interfaces that receive packets.
    pub interfaces: BTreeMap<Arc<str>, Role>,
    /// Additional destination MAC addresses accepted on an interface, such as those of VRRP.
    pub macs: BTreeMap<Arc<str>, BTreeSet<[u8; 6]>>,
    /// Health checks through tunnels.
    pub checks: Vec<TunnelCheck>,
    /// Balancers that share their flows.
    pub fleet: Option<FleetConfig>,
}

/// Treatment of the program when the engine stops.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Leave {
    /// Detaches it and removes all state.
    Nothing,
    /// Leaves it running with its tables; the next engine takes it over.
    Running,
}

/// Status of the engine.
#[derive(Clone, Debug)]
pub struct EngineStatus {
    /// VIPs, backends, flows.
    pub control: Status,
    /// Interfaces.
    pub interfaces: Vec<InterfaceStatus>,
    /// Backends with checks through a tunnel.
    pub tunnels: BTreeMap<(VipId, BackendId), TunnelReport>,
    /// Source ports of VIPs of full-nat.
    pub ports: BTreeMap<VipId, PortsInUse>,
    /// Source addresses of full-nat that this machine does not have.
    pub absent_sources: BTreeSet<IpAddr>,
    /// Kernel memory of the program's maps except fragments, bytes.
    pub kernel_bytes: u64,
    /// Sharing of flows with other balancers.
    pub fleet: Option<SharingStatus>,
    /// The flows with the most bytes in the last complete window.
    pub heavy: Option<Elephants>,
}

/// Status of the sharing of flows.
#[derive(Clone, Debug)]
pub struct SharingStatus {
    /// The connections.
    pub exchange: ExchangeStatus,
    /// Flows received, and their treatment.
    pub totals: FleetTotals,
}

/// Backend of a packet of an established flow.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Explanation {
    /// Decision by the tables.
    pub decision: Decision,
    /// VIP of the destination.
    pub vip: Option<VipId>,
    /// full-nat: the source of a known flow at its backend.
    pub source: Option<SocketAddr>,
    /// Pin of the flow by an operator or application, if there is one.
    pub registered: Option<RegisteredPin>,
    /// Whether the flow is registered, also if the pin's details are no longer known.
    pub is_registered: bool,
}

/// The packet level cannot be started.
#[derive(Debug, Error)]
pub enum EngineError {
    /// Another process runs an engine of the instance.
    #[error(
        "instance \"{instance}\" has a packet level already, in another process: stop that one, or give this one \
         another [instance] name"
    )]
    Running {
        /// Name of the instance.
        instance: String,
    },
    /// A file or folder is not accessible.
    #[error("cannot use {what}: the packet level needs root and a writable /sys/fs/bpf and /run", what = what.display())]
    Folder {
        /// Path of the file or folder.
        what: PathBuf,
        /// Error of the system call.
        #[source]
        source: io::Error,
    },
    /// A map cannot be pinned.
    #[error("cannot pin {path}", path = path.display())]
    Pin {
        /// Path of the pin.
        path: PathBuf,
        /// Error of the system call.
        #[source]
        source: libbpf_rs::Error,
    },
    /// The program cannot be loaded.
    #[error(transparent)]
    Load(#[from] LoadError),
    /// The number of CPUs is unknown.
    #[error("cannot tell how many CPUs there are")]
    Cpus(#[source] libbpf_rs::Error),
    /// The flow registry cannot be opened.
    #[error(transparent)]
    Registry(#[from] RegistryError),
    /// The tables cannot be set up.
    #[error(transparent)]
    Control(#[from] ControlError),
    /// The first snapshot was rejected.
    #[error(transparent)]
    Apply(#[from] ApplyError),
    /// Links, routes and neighbours cannot be read.
    #[error("cannot ask the kernel for links, routes and neighbours (netlink)")]
    Network(#[source] io::Error),
    /// The thread could not be started.
    #[error("cannot start the packet level's thread")]
    Thread(#[source] io::Error),
}

/// The engine has stopped.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
#[error("the packet level has stopped")]
pub struct Stopped;

/// A request to the engine's thread.
enum Input {
    Ask(Box<dyn FnOnce(&mut Worker) + Send>),
    Network(Vec<Change>),
    /// Checks through tunnels have new verdicts.
    Checked(Vec<Notice>),
    Stop(Leave),
}

/// A capture. Dropping it ends the capture.
#[derive(Debug)]
pub struct RunningCapture {
    id: u64,
    inputs: Sender<Input>,
}

impl Drop for RunningCapture {
    fn drop(&mut self) {
        let id = self.id;
        // An engine that has stopped has no captures.
        let _ = self.inputs.send(Input::Ask(Box::new(move |worker| worker.end_capture(id))));
    }
}

/// A running engine. Its methods wait for the engine's thread, which may take a tenth of a second
/// with many flows.
///
/// Dropping it without [`Engine::stop`] leaves the program running, like a killed process.
#[derive(Debug)]
pub struct Engine {
    inputs: Sender<Input>,
    thread: Mutex<Option<JoinHandle<()>>>,
}

impl Engine {
    /// Loads the program, or takes over one that was left running, and attaches it to the
    /// interfaces of `wanted`.
    ///
    /// # Errors
    /// [`EngineError`]; then there are no new attachments.
    pub fn start(options: EngineOptions, wanted: Wanted) -> Result<Engine, EngineError> {
        let (inputs, receive) = mpsc::channel();
        let (report, started) = mpsc::channel();
        let changes = inputs.clone();
        let work = move || {
            let worker = Worker::start(options, wanted, changes, &receive);
            match worker {
                Ok(worker) => {
                    // The engine is dropped only after this is received.
                    let _ = report.send(Ok(()));
                    worker.run(&receive);
                }
                Err(error) => drop(report.send(Err(error))),
            }
        };
        let thread = thread::Builder::new().name("packet".into()).spawn(work);
        let thread = thread.map_err(EngineError::Thread)?;
        let gone = || EngineError::Thread(io::Error::other("it ended while it started"));
        started.recv().map_err(|_| gone())??;
        Ok(Engine { inputs, thread: Mutex::new(Some(thread)) })
    }

    fn ask<R: Send + 'static>(
        &self,
        question: impl FnOnce(&mut Worker) -> R + Send + 'static,
    ) -> Result<R, Stopped> {
        let (reply, answer) = mpsc::channel();
        let ask = move |worker: &mut Worker| drop(reply.send(question(worker)));
        self.inputs.send(Input::Ask(Box::new(ask))).map_err(|_| Stopped)?;
        answer.recv().map_err(|_| Stopped)
    }

    /// Changes to `wanted`, completely or not at all. After the return, new flows follow it; flows
    /// that it moves follow at the end of the transition.
    ///
    /// # Errors
    /// [`ApplyError`] (then nothing has changed) or [`Stopped`].
    pub fn apply(&self, wanted: Wanted) -> Result<Result<(), ApplyError>, Stopped> {
        self.ask(|worker| worker.apply(wanted, Instant::now()))
    }

    /// Returns the status.
    ///
    /// # Errors
    /// [`Stopped`]
    pub fn status(&self) -> Result<EngineStatus, Stopped> {
        self.ask(|worker| worker.status())
    }

    /// Returns the decision for a packet of a flow; the flow need not exist. `source_mac` matters
    /// for VIPs that use it as key.
    ///
    /// # Errors
    /// [`Stopped`]
    pub fn explain(
        &self,
        source: SocketAddr,
        destination: SocketAddr,
        protocol: Protocol,
        source_mac: Option<[u8; 6]>,
    ) -> Result<Explanation, Stopped> {
        self.ask(move |worker| worker.explain(source, destination, protocol, source_mac))
    }

    /// Returns the flows of full-nat that have this source address and port.
    ///
    /// # Errors
    /// [`Stopped`]
    pub fn flows_of_source(&self, source: SocketAddr) -> Result<Vec<FullNatFlow>, Stopped> {
        self.ask(move |worker| worker.flows_of_source(source))
    }

    /// Returns the flows that operators and applications pinned.
    ///
    /// # Errors
    /// [`Stopped`]
    pub fn pins(&self) -> Result<Vec<RegisteredPin>, Stopped> {
        self.ask(|worker| worker.control().pins())
    }

    /// Pins a flow to a backend. Takes effect within a few milliseconds after the return.
    ///
    /// # Errors
    /// [`PinError`] (then nothing has changed) or [`Stopped`].
    pub fn pin(
        &self,
        vip: VipId,
        flow: FlowId,
        backend: BackendId,
    ) -> Result<Result<(), PinError>, Stopped> {
        self.ask(move |worker| worker.steer(|control| control.pin(&vip, &flow, &backend)))
    }

    /// Moves the pin of a flow to another backend.
    ///
    /// # Errors
    /// As [`Engine::pin`].
    pub fn move_pin(
        &self,
        vip: VipId,
        flow: FlowId,
        backend: BackendId,
    ) -> Result<Result<(), PinError>, Stopped> {
        self.ask(move |worker| worker.steer(|control| control.move_pin(&vip, &flow, &backend)))
    }

    /// Removes a pin.
    ///
    /// # Errors
    /// As [`Engine::pin`].
    pub fn unpin(&self, vip: VipId, flow: FlowId) -> Result<Result<(), PinError>, Stopped> {
        self.ask(move |worker| worker.steer(|control| control.unpin(&vip, &flow)))
    }

    /// Begins a capture of packets. It ends with the returned value, or by its limits.
    ///
    /// # Errors
    /// [`CaptureError`] or [`Stopped`].
    pub fn capture(
        &self,
        request: CaptureRequest,
        sink: CaptureSink,
    ) -> Result<Result<RunningCapture, CaptureError>, Stopped> {
        let begun = self.ask(move |worker| worker.capture(&request, sink))?;
        let inputs = self.inputs.clone();
        Ok(begun.map(|id| RunningCapture { id, inputs }))
    }

    /// Stops the engine. Returns when the program is detached or left running. Later calls fail
    /// with [`Stopped`].
    pub fn stop(&self, leave: Leave) {
        // If the thread has ended, there is nothing to stop.
        let _ = self.inputs.send(Input::Stop(leave));
        let thread = lock(&self.thread).take();
        if let Some(thread) = thread {
            let _ = thread.join();
        }
    }
}

/// Detaches the programs that an engine of this instance left running, unless an engine is running.
/// Returns the interfaces.
pub fn sweep(instance: &str, run_folder: &std::path::Path) -> Vec<Arc<str>> {
    let pins = place::pin_folder(instance);
    if !pins.exists() {
        return Vec::new();
    }
    let Ok(place) = place::Place::open(instance, run_folder) else { return Vec::new() };
    let offloads = offloads::Offloads::open(place.offloads(), true);
    let detached = attach::detach_all(&pins, offloads);
    place.remove();
    detached
}
