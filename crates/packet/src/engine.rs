//! The engine: a thread that owns the program, its control side, and their places on interfaces and
//! on disk.
//!
//! In: [`Wanted`] (a snapshot and the interfaces it is for), what the kernel says of links, routes
//! and neighbours. Out: a program that runs, log lines ([`Notice`]), answers to questions. How it
//! fails: [`EngineError`] at the start; later a change that cannot be made leaves things as they
//! are.

mod attach;
mod device;
mod ethtool;
mod link;
mod netlink;
mod next_hops;
mod notice;
mod offloads;
mod place;
mod tunnel_checks;
mod watch;
mod worker;

use std::collections::{BTreeMap, BTreeSet};
use std::io;
use std::net::SocketAddr;
use std::path::PathBuf;
use std::sync::mpsc::{self, Sender};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::{self, JoinHandle};
use std::time::Instant;

use thiserror::Error;

pub use attach::{InterfaceState, InterfaceStatus, Role};
pub use ethtool::Offload;
pub use link::XdpMode;
use next_hops::Change;
pub use notice::Notice;
pub use tunnel_checks::{TunnelCheck, TunnelError, TunnelReport};
use worker::Worker;

use crate::config::FlowsConfig;
use crate::control::{ApplyError, ControlError, FlowId, PinError, RegisteredPin, Status};
use crate::program::LoadError;
use crate::registry::RegistryError;
use crate::snapshot::{BackendId, Protocol, Snapshot, VipId};
use crate::twin::Decision;

/// How an engine is started.
#[derive(Clone, Debug)]
pub struct EngineOptions {
    /// The instance: one engine for each at a time.
    pub instance: Arc<str>,
    /// Sizes, times, and the rest that holds for all VIPs.
    pub flows: FlowsConfig,
    /// Where the flow registry lies, in a folder of the instance's name; best on tmpfs.
    pub run_folder: PathBuf,
}

/// What the engine is to do.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Wanted {
    /// The VIPs and their backends.
    pub snapshot: Snapshot,
    /// Where packets arrive.
    pub interfaces: BTreeMap<Arc<str>, Role>,
    /// MAC addresses whose frames are taken on an interface beside its own, such as those of VRRP.
    pub macs: BTreeMap<Arc<str>, BTreeSet<[u8; 6]>>,
    /// Health checks through tunnels.
    pub checks: Vec<TunnelCheck>,
}

/// What becomes of the program when the engine stops.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Leave {
    /// It is detached, and all that was known is gone.
    Nothing,
    /// It goes on with the tables it has, and the next engine takes it over.
    Running,
}

/// How everything is.
#[derive(Clone, Debug)]
pub struct EngineStatus {
    /// VIPs, backends, flows.
    pub control: Status,
    /// Interfaces.
    pub interfaces: Vec<InterfaceStatus>,
    /// Backends that are checked through a tunnel.
    pub tunnels: BTreeMap<(VipId, BackendId), TunnelReport>,
    /// Bytes that the program's maps take in the kernel, fragments aside.
    pub kernel_bytes: u64,
}

/// Where a packet of a flow that is under way would go.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Explanation {
    /// What the tables say.
    pub decision: Decision,
    /// The VIP that the destination is.
    pub vip: Option<VipId>,
    /// Whether an operator or application pinned the flow, and where.
    pub registered: Option<RegisteredPin>,
    /// Whether they did, though it may not be known any more who pinned what where.
    pub is_registered: bool,
}

