//! Decapsulation on a backend: the program `decapsulate` on an interface.

use std::io;
use std::net::IpAddr;
use std::os::fd::BorrowedFd;

use libbpf_rs::{Link, Map, MapCore, MapFlags, Program, ProgramMut, Xdp, XdpFlags};
use thiserror::Error;

use crate::abi::{
    DECAPSULATION_ADDRESSES, DECAPSULATION_MACS, DECAPSULATION_SECOND_CHANCE, DecapsulationBackend,
    DecapsulationConstants,
};
use crate::engine::{Ways, XdpMode};
use crate::privileges::Capabilities;
use crate::program::{Decapsulated, Decapsulator, LoadError, Run, RunError};

const NAME: &str = "decapsulate";

/// Name of the map of accepted outer destinations.
const ADDRESSES: &str = "addresses";
/// Capacity of the map.
const ADDRESSES_MAX: usize = 1024;
/// Name and capacity of the map of accepted destination MAC addresses.
const MACS: &str = "macs";
const MACS_MAX: usize = 64;
/// Name and capacity of the map of backends that get packets of unknown flows.
const BACKENDS: &str = "backends";
const BACKENDS_MAX: usize = 1024;

/// Error of decapsulation.
#[derive(Debug, Error)]
pub enum DecapError {
    /// The program cannot be loaded.
    #[error(transparent)]
    Load(#[from] LoadError),
    /// The interface has another XDP program.
    #[error(
        "interface {interface} has another XDP program already; remove it first: ip link set dev {interface} xdp off"
    )]
    Occupied {
        /// Name of the interface.
        interface: String,
    },
    /// The interface does not support XDP programs.
    #[error("interface {interface} takes no XDP program, neither native nor generic")]
    Attach {
        /// Name of the interface.
        interface: String,
        /// Error of the system call.
        #[source]
        source: libbpf_rs::Error,
    },
    /// There are more addresses than the map can hold.
    #[error("{0} addresses, but there is room for 1024; name fewer with --address")]
    Addresses(usize),
    /// There are more MAC addresses than the map can hold.
    #[error(
        "{0} MAC addresses, but there is room for 64; name those that are needed with --accept-mac"
    )]
    Macs(usize),
    /// There are more backends than the map can hold.
    #[error("{0} addresses of backends for a second chance, but there is room for 1024")]
    Backends(usize),
    /// The kernel's tables of routes and neighbours cannot be read.
    #[error("cannot read the kernel's routes and neighbours")]
    Ways(#[source] io::Error),
    /// A map cannot be read or written.
    #[error("cannot use a map of the decapsulation program")]
    Map(#[source] libbpf_rs::Error),
}

/// Attachment of the program to the interface.
#[derive(Debug)]
enum Hold {
    /// Ends with this process in any case.
    Link(#[expect(dead_code, reason = "detaches when dropped")] Link),
    /// Outlives this process; detached at the end unless `keep` is set.
    Interface { keep: bool },
}

/// The program on an interface. Dropping it detaches the program, unless it was attached with
/// `keep`.
#[derive(Debug)]
pub struct Decapsulation {
    decapsulator: Decapsulator,
    ifindex: i32,
    /// To the backends that get packets of unknown flows; `None`: no backend does.
    ways: Option<Ways>,
    hold: Option<Hold>,
}

impl Decapsulation {
    /// Loads the program. [`Decapsulation::accept`] sets the accepted outer destinations, and
    /// [`Decapsulation::take_frames`] the accepted MAC addresses. Initially there are none of
    /// either.
    ///
    /// # Errors
    /// [`DecapError::Load`]
    pub fn load(constants: &DecapsulationConstants) -> Result<Decapsulation, DecapError> {
        let flags = constants.flags | DECAPSULATION_ADDRESSES | DECAPSULATION_MACS;
        let decapsulator = Decapsulator::load(&DecapsulationConstants { flags, ..*constants })?;
        Ok(Decapsulation { decapsulator, ifindex: 0, ways: None, hold: None })
    }

    /// Loads the program with a second chance for packets of flows that this host does not know: it
    /// passes them on to the backend that they name, if that is one of `backends`.
    ///
    /// # Errors
    /// [`DecapError::Load`], [`DecapError::Backends`], [`DecapError::Ways`], [`DecapError::Map`]
    pub fn with_second_chance(
        constants: &DecapsulationConstants,
        backends: &[IpAddr],
    ) -> Result<Decapsulation, DecapError> {
        if backends.len() > BACKENDS_MAX {
            return Err(DecapError::Backends(backends.len()));
        }
        let flags = constants.flags | DECAPSULATION_SECOND_CHANCE;
        let mut decapsulation =
            Decapsulation::load(&DecapsulationConstants { flags, ..*constants })?;
        for backend in backends {
            decapsulation.set_way(*backend, &DecapsulationBackend::default())?;
        }
        let ways = Ways::new(backends.iter().copied().collect()).map_err(DecapError::Ways)?;
        decapsulation.ways = Some(ways);
        decapsulation.resolve()?;
        Ok(decapsulation)
    }

    /// Reads the ways to the other backends again. Returns whether each is known.
    ///
    /// # Errors
    /// [`DecapError::Ways`], [`DecapError::Map`]
    pub fn resolve(&mut self) -> Result<bool, DecapError> {
        let Some(ways) = &mut self.ways else { return Ok(true) };
        let hops = ways.read().map_err(DecapError::Ways)?;
        let mut all = true;
        for (address, hop) in hops {
            let mac = hop.destination_mac;
            all &= mac.is_some();
            let way = mac.map(|destination_mac| DecapsulationBackend {
                ifindex: hop.ifindex,
                destination_mac,
                source_mac: hop.source_mac,
            });
            self.set_way(address, &way.unwrap_or_default())?;
        }
        Ok(all)
    }

    fn set_way(&self, to: IpAddr, way: &DecapsulationBackend) -> Result<(), DecapError> {
        let map = self.map(BACKENDS);
        map.update(&key(to), way.as_bytes(), MapFlags::ANY).map_err(DecapError::Map)
    }

    /// Sets the accepted outer destinations; packets to others pass.
    ///
    /// # Errors
    /// [`DecapError::Addresses`], [`DecapError::Map`]
    pub fn accept(&self, addresses: &[IpAddr]) -> Result<(), DecapError> {
        if addresses.len() > ADDRESSES_MAX {
            return Err(DecapError::Addresses(addresses.len()));
        }
        self.fill(ADDRESSES, addresses.iter().map(|address| key(*address)).collect())
    }

    /// Sets the accepted destination MAC addresses; frames to others pass.
    ///
    /// # Errors
    /// [`DecapError::Macs`], [`DecapError::Map`]
    pub fn take_frames(&self, macs: &[[u8; 6]]) -> Result<(), DecapError> {
        if macs.len() > MACS_MAX {
            return Err(DecapError::Macs(macs.len()));
        }
        self.fill(MACS, macs.iter().map(|mac| [&mac[..], &[0; 2]].concat()).collect())
    }

    /// Replaces the keys of a map.
    fn fill(&self, map: &str, wanted: Vec<Vec<u8>>) -> Result<(), DecapError> {
        let map = self.map(map);
        for gone in map.keys().filter(|known| !wanted.iter().any(|key| known == key)) {
            map.delete(&gone).map_err(DecapError::Map)?;
        }
        for key in wanted {
            map.update(&key, &1_u32.to_ne_bytes(), MapFlags::ANY).map_err(DecapError::Map)?;
        }
        Ok(())
    }

    fn map(&self, name: &str) -> Map<'_> {
        let found = self.decapsulator.object().maps().find(|it| it.name() == name);
        found.unwrap_or_else(|| unreachable!("the object that was built in has it"))
    }

    /// Attaches the program, in native mode if the interface supports it, and if packets that are
    /// passed on are not lost so. With `keep` it outlives
    /// this process; an earlier one that was kept is replaced without a gap.
    ///
    /// # Errors
    /// [`DecapError::Occupied`], [`DecapError::Attach`]
    pub fn attach(
        &mut self,
        interface: &str,
        ifindex: u32,
        keep: bool,
    ) -> Result<XdpMode, DecapError> {
        let failed = |source| DecapError::Attach { interface: interface.to_owned(), source };
        self.ifindex = ifindex.cast_signed();
        let kept = match self.attached() {
            None => false,
            Some(name) if name == NAME => true,
            Some(_) => return Err(DecapError::Occupied { interface: interface.to_owned() }),
        };
        let is_generic = self.ways.as_ref().is_some_and(|ways| ways.lose(ifindex));
        let hold = if is_generic {
            self.attach_to_interface(kept, XdpFlags::SKB_MODE).map_err(failed)?;
            Hold::Interface { keep }
        } else if keep || kept {
            self.attach_in_any_mode(kept).map_err(failed)?;
            Hold::Interface { keep }
        } else {
            let ifindex = self.ifindex;
            match self.program().attach_xdp(ifindex) {
                Ok(link) => Hold::Link(link),
                // The driver supports XDP, but not this program, or not now (for example with large
                // packets).
                Err(_) => {
                    self.attach_in_any_mode(false).map_err(failed)?;
                    Hold::Interface { keep }
                }
            }
        };
        self.hold = Some(hold);
        Ok(self.mode())
    }

    /// Returns the capabilities that the other functions and dropping still need after
    /// [`Decapsulation::attach`]. The maps need none, since they are open.
    pub fn needs(&self) -> Capabilities {
        let resolves = self.ways.is_some();
        let detaches = matches!(self.hold, Some(Hold::Interface { keep: false }));
        if resolves || detaches { Capabilities::INTERFACES } else { Capabilities::NONE }
    }

    fn attach_in_any_mode(&self, replace: bool) -> libbpf_rs::Result<()> {
        self.attach_to_interface(replace, XdpFlags::DRV_MODE)
            .or_else(|_| self.attach_to_interface(replace, XdpFlags::SKB_MODE))
    }

    fn attach_to_interface(&self, replace: bool, mode: XdpFlags) -> libbpf_rs::Result<()> {
        let only_new = if replace { XdpFlags::NONE } else { XdpFlags::UPDATE_IF_NOEXIST };
        Xdp::new(self.decapsulator.fd()).attach(self.ifindex, only_new | mode)
    }

    /// Returns the name of the interface's program.
    fn attached(&self) -> Option<String> {
        let id = Some(self.xdp_query()?.prog_id).filter(|id| *id != 0)?;
        let found = libbpf_rs::query::ProgInfoIter::default().find(|program| program.id == id);
        // A program that this process cannot inspect is not ours.
        Some(found.map(|program| program.name.to_string_lossy().into_owned()).unwrap_or_default())
    }

    fn mode(&self) -> XdpMode {
        let generic = libbpf_rs::libbpf_sys::XDP_ATTACHED_SKB;
        match self.xdp_query() {
            Some(attached) if u32::from(attached.attach_mode) == generic => XdpMode::Generic,
            _ => XdpMode::Native,
        }
    }

    fn xdp_query(&self) -> Option<libbpf_rs::libbpf_sys::bpf_xdp_query_opts> {
        Xdp::new(self.decapsulator.fd()).query(self.ifindex, XdpFlags::NONE).ok()
    }

    /// Returns the counts of packets since the program was loaded.
    ///
    /// # Errors
    /// [`DecapError::Map`]
    pub fn counts(&self) -> Result<Decapsulated, DecapError> {
        self.decapsulator.counters().map_err(DecapError::Map)
    }

    /// Returns the program's file descriptor.
    pub fn fd(&self) -> BorrowedFd<'_> {
        self.decapsulator.fd()
    }

    /// Runs the program on a packet, for tests; see [`Decapsulator::run`].
    ///
    /// # Errors
    /// [`RunError`]
    pub fn run(&mut self, packet: &[u8], repeat: u32) -> Result<Run, RunError> {
        self.decapsulator.run(packet, repeat)
    }

    fn program(&mut self) -> ProgramMut<'_> {
        let mut programs = self.decapsulator.object_mut().progs_mut();
        let found = programs.find(|program| program.name() == NAME);
        found.unwrap_or_else(|| unreachable!("the object that was built in has it"))
    }
}

