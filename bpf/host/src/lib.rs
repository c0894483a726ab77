//! The packet programs compiled for the host: the same C with the memory of a process, without
//! privileges.
//!
//! In: frames, with the CPU and interface that receive them. Out: the verdict, the frame after the
//! program, and changes of the [`Memory`]. For tests only.

use std::ffi::c_int;
use std::net::IpAddr;
use std::ptr::NonNull;

use equipoise_packet::abi::{DecapsulationBackend, DecapsulationConstants};
use equipoise_packet::{Limits, Memory};

#[repr(C)]
struct Host {
    opaque: [u8; 0],
}

/// Mirror of `struct eqp_host_route`.
#[repr(C)]
struct RawRoute {
    destination: [u8; 16],
    family: u32,
    ifindex: u32,
    result: c_int,
    destination_mac: [u8; 6],
    source_mac: [u8; 6],
}

/// Mirror of `struct eqp_host_backend`.
#[repr(C)]
struct RawBackend {
    address: [u8; 16],
    family: u32,
    way: DecapsulationBackend,
}

unsafe extern "C" {
    fn eqp_host_new(
        tables: *mut u8,
        state: *mut u8,
        cpus: *mut u8,
        ports: *mut u8,
        translated: *mut u8,
        constants: *const u8,
    ) -> *mut Host;
    fn eqp_host_free(host: *mut Host);
    fn eqp_host_set_clock(host: *mut Host, now_ns: u64);
    fn eqp_host_set_decapsulation(host: *mut Host, constants: *const DecapsulationConstants);
    fn eqp_host_set_decapsulation_mac(host: *mut Host, mac: *const u8);
    fn eqp_host_decapsulated(host: *const Host, which: c_int) -> u64;
    fn eqp_host_add_backend(host: *mut Host, backend: *const RawBackend) -> c_int;
    fn eqp_host_set_socket(host: *mut Host, has_socket: c_int);
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

/// The address, IPv4 in the first four bytes, and `AF_*`.
fn address_and_family(address: IpAddr) -> ([u8; 16], u32) {
    match address {
        IpAddr::V4(address) => {
            let mut bytes = [0; 16];
            bytes[..4].copy_from_slice(&address.octets());
            (bytes, 2)
        }
        IpAddr::V6(address) => (address.octets(), 10),
    }
}

/// Byte value of the room before and after a packet; a program must not send it.
pub const POISON: u8 = 0xa5;
/// Size of the room before a packet, as in drivers (`XDP_PACKET_HEADROOM`), bytes.
pub const HEADROOM: usize = 256;
const TAILROOM: usize = 64;

/// Result of the kernel's routing for a destination: `BPF_FIB_LKUP_RET_*`, and the next hop on
/// success.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Route {
    /// The exact destination address, not a network.
    pub destination: IpAddr,
    /// 0: success; 7: no neighbour (yet); 4: not forwarded.
    pub result: i32,
    /// Outgoing interface.
    pub ifindex: u32,
    /// MAC address of the next hop.
    pub destination_mac: [u8; 6],
    /// MAC address of the interface.
    pub source_mac: [u8; 6],
}

/// Selects a program.
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

/// The programs with a [`Memory`], and their own fragment table, clock and routes.
#[derive(Debug)]
pub struct HostProgram {
    host: NonNull<Host>,
    redirected_to: u32,
    // The pointers in `host` refer to it.
    _memory: Memory,
}

// SAFETY: the C code has no state except the target of `host`, and a thread-local that each run
// sets at its start.
unsafe impl Send for HostProgram {}

impl HostProgram {
    /// Uses memory with the layout of `limits`.
    ///
    /// # Panics
    /// If the process has no memory for the program's own tables.
    pub fn new(memory: &Memory, limits: &Limits) -> HostProgram {
        let tables = memory.tables.start().as_ptr();
        let state = memory.state.area().start().as_ptr();
        let cpus = memory.cpus_area().start().as_ptr();
        let ports = memory.ports.area().start().as_ptr();
        let translated = memory.translated.area();
        let translated = translated.map_or(std::ptr::null_mut(), |area| area.start().as_ptr());
        let constants = limits.as_bytes().as_ptr();
        // SAFETY: the areas have the sizes of the limits (`Memory::over` checks it), and `_memory`
        // keeps them. The C code reads the whole struct of limits: both sides assert its size.
        let host = unsafe { eqp_host_new(tables, state, cpus, ports, translated, constants) };
        let host = NonNull::new(host).expect("memory for the program's tables");
        HostProgram { host, redirected_to: 0, _memory: memory.clone() }
    }