/// The packet level cannot be started.
#[derive(Debug, Error)]
pub enum EngineError {
    /// A second engine of the instance.
    #[error(
        "instance \"{instance}\" has a packet level already, in another process: stop that one, or give this one \
         another [instance] name"
    )]
    Running {
        /// Which.
        instance: String,
    },
    /// A file or folder is not to be had.
    #[error("cannot use {what}: the packet level needs root and a writable /sys/fs/bpf and /run", what = what.display())]
    Folder {
        /// Which.
        what: PathBuf,
        /// What the system said.
        #[source]
        source: io::Error,
    },
    /// A map cannot be pinned.
    #[error("cannot pin {path}", path = path.display())]
    Pin {
        /// Where.
        path: PathBuf,
        /// What the kernel said.
        #[source]
        source: libbpf_rs::Error,
    },
    /// The program cannot be loaded.
    #[error(transparent)]
    Load(#[from] LoadError),
    /// The number of CPUs is not to be had.
    #[error("cannot tell how many CPUs there are")]
    Cpus(#[source] libbpf_rs::Error),
    /// The flow registry cannot be opened.
    #[error(transparent)]
    Registry(#[from] RegistryError),
    /// The tables cannot be set up.
    #[error(transparent)]
    Control(#[from] ControlError),
    /// The first snapshot is refused.
    #[error(transparent)]
    Apply(#[from] ApplyError),
    /// Links, routes and neighbours cannot be read.
    #[error("cannot ask the kernel for links, routes and neighbours (netlink)")]
    Network(#[source] io::Error),
    /// No thread.
    #[error("cannot start the packet level's thread")]
    Thread(#[source] io::Error),
}

/// The engine has stopped.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
#[error("the packet level has stopped")]
pub struct Stopped;

/// Something for the engine's thread to do.
enum Input {
    Ask(Box<dyn FnOnce(&mut Worker) + Send>),
    Network(Vec<Change>),
    /// Checks through tunnels have come to other verdicts.
    Checked(Vec<Notice>),
    Stop(Leave),
}

/// A running engine. Its methods wait for the engine's thread, which may take a tenth of a second
/// with many flows.
///
/// Dropped without [`Engine::stop`], it leaves the program running, as a killed process does.
#[derive(Debug)]
pub struct Engine {
    inputs: Sender<Input>,
    thread: Mutex<Option<JoinHandle<()>>>,
}

impl Engine {
    /// Loads the program, or takes over one that was left running; attaches it where `wanted` says.
    ///
    /// # Errors
    /// [`EngineError`]; then nothing is attached that was not before.
    pub fn start(options: EngineOptions, wanted: Wanted) -> Result<Engine, EngineError> {
        let (inputs, receive) = mpsc::channel();
        let (report, started) = mpsc::channel();
        let changes = inputs.clone();
        let work = move || {
            let worker = Worker::start(options, wanted, changes, &receive);
            match worker {
                Ok(worker) => {
                    // The engine is dropped only after this was received.
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

    /// Goes over to `wanted`, whole or not at all. When this returns, new flows go by it; flows
    /// that it moves follow when the transition is over.
    ///
    /// # Errors
    /// [`ApplyError`]: nothing has changed; [`Stopped`].
    pub fn apply(&self, wanted: Wanted) -> Result<Result<(), ApplyError>, Stopped> {
        self.ask(|worker| worker.apply(wanted, Instant::now()))
    }

    /// How everything is.
    ///
    /// # Errors
    /// [`Stopped`]
    pub fn status(&self) -> Result<EngineStatus, Stopped> {
        self.ask(|worker| worker.status())
    }

    /// Where a packet of a flow would go; the flow need not exist. `source_mac` matters to VIPs
    /// whose key it is.
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

    /// The flows that operators and applications pinned.
    ///
    /// # Errors
    /// [`Stopped`]
    pub fn pins(&self) -> Result<Vec<RegisteredPin>, Stopped> {
        self.ask(|worker| worker.control().pins())
    }

    /// Pins a flow to a backend, in force when this returns or a few milliseconds later.
    ///
    /// # Errors
    /// [`PinError`]: nothing has changed; [`Stopped`].
    pub fn pin(
        &self,
        vip: VipId,
        flow: FlowId,
        backend: BackendId,
    ) -> Result<Result<(), PinError>, Stopped> {
        self.ask(move |worker| worker.steer(|control| control.pin(&vip, &flow, &backend)))
    }

    /// Pins a pinned flow to another backend.
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

    /// Takes a pin away.
    ///
    /// # Errors
    /// As [`Engine::pin`].
    pub fn unpin(&self, vip: VipId, flow: FlowId) -> Result<Result<(), PinError>, Stopped> {
        self.ask(move |worker| worker.steer(|control| control.unpin(&vip, &flow)))
    }

    /// Ends the engine; returns when the program is detached, or left running. Later questions get
    /// [`Stopped`].
    pub fn stop(&self, leave: Leave) {
        // If the thread has ended, there is nothing left to stop.
        let _ = self.inputs.send(Input::Stop(leave));
        let thread = self.thread.lock().unwrap_or_else(PoisonError::into_inner).take();
        if let Some(thread) = thread {
            let _ = thread.join();
        }
    }
}

/// Takes off what an engine of this instance left running, unless one runs now; returns from which
/// interfaces.
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
