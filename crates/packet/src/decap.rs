//! Decapsulation on a backend: the program `decapsulate` on an interface.

use std::net::IpAddr;

use libbpf_rs::{Link, MapCore, MapFlags, Program, ProgramMut, Xdp, XdpFlags};
use thiserror::Error;

use crate::abi::{DECAPSULATION_ADDRESSES, DECAPSULATION_MACS, DecapsulationConstants};
use crate::engine::XdpMode;
use crate::program::{Decapsulated, Decapsulator, LoadError};

const NAME: &str = "decapsulate";

/// The map of outer destinations that are ours.
const ADDRESSES: &str = "addresses";
/// As many as the map has room for.
const ADDRESSES_MAX: usize = 1024;
/// The map of destination MAC addresses that are ours, and its room.
const MACS: &str = "macs";
const MACS_MAX: usize = 64;

/// Why decapsulation cannot begin or go on.
#[derive(Debug, Error)]
pub enum DecapError {
    /// The program cannot be loaded.
    #[error(transparent)]
    Load(#[from] LoadError),
    /// The interface has a program that is not this one.
    #[error(
        "interface {interface} has another XDP program already; remove it first: ip link set dev {interface} xdp off"
    )]
    Occupied {
        /// Its name.
        interface: String,
    },
    /// The interface takes no program.
    #[error("interface {interface} takes no XDP program, neither native nor generic")]
    Attach {
        /// Its name.
        interface: String,
        /// What the kernel said.
        #[source]
        source: libbpf_rs::Error,
    },
    /// More addresses than there is room for.
    #[error("{0} addresses, but there is room for 1024; name fewer with --address")]
    Addresses(usize),
    /// More MAC addresses than there is room for.
    #[error(
        "{0} MAC addresses, but there is room for 64; name those that are needed with --accept-mac"
    )]
    Macs(usize),
    /// A map cannot be read or written.
    #[error("cannot use a map of the decapsulation program")]
    Map(#[source] libbpf_rs::Error),
}

/// Who holds the program on the interface.
#[derive(Debug)]
enum Hold {
    /// Gone with us, however we end.
    Link(#[expect(dead_code, reason = "detaches when dropped")] Link),
    /// Stays, whatever becomes of us; taken off at the end unless it is to be kept.
    Interface { keep: bool },
}

/// The program on an interface. Dropped, it is taken off, unless it is to be kept.
#[derive(Debug)]
pub struct Decapsulation {
    decapsulator: Decapsulator,
    ifindex: i32,
    hold: Option<Hold>,
}

impl Decapsulation {
    /// Loads the program; [`Decapsulation::accept`] says which outer destinations are ours, and
    /// [`Decapsulation::take_frames`] which MAC addresses. At first there are none of either.
    ///
    /// # Errors
    /// [`DecapError::Load`]
    pub fn load(constants: &DecapsulationConstants) -> Result<Decapsulation, DecapError> {
        let flags = constants.flags | DECAPSULATION_ADDRESSES | DECAPSULATION_MACS;
        let decapsulator = Decapsulator::load(&DecapsulationConstants { flags, ..*constants })?;
        Ok(Decapsulation { decapsulator, ifindex: 0, hold: None })
    }

    /// Sets which outer destinations are ours; what is sent to others passes.
    ///
    /// # Errors
    /// [`DecapError::Addresses`], [`DecapError::Map`]
    pub fn accept(&self, addresses: &[IpAddr]) -> Result<(), DecapError> {
        if addresses.len() > ADDRESSES_MAX {
            return Err(DecapError::Addresses(addresses.len()));
        }
        self.fill(ADDRESSES, addresses.iter().map(|address| key(*address)).collect())
    }

    /// Sets which frames are ours, by their destination MAC address; those to others pass.
    ///
    /// # Errors
    /// [`DecapError::Macs`], [`DecapError::Map`]
    pub fn take_frames(&self, macs: &[[u8; 6]]) -> Result<(), DecapError> {
        if macs.len() > MACS_MAX {
            return Err(DecapError::Macs(macs.len()));
        }
        self.fill(MACS, macs.iter().map(|mac| [&mac[..], &[0; 2]].concat()).collect())
    }

    /// Makes a map have these keys.
    fn fill(&self, map: &str, wanted: Vec<Vec<u8>>) -> Result<(), DecapError> {
        let found = self.decapsulator.object().maps().find(|it| it.name() == map);
        let map = found.unwrap_or_else(|| unreachable!("the object that was built in has it"));
        for gone in map.keys().filter(|known| !wanted.iter().any(|key| known == key)) {
            map.delete(&gone).map_err(DecapError::Map)?;
        }
        for key in wanted {
            map.update(&key, &1_u32.to_ne_bytes(), MapFlags::ANY).map_err(DecapError::Map)?;
        }
        Ok(())
    }

    /// Attaches the program, native if the interface can. With `keep` it stays when this ends; one
    /// that was kept is replaced without a gap.
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
        let hold = if keep || kept {
            self.attach_to_interface(kept).map_err(failed)?;
            Hold::Interface { keep }
        } else {
            let ifindex = self.ifindex;
            match self.program().attach_xdp(ifindex) {
                Ok(link) => Hold::Link(link),
                // The driver can XDP, but not this program or not now, with large packets for
                // instance.
                Err(_) => {
                    self.attach_to_interface(false).map_err(failed)?;
                    Hold::Interface { keep }
                }
            }
        };
        self.hold = Some(hold);
        Ok(self.mode())
    }

    fn attach_to_interface(&mut self, replace: bool) -> libbpf_rs::Result<()> {
        let ifindex = self.ifindex;
        let only_new = || if replace { XdpFlags::NONE } else { XdpFlags::UPDATE_IF_NOEXIST };
        let xdp = Xdp::new(self.decapsulator.fd());
        xdp.attach(ifindex, only_new() | XdpFlags::DRV_MODE)
            .or_else(|_| xdp.attach(ifindex, only_new() | XdpFlags::SKB_MODE))
    }

    /// The name of the program that the interface has.
    fn attached(&self) -> Option<String> {
        let id = Some(self.xdp_query()?.prog_id).filter(|id| *id != 0)?;
        let found = libbpf_rs::query::ProgInfoIter::default().find(|program| program.id == id);
        // One that we may not look at is not ours.
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

    /// What became of packets since the program was loaded.
    ///
    /// # Errors
    /// [`DecapError::Map`]
    pub fn counts(&self) -> Result<Decapsulated, DecapError> {
        self.decapsulator.counters().map_err(DecapError::Map)
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
            // Not the program of somebody who has taken over meanwhile.
            let ours = Program::id_from_fd(self.decapsulator.fd()).ok();
            if ours.is_some() && self.xdp_query().map(|attached| attached.prog_id) == ours {
                let _ = Xdp::new(self.decapsulator.fd()).detach(self.ifindex, XdpFlags::NONE);
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

    /// IPIP to `to`, around a packet of 20 bytes.
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
    fn only_what_is_sent_to_accepted_addresses_is_unpacked() {
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
