//! Decapsulation on a backend: the program `decapsulate` (bpf/decap.bpf.c) on an interface.

use std::io;
use std::net::IpAddr;
use std::os::fd::AsFd;

use libbpf_rs::{
    ErrorKind, Link, MapCore, MapFlags, Object, ObjectBuilder, Program, ProgramMut, Xdp, XdpFlags,
};
use thiserror::Error;

const OBJECT: &[u8] = include_bytes!(concat!(env!("OUT_DIR"), "/decap.bpf.o"));

const NAME: &str = "decapsulate";

/// `EQP_DECAP_ADDRESSES_MAX`
const ADDRESSES_MAX: usize = 1024;

/// Why decapsulation cannot begin or go on.
#[derive(Debug, Error)]
pub enum DecapError {
    /// The process may not.
    #[error(
        "loading the decapsulation program is not permitted: run as root, or with the capabilities CAP_BPF and \
         CAP_NET_ADMIN"
    )]
    Privilege(#[source] libbpf_rs::Error),
    /// The kernel refuses the program.
    #[error("the kernel refuses the decapsulation program (Linux 6.1 or newer is needed)")]
    Refused(#[source] libbpf_rs::Error),
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
    /// A map cannot be read or written.
    #[error("cannot use the decapsulation program's map `{map}`")]
    Map {
        /// Its name.
        map: &'static str,
        /// What the kernel said.
        #[source]
        source: libbpf_rs::Error,
    },
}

/// How a program sees packets.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum XdpMode {
    /// In the driver.
    Native,
    /// After the kernel has made its own structures: slower, but for every interface.
    Generic,
}

impl XdpMode {
    /// In messages.
    pub fn name(self) -> &'static str {
        match self {
            XdpMode::Native => "native",
            XdpMode::Generic => "generic",
        }
    }
}

/// What was unpacked so far. Bytes are of frames as received.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct DecapCount {
    /// In words: `IPIP`, ...; `invalid` were dropped.
    pub what: &'static str,
    /// Frames.
    pub packets: u64,
    /// Their bytes.
    pub bytes: u64,
}

/// In the order of `enum eqp_decap_counters`.
const COUNTERS: [&str; 6] = ["IPIP", "6in4", "4in6", "IP6IP6", "GUE", "invalid"];

/// Who holds the program on the interface.
#[derive(Debug)]
enum Hold {
    /// Gone with us, however we end.
    Link(#[expect(dead_code, reason = "detaches when dropped")] Link),
    /// Stays, whatever becomes of us; taken off at the end unless it is to be kept.
    Interface { keep: bool },
}

/// The program on an interface. Dropped, it is detached, unless it was to be kept.
#[derive(Debug)]
pub struct Decapsulator {
    object: Object,
    ifindex: i32,
    hold: Option<Hold>,
}

impl Decapsulator {
    /// Loads the program. `gue_port`: UDP destination port of GUE; 0: none.
    ///
    /// # Errors
    /// [`DecapError::Privilege`], [`DecapError::Refused`]
    pub fn load(gue_port: u16) -> Result<Decapsulator, DecapError> {
        let mut open = ObjectBuilder::default().open_memory(OBJECT).map_err(DecapError::Refused)?;
        for mut map in open.maps_mut() {
            if map.name().to_string_lossy().ends_with(".rodata") {
                // `options` is the only constant, and the port is its only field.
                let constants = map.initial_value_mut().unwrap_or_default();
                constants[..2].copy_from_slice(&gue_port.to_be_bytes());
            }
        }
        let object = open.load().map_err(|error| match error.kind() {
            ErrorKind::PermissionDenied => DecapError::Privilege(error),
            _ => DecapError::Refused(error),
        })?;
        Ok(Decapsulator { object, ifindex: 0, hold: None })
    }

    /// Sets which outer destinations are ours; others pass.
    ///
    /// # Errors
    /// [`DecapError::Addresses`], [`DecapError::Map`]
    pub fn accept(&self, addresses: &[IpAddr]) -> Result<(), DecapError> {
        if addresses.len() > ADDRESSES_MAX {
            return Err(DecapError::Addresses(addresses.len()));
        }
        let failed = |source| DecapError::Map { map: "addresses", source };
        let map = self.map("addresses")?;
        let wanted: Vec<_> = addresses.iter().map(|address| key(*address)).collect();
        for gone in map.keys().filter(|known| !wanted.iter().any(|key| known == key)) {
            map.delete(&gone).map_err(failed)?;
        }
        for key in wanted {
            map.update(&key, &1_u32.to_ne_bytes(), MapFlags::ANY).map_err(failed)?;
        }
        Ok(())
    }

    /// Attaches the program, native if the interface can. With `keep` it stays when this ends; one that was kept is
    /// replaced without a gap.
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
                // The driver can XDP, but not this program or not now, with large packets for instance.
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
        let program = self.program();
        let xdp = Xdp::new(program.as_fd());
        xdp.attach(ifindex, only_new() | XdpFlags::DRV_MODE)
            .or_else(|_| xdp.attach(ifindex, only_new() | XdpFlags::SKB_MODE))
    }

    /// The name of the program that the interface has.
    fn attached(&self) -> Option<String> {
        let id = self.xdp_query()?.prog_id;
        let id = Some(id).filter(|id| *id != 0)?;
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
        let map = self.object.maps().next()?;
        // Asking needs no program; the type does.
        Xdp::new(map.as_fd()).query(self.ifindex, XdpFlags::NONE).ok()
    }

    /// What was unpacked since the program was loaded, by all CPUs.
    ///
    /// # Errors
    /// [`DecapError::Map`]
    pub fn counts(&self) -> Result<Vec<DecapCount>, DecapError> {
        let map = self.map("counters")?;
        let mut counts = Vec::new();
        for (index, what) in (0_u32..).zip(COUNTERS) {
            let values = map.lookup_percpu(&index.to_ne_bytes(), MapFlags::ANY);
            let values = values.map_err(|source| DecapError::Map { map: "counters", source })?;
            let mut count = DecapCount { what, ..DecapCount::default() };
            for value in values.unwrap_or_default() {
                let word = |at: usize| {
                    let bytes = value.get(at..at + 8).and_then(|bytes| bytes.try_into().ok());
                    bytes.map_or(0, u64::from_ne_bytes)
                };
                count.packets += word(0);
                count.bytes += word(8);
            }
            counts.push(count);
        }
        Ok(counts)
    }

    fn program(&mut self) -> ProgramMut<'_> {
        let found = self.object.progs_mut().find(|program| program.name() == NAME);
        found.unwrap_or_else(|| unreachable!("the object that was built in has it"))
    }

    fn map(&self, name: &'static str) -> Result<libbpf_rs::Map<'_>, DecapError> {
        let found = self.object.maps().find(|map| map.name() == name);
        let missing = || DecapError::Map {
            map: name,
            source: io::Error::from(io::ErrorKind::NotFound).into(),
        };
        found.ok_or_else(missing)
    }
}

impl Drop for Decapsulator {
    fn drop(&mut self) {
        if let Some(Hold::Interface { keep: false }) = self.hold {
            // Not that of somebody who has taken over meanwhile.
            let ours = Program::id_from_fd(self.program().as_fd()).ok();
            if ours.is_some() && self.xdp_query().map(|attached| attached.prog_id) == ours {
                let ifindex = self.ifindex;
                let _ = Xdp::new(self.program().as_fd()).detach(ifindex, XdpFlags::NONE);
            }
        }
    }
}

/// `struct eqp_decap_address`
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
mod tests;
