//! Sample backends, raw clients and faults for the tests. A dev-dependency only.
//!
//! Everything runs on real loopback sockets with blocking I/O on its own threads, so that it shares
//! no runtime, timer or parser with the code under test. A test waits for an event
//! ([`HttpBackend::wait`], [`Gate`]), never for a length of time; the timeouts here only keep a
//! failing test from hanging.

mod acceptor;
mod client;
mod etcd;
mod folder;
mod gate;
mod http;
mod log_buffer;
pub mod packet;
mod pattern;
mod pauses;
mod port;
mod process;
mod python;
mod tcp;
mod udp;
mod wire;

use std::time::Duration;

/// Network-namespace hosts: a crate of its own, because the demo builds them too.
pub use equipoise_netns as netns;

pub use acceptor::{Acceptor, Counts};
pub use client::{Client, Ending, Response};
pub use etcd::EtcdMembers;
pub use folder::{Folder, free_bytes};
pub use gate::Gate;
pub use http::{Answer, HttpBackend, Intake, Received, Request, Step};
pub use log_buffer::LogBuffer;
pub use pattern::Pattern;
pub use pauses::undisturbed;
pub use port::{FullBacklog, ReservedPort, UdpPort, free_port};
pub use process::{
    cpu_time, fd_limit, open_fds, raise_fd_limit, rss_bytes, set_fd_limit, spawn_bound,
};
pub use python::{python_programs, workspace};
pub use tcp::{TcpBackend, TcpBehaviour};
pub use udp::UdpEcho;
pub use wire::{Framing, Head, WireError};

/// How long anything here waits before it calls a test failed: a machine that is busy with other
/// things may give a process no time at all for seconds, and there may be many processes between a
/// question and its answer.
pub const PATIENCE: Duration = Duration::from_secs(60);

/// Polls every millisecond until `condition` holds; `false` if it does not within [`PATIENCE`].
///
/// For counters of the code under test, which offer no event. Backends have [`HttpBackend::wait`].
pub fn eventually(condition: impl FnMut() -> bool) -> bool {
    eventually_within(PATIENCE, condition)
}

/// The same, with another time.
pub fn eventually_within(patience: Duration, mut condition: impl FnMut() -> bool) -> bool {
    let end = std::time::Instant::now() + patience;
    while !condition() {
        if std::time::Instant::now() > end {
            return false;
        }
        std::thread::sleep(Duration::from_millis(1));
    }
    true
}