impl Drop for Decapsulation {
    fn drop(&mut self) {
        if let Some(Hold::Interface { keep: false }) = self.hold {
            // Does not detach the program of another process that has taken over.
            let ours = Program::id_from_fd(self.decapsulator.fd()).ok();
            if ours.is_some() && self.xdp_query().map(|attached| attached.prog_id) == ours {
                // Without a mode the kernel would take that of the driver, and find nothing there.
                let mode = match self.mode() {
                    XdpMode::Native => XdpFlags::DRV_MODE,
                    XdpMode::Generic => XdpFlags::SKB_MODE,
                };
                let _ = Xdp::new(self.decapsulator.fd()).detach(self.ifindex, mode);
            }
        }
    }
}

/// A key of the map: the address, IPv4 in the first four bytes; then the family.
fn key(address: IpAddr) -> Vec<u8> {
    let mut key = vec![0; 20];
    match address {
        IpAddr::V4(address) => key[..4].copy_from_slice(&address.octets()),
        IpAddr::V6(address) => key[..16].copy_from_slice(&address.octets()),
    }
    let family: u32 = if address.is_ipv4() { 4 } else { 6 };
    key[16..].copy_from_slice(&family.to_ne_bytes());
    key
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::net::{Ipv4Addr, Ipv6Addr};

    /// An IPIP frame to `to`, with an inner packet of 20 bytes.
    fn tunnelled(to: Ipv4Addr) -> Vec<u8> {
        let mut frame = vec![2; 12];
        frame.extend([8, 0]);
        let header = |bytes: u8, protocol: u8| {
            [0x45, 0, 0, bytes, 0, 0, 0, 0, 64, protocol, 0, 0, 172, 16, 3, 4]
        };
        frame.extend(header(40, 4));
        frame.extend(to.octets());
        frame.extend(header(20, 17));
        frame.extend([203, 0, 113, 10]);
        frame
    }

    #[test]
    fn only_packets_to_accepted_addresses_are_unpacked() {
        let mut program = match Decapsulation::load(&DecapsulationConstants::default()) {
            Err(DecapError::Load(error @ LoadError::Privilege(_))) => {
                return println!("skipped: {error}");
            }
            outcome => outcome.unwrap(),
        };
        program.take_frames(&[[2; 6]]).unwrap();
        let (ours, other) = (Ipv4Addr::new(192, 0, 2, 11), Ipv4Addr::new(192, 0, 2, 12));
        let mut unpacks = |accepted: &[IpAddr], to| {
            program.accept(accepted).unwrap();
            let sent = tunnelled(to);
            let run = program.decapsulator.run(&sent, 1).unwrap();
            assert_eq!(run.verdict, 2, "XDP_PASS");
            run.packet != sent
        };
        let six: IpAddr = Ipv6Addr::LOCALHOST.into();
        assert!(!unpacks(&[], ours));
        assert!(unpacks(&[six, ours.into()], ours));
        assert!(!unpacks(&[six, ours.into()], other));
        assert!(!unpacks(&[six], ours));
        assert!(!unpacks(&[ours.to_ipv6_mapped().into()], ours));
        let many = vec![ours.into(); ADDRESSES_MAX + 1];
        assert!(matches!(program.accept(&many), Err(DecapError::Addresses(1025))));
        assert!(matches!(program.take_frames(&[[2; 6]; 65]), Err(DecapError::Macs(65))));
    }

    #[test]
    fn only_frames_to_accepted_mac_addresses_are_unpacked() {
        let mut program = match Decapsulation::load(&DecapsulationConstants::default()) {
            Err(DecapError::Load(error @ LoadError::Privilege(_))) => {
                return println!("skipped: {error}");
            }
            outcome => outcome.unwrap(),
        };
        let ours = Ipv4Addr::new(192, 0, 2, 11);
        program.accept(&[ours.into()]).unwrap();
        let sent = tunnelled(ours);
        for (macs, is_unpacked) in [(vec![], false), (vec![[4; 6]], false), (vec![[2; 6]], true)] {
            program.take_frames(&macs).unwrap();
            let run = program.decapsulator.run(&sent, 1).unwrap();
            assert_eq!((run.verdict, run.packet != sent), (2, is_unpacked), "{macs:?}");
        }
        assert_eq!(program.counts().unwrap().foreign_mac.packets, 2);
    }
}
