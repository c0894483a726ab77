//! The packet programs compiled for the host: the same C over the memory of a process, without privilege.
//!
//! In: frames, with the CPU and interface they come by. Out: the verdict and the frame as the program leaves it; all
//! else is in the [`Memory`]. For tests only.

use std::ffi::c_int;
use std::net::IpAddr;
use std::ptr::NonNull;

use equipoise_packet::abi::DecapsulationConstants;
use equipoise_packet::{Limits, Memory};

#[repr(C)]
struct Host {
    opaque: [u8; 0],
}

/// `struct eqp_host_route`
#[repr(C)]
struct RawRoute {
    destination: [u8; 16],
    family: u32,
    ifindex: u32,
    result: c_int,
    destination_mac: [u8; 6],
    source_mac: [u8; 6],
}

unsafe extern "C" {
    fn eqp_host_new(
        tables: *mut u8,
        state: *mut u8,
        cpus: *mut u8,
        constants: *const u8,
    ) -> *mut Host;
    fn eqp_host_free(host: *mut Host);
    fn eqp_host_set_clock(host: *mut Host, now_ns: u64);
    fn eqp_host_set_decapsulation(host: *mut Host, constants: *const DecapsulationConstants);
    fn eqp_host_set_decapsulation_mac(host: *mut Host, mac: *const u8);
    fn eqp_host_decapsulated(host: *const Host, which: c_int) -> u64;
    fn eqp_host_forget_routes(host: *mut Host);
    fn eqp_host_add_route(host: *mut Host, route: *const RawRoute) -> c_int;
    fn eqp_host_run(
        host: *mut Host,
        program: c_int,
        cpu: u32,
        ifindex: u32,
        buffer: *mut u8,
        bytes: usize,
        begin: *mut usize,
        end: *mut usize,
        redirected_to: *mut u32,
    ) -> u32;
}

/// What stands in the room before and after a packet: bytes that a program must not let out.
pub const POISON: u8 = 0xa5;
/// Bytes before a packet, as drivers leave (`XDP_PACKET_HEADROOM`).
pub const HEADROOM: usize = 256;
const TAILROOM: usize = 64;

/// What the kernel's routing says of a destination: `BPF_FIB_LKUP_RET_*` with, on success, the next hop.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Route {
    /// Looked up exactly: this address, not a network.
    pub destination: IpAddr,
    /// 0: success; 7: no neighbour (yet); 4: not forwarded.
    pub result: i32,
    /// Where the packet leaves.
    pub ifindex: u32,
    /// Of the next hop.
    pub destination_mac: [u8; 6],
    /// Of the interface.
    pub source_mac: [u8; 6],
}

/// Which program.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(i32)]
pub enum HostEntry {
    /// `balance`
    Balance = 0,
    /// `reverse`
    Reverse = 1,
    /// `decapsulate`
    Decapsulate = 2,
}

/// The programs over a [`Memory`], with a fragment table, a clock and routes of their own.
#[derive(Debug)]
pub struct HostProgram {
    host: NonNull<Host>,
    redirected_to: u32,
    // The pointers in `host` are into it.
    _memory: Memory,
}

// SAFETY: the C code has no state but what `host` points to, and a thread-local that is set at the start of each run.
unsafe impl Send for HostProgram {}

impl HostProgram {
    /// Over memory laid out by `limits`.
    ///
    /// # Panics
    /// If there is no memory for the program's own tables.
    pub fn new(memory: &Memory, limits: &Limits) -> HostProgram {
        let tables = memory.tables.start().as_ptr();
        let state = memory.state.area().start().as_ptr();
        let cpus = memory.cpus_area().start().as_ptr();
        // SAFETY: the areas have the sizes that the limits say (`Memory::over` checks it), and are kept in `_memory`.
        // The C code reads as many bytes of the limits as they have: both sides assert the size.
        let host = unsafe { eqp_host_new(tables, state, cpus, limits.as_bytes().as_ptr()) };
        let host = NonNull::new(host).expect("memory for the program's tables");
        HostProgram { host, redirected_to: 0, _memory: memory.clone() }
    }

