//! Watches changes of links, routes and neighbours, on a separate thread.

use std::io;
use std::os::fd::OwnedFd;
use std::sync::Arc;
use std::thread::{self, JoinHandle};

use netlink_packet_core::NetlinkPayload;
use netlink_packet_route::RouteNetlinkMessage;
use netlink_sys::protocols::NETLINK_ROUTE;
use netlink_sys::{Socket, SocketAddr};
use rustix::event::{EventfdFlags, PollFd, PollFlags, eventfd, poll};

use super::netlink::{messages, neighbour};
use super::next_hops::Change;
use crate::privileges::{Capabilities, give_up};

const GROUPS: [libc::c_uint; 4] =
    [libc::RTNLGRP_LINK, libc::RTNLGRP_NEIGH, libc::RTNLGRP_IPV4_ROUTE, libc::RTNLGRP_IPV6_ROUTE];

/// The watch; dropping it ends its thread.
pub(super) struct Watch {
    stop: Arc<OwnedFd>,
    thread: Option<JoinHandle<()>>,
}

impl Watch {
    /// Calls `heard` with changes in this thread's network namespace, until it returns `false`.
    pub(super) fn start(heard: impl Fn(Vec<Change>) -> bool + Send + 'static) -> io::Result<Watch> {
        // Bound here, because the namespace is that of this thread.
        let mut socket = Socket::new(NETLINK_ROUTE)?;
        socket.bind(&SocketAddr::new(0, 0))?;
        for group in GROUPS {
            socket.add_membership(group)?;
        }
        let stop = Arc::new(eventfd(0, EventfdFlags::CLOEXEC)?);
        let stopped = Arc::clone(&stop);
        let thread = thread::Builder::new().name("packet-netlink".into()).spawn(move || {
            give_up(Capabilities::ALL);
            listen(&socket, &stopped, heard);
        })?;
        Ok(Watch { stop, thread: Some(thread) })
    }
}

impl Drop for Watch {
    fn drop(&mut self) {
        // The write fails only if the counter overflows.
        let _ = rustix::io::write(&*self.stop, &1u64.to_ne_bytes());
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }
}

fn listen(socket: &Socket, stop: &OwnedFd, heard: impl Fn(Vec<Change>) -> bool) {
    loop {
        let mut ready = [PollFd::new(socket, PollFlags::IN), PollFd::new(stop, PollFlags::IN)];
        match poll(&mut ready, None) {
            Err(rustix::io::Errno::INTR) => continue,
            Err(_) => return,
            Ok(_) if !ready[1].revents().is_empty() => return,
            Ok(_) => {}
        }
        let changes = match socket.recv_from_full() {
            Ok((datagram, _)) => {
                messages(&datagram).into_iter().filter_map(|m| change(m.payload)).collect()
            }
            // The kernel dropped notifications: everything must be read again.
            Err(_) => vec![Change::Lost],
        };
        if !heard(changes) {
            return;
        }
    }
}

fn change(payload: NetlinkPayload<RouteNetlinkMessage>) -> Option<Change> {
    use RouteNetlinkMessage as M;
    let NetlinkPayload::InnerMessage(message) = payload else { return None };
    match message {
        M::NewLink(_) | M::DelLink(_) => Some(Change::Link),
        M::NewRoute(_) | M::DelRoute(_) => Some(Change::Route),
        M::NewNeighbour(entry) => neighbour(&entry).map(Change::Neighbour),
        M::DelNeighbour(entry) => {
            neighbour(&entry).map(|entry| Change::Neighbour(entry.unresolved()))
        }
        _ => None,
    }
}