    /// Sets the result of `bpf_ktime_get_ns`. The initial value is 0, and the clock stands still.
    pub fn set_clock(&mut self, now_ns: u64) {
        // SAFETY: `host` is live until `self` is dropped.
        unsafe { eqp_host_set_clock(self.host.as_ptr(), now_ns) }
    }

    /// Sets the constants of `decapsulate`. The default accepts tunnels from any source, and no
    /// GUE.
    pub fn set_decapsulation(&mut self, constants: &DecapsulationConstants) {
        // SAFETY: `host` is live until `self` is dropped. The constants have the layout of C and
        // are copied.
        unsafe { eqp_host_set_decapsulation(self.host.as_ptr(), constants) }
    }

    /// Sets this machine's only MAC address, which `decapsulate` compares if its constants have the
    /// flag.
    pub fn set_decapsulation_mac(&mut self, mac: [u8; 6]) {
        // SAFETY: `host` is live, and the six bytes are copied.
        unsafe { eqp_host_set_decapsulation_mac(self.host.as_ptr(), mac.as_ptr()) }
    }

    /// Returns the number of packets that `decapsulate` ignored because their frame was for another
    /// station.
    pub fn foreign_macs(&self) -> u64 {
        self.decapsulated(3)
    }

    /// Returns the number of packets in a counter of `decapsulate`.
    ///
    /// # Panics
    /// If there is no such counter.
    pub fn decapsulated(&self, which: u8) -> u64 {
        assert!(which < 8, "a number of `enum eqp_decapsulated`");
        // SAFETY: `host` is live, and the number is one of `enum eqp_decapsulated`.
        unsafe { eqp_host_decapsulated(self.host.as_ptr(), which.into()) }
    }

    /// Adds a backend to which `decapsulate` may pass packets on.
    ///
    /// # Panics
    /// If there are 64 already.
    pub fn add_backend(&mut self, address: IpAddr, way: DecapsulationBackend) {
        let (address, family) = address_and_family(address);
        let raw = RawBackend { address, family: if family == 2 { 4 } else { 6 }, way };
        // SAFETY: `host` is live, and the backend is copied.
        let is_added = unsafe { eqp_host_add_backend(self.host.as_ptr(), &raw) } != 0;
        assert!(is_added, "room for the backend");
    }

    /// Sets whether a socket has the flow of the next packets of `decapsulate`.
    pub fn set_socket(&mut self, has_socket: bool) {
        // SAFETY: `host` is live until `self` is dropped.
        unsafe { eqp_host_set_socket(self.host.as_ptr(), has_socket.into()) }
    }

    /// Sets the results of `bpf_fib_lookup`. Other destinations are not forwarded.
    ///
    /// # Panics
    /// If there are more than 64 routes.
    pub fn set_routes(&mut self, routes: &[Route]) {
        // SAFETY: `host` is live until `self` is dropped.
        unsafe { eqp_host_forget_routes(self.host.as_ptr()) };
        routes.iter().for_each(|route| self.add_route(route));
    }

    /// Adds a route.
    ///
    /// # Panics
    /// If there are 64 routes already.
    pub fn add_route(&mut self, route: &Route) {
        let (destination, family) = address_and_family(route.destination);
        let Route { result, ifindex, destination_mac, source_mac, .. } = *route;
        let raw = RawRoute { destination, family, ifindex, result, destination_mac, source_mac };
        // SAFETY: `host` is live, and the route is copied.
        assert!(unsafe { eqp_host_add_route(self.host.as_ptr(), &raw) } != 0, "room for the route");
    }

    /// Runs `balance` on a frame. Returns the verdict (`XDP_*`) and the resulting frame.
    ///
    /// # Panics
    /// If the program moved the frame out of its buffer.
    pub fn run(&mut self, cpu: u32, ifindex: u32, packet: &[u8]) -> (u32, Vec<u8>) {
        self.run_entry(HostEntry::Balance, cpu, ifindex, packet)
    }

    /// Runs any program on a frame, like [`HostProgram::run`].
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
        // SAFETY: `host` is live, and `begin..end` is inside the buffer.
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

    /// Returns the outgoing interface of the last packet, if it was redirected (`XDP_REDIRECT`).
    pub fn redirected_to(&self) -> Option<u32> {
        (self.redirected_to != 0).then_some(self.redirected_to)
    }
}

impl Drop for HostProgram {
    fn drop(&mut self) {
        // SAFETY: `eqp_host_new` made it, and it is not used after this.
        unsafe { eqp_host_free(self.host.as_ptr()) }
    }
}