    /// What `bpf_ktime_get_ns` says from now on. It begins at 0 and stands still.
    pub fn set_clock(&mut self, now_ns: u64) {
        // SAFETY: `host` is live until `self` is dropped.
        unsafe { eqp_host_set_clock(self.host.as_ptr(), now_ns) }
    }

    /// What `decapsulate` takes from now on: at first, tunnels from anywhere and no GUE.
    pub fn set_decapsulation(&mut self, constants: &DecapsulationConstants) {
        // SAFETY: `host` is live until `self` is dropped; the constants are copied, and laid out as in C.
        unsafe { eqp_host_set_decapsulation(self.host.as_ptr(), constants) }
    }

    /// The one MAC address of this machine; `decapsulate` looks at it if its constants have the flag.
    pub fn set_decapsulation_mac(&mut self, mac: [u8; 6]) {
        // SAFETY: `host` is live, and the six bytes are copied.
        unsafe { eqp_host_set_decapsulation_mac(self.host.as_ptr(), mac.as_ptr()) }
    }

    /// Packets that `decapsulate` left alone because their frame was for another station.
    pub fn foreign_macs(&self) -> u64 {
        const FOREIGN_MAC: c_int = 3;
        // SAFETY: `host` is live, and the number is one of `enum eqp_decapsulated`.
        unsafe { eqp_host_decapsulated(self.host.as_ptr(), FOREIGN_MAC) }
    }

    /// What `bpf_fib_lookup` says from now on: of other destinations, that they are not forwarded.
    ///
    /// # Panics
    /// If there are more than 64.
    pub fn set_routes(&mut self, routes: &[Route]) {
        // SAFETY: `host` is live until `self` is dropped.
        unsafe { eqp_host_forget_routes(self.host.as_ptr()) };
        routes.iter().for_each(|route| self.add_route(route));
    }

    /// One more of those.
    ///
    /// # Panics
    /// At the 65th.
    pub fn add_route(&mut self, route: &Route) {
        let mut destination = [0; 16];
        let family = match route.destination {
            IpAddr::V4(address) => {
                destination[..4].copy_from_slice(&address.octets());
                2
            }
            IpAddr::V6(address) => {
                destination = address.octets();
                10
            }
        };
        let Route { result, ifindex, destination_mac, source_mac, .. } = *route;
        let raw = RawRoute { destination, family, ifindex, result, destination_mac, source_mac };
        // SAFETY: `host` is live, and the route is copied.
        assert!(unsafe { eqp_host_add_route(self.host.as_ptr(), &raw) } != 0, "room for the route");
    }

    /// Runs `balance` on a frame: the verdict (`XDP_*`), and the frame as it is then.
    ///
    /// # Panics
    /// If the program moved the frame out of its buffer.
    pub fn run(&mut self, cpu: u32, ifindex: u32, packet: &[u8]) -> (u32, Vec<u8>) {
        self.run_entry(HostEntry::Balance, cpu, ifindex, packet)
    }

    /// The same of any program.
    ///
    /// # Panics
    /// If the program moved the frame out of its buffer.
    pub fn run_entry(
        &mut self,
        entry: HostEntry,
        cpu: u32,
        ifindex: u32,
        packet: &[u8],
    ) -> (u32, Vec<u8>) {
        let mut buffer = vec![POISON; HEADROOM + packet.len() + TAILROOM];
        let (mut begin, mut end) = (HEADROOM, HEADROOM + packet.len());
        buffer[begin..end].copy_from_slice(packet);
        // SAFETY: `host` is live, and `begin..end` is inside of the buffer.
        let verdict = unsafe {
            eqp_host_run(
                self.host.as_ptr(),
                entry as c_int,
                cpu,
                ifindex,
                buffer.as_mut_ptr(),
                buffer.len(),
                &raw mut begin,
                &raw mut end,
                &raw mut self.redirected_to,
            )
        };
        (verdict, buffer[begin..end].to_vec())
    }

    /// Where the last packet leaves that was redirected (`XDP_REDIRECT`).
    pub fn redirected_to(&self) -> Option<u32> {
        (self.redirected_to != 0).then_some(self.redirected_to)
    }
}

impl Drop for HostProgram {
    fn drop(&mut self) {
        // SAFETY: made by `eqp_host_new`, and not used after this.
        unsafe { eqp_host_free(self.host.as_ptr()) }
    }
}
