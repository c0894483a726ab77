//! The Katran-style program with its tables: see `bpf/katran_style.bpf.c`.

use std::mem::MaybeUninit;
use std::net::IpAddr;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd};

use anyhow::{Context, Result};
use libbpf_rs::skel::{OpenSkel, SkelBuilder};
use libbpf_rs::{MapCore, MapFlags, MapHandle, MapType, OpenObject};

use crate::contender::{Contender, Counters};
use crate::kernel_memory::map_bytes;
use crate::ring::ring;
use crate::traffic::{Family, PORT, PROTOCOL, ROUTER_MAC, Traffic};

mod skeleton {
    #![allow(warnings, clippy::all, reason = "generated")]
    include!(concat!(env!("OUT_DIR"), "/katran_style.skel.rs"));
}

const RING_ENTRIES: usize = 65_537;
const VIPS_MAX: u32 = 512;
/// Rows of `stats` behind the VIPs', in the order of `enum global_row`.
const ROW_LRU: u32 = VIPS_MAX;
const ROW_TX: u32 = VIPS_MAX + 6;
/// Katran's `MAX_CONN_RATE`.
const NEW_FLOWS_PER_SECOND_MAX: u32 = 125_000;
const REAL_IPV6: u8 = 1;
const FLOW_KEY_BYTES: u32 = 40;
const FLOW_REAL_BYTES: u32 = 16;

/// How packets leave.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Method {
    /// IPIP or IP6IP6, as in Katran.
    Tunnel,
    /// The MAC address is rewritten.
    Direct,
}

/// How large it is made.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Size {
    /// Entries of the LRU of the one CPU that forwards.
    pub(crate) lru: u32,
    /// VIPs that there is room for in the rings; Katran's default is 512.
    pub(crate) vips: u32,
    pub(crate) backends: u16,
}

/// The program, loaded, with VIPs and reals.
pub(crate) struct KatranStyle {
    skeleton: skeleton::KatranStyleSkel<'static>,
    lru: MapHandle,
    backends: u16,
    vips: u32,
    family: Family,
    method: Method,
}

impl KatranStyle {
    /// Loads it for the CPU `cpu` only, as one of Katran's forwarding CPUs.
    pub(crate) fn load(
        traffic: &Traffic,
        size: Size,
        cpu: u32,
        method: Method,
    ) -> Result<KatranStyle> {
        let object: &'static mut MaybeUninit<OpenObject> =
            Box::leak(Box::new(MaybeUninit::uninit()));
        let mut open = skeleton::KatranStyleSkelBuilder::default().open(object)?;
        open.maps.rings.set_max_entries(size.vips * RING_ENTRIES as u32)?;
        let skeleton = open.load().context("loading the Katran-style program: are you root?")?;
        let options = libbpf_rs::libbpf_sys::bpf_map_create_opts {
            sz: size_of::<libbpf_rs::libbpf_sys::bpf_map_create_opts>() as _,
            ..Default::default()
        };
        let lru = MapHandle::create(
            MapType::LruHash,
            Some("lru"),
            FLOW_KEY_BYTES,
            FLOW_REAL_BYTES,
            size.lru,
            &options,
        )
        .context("creating the LRU of flows")?;
        let fd = lru.as_fd().as_raw_fd().to_ne_bytes();
        skeleton.maps.flows.update(&cpu.to_ne_bytes(), &fd, MapFlags::ANY)?;
        let (family, vips, backends) = (traffic.family, traffic.vips, size.backends);
        let mut loaded = KatranStyle { skeleton, lru, backends, vips, family, method };
        loaded.fill(traffic)?;
        Ok(loaded)
    }

    fn fill(&mut self, traffic: &Traffic) -> Result<()> {
        let maps = &self.skeleton.maps;
        for vip in 0..traffic.vips {
            let mut key = [0; 20];
            write_address(&mut key, self.family.vip(vip));
            key[16..18].copy_from_slice(&PORT.to_be_bytes());
            key[18] = PROTOCOL;
            let value = u64::from(vip) << 32;
            maps.vips.update(&key, &value.to_ne_bytes(), MapFlags::ANY)?;
            let ring = ring(self.backends, RING_ENTRIES);
            let first = vip * RING_ENTRIES as u32;
            let keys: Vec<u8> =
                (first..first + ring.len() as u32).flat_map(u32::to_ne_bytes).collect();
            let values: Vec<u8> =
                ring.iter().flat_map(|real| (u32::from(*real) + 1).to_ne_bytes()).collect();
            let (any, count) = (MapFlags::ANY, ring.len() as u32);
            maps.rings.update_batch(&keys, &values, count, any, any)?;
        }
        for number in 0..self.backends {
            let mut real = [0; 24];
            write_address(&mut real, self.family.backend(usize::from(number)));
            real[16] = if self.family == Family::V6 { REAL_IPV6 } else { 0 };
            real[17..23].copy_from_slice(&mac(number));
            let key = (u32::from(number) + 1).to_ne_bytes();
            maps.reals.update(&key, &real, MapFlags::ANY)?;
        }
        let mut next_hop = [0; 8];
        next_hop[..6].copy_from_slice(&ROUTER_MAC);
        maps.control.update(&0u32.to_ne_bytes(), &next_hop, MapFlags::ANY)?;
        Ok(())
    }

    /// Lets the LRU take flows faster than Katran's limit, to fill it; or no longer.
    pub(crate) fn set_filling(&mut self, filling: bool) -> Result<()> {
        let data = self.skeleton.maps.data_data.as_mut().context("the program's variables")?;
        data.new_flows_per_second_max = if filling { u32::MAX } else { NEW_FLOWS_PER_SECOND_MAX };
        Ok(())
    }

    /// A row of `stats`, over all CPUs.
    fn stats(&self, row: u32) -> Result<[u64; 2]> {
        sum(&self.skeleton.maps.stats, row)
    }
}

/// Of the backend, for direct routing.
pub(crate) fn mac(backend: u16) -> [u8; 6] {
    let [high, low] = backend.to_be_bytes();
    [2, 0, 0, 1, high, low]
}

fn write_address(bytes: &mut [u8], address: IpAddr) {
    match address {
        IpAddr::V4(address) => bytes[..4].copy_from_slice(&address.octets()),
        IpAddr::V6(address) => bytes[..16].copy_from_slice(&address.octets()),
    }
}

fn sum(map: &impl MapCore, row: u32) -> Result<[u64; 2]> {
    let values =
        map.lookup_percpu(&row.to_ne_bytes(), MapFlags::ANY)?.context("a row of counters")?;
    let word = |bytes: &[u8], at: usize| {
        bytes[at..at + 8].try_into().map(u64::from_ne_bytes).context("two words a row")
    };
    values.iter().try_fold([0; 2], |sum: [u64; 2], value| {
        Ok([sum[0] + word(value, 0)?, sum[1] + word(value, 8)?])
    })
}

impl Contender for KatranStyle {
    fn name(&self) -> &str {
        match self.method {
            Method::Tunnel => "katran_tunnel",
            Method::Direct => "katran_direct",
        }
    }

    fn program(&self) -> BorrowedFd<'_> {
        match self.method {
            Method::Tunnel => self.skeleton.progs.katran_style.as_fd(),
            Method::Direct => self.skeleton.progs.katran_style_direct.as_fd(),
        }
    }

    fn vips(&self) -> u32 {
        self.vips
    }

    fn keep_up(&mut self) -> Result<()> {
        Ok(())
    }

    fn counters(&self) -> Result<Counters> {
        let [packets, misses] = self.stats(ROW_LRU)?;
        let mut backends = 0;
        for real in 1..=u32::from(self.backends) {
            backends += usize::from(sum(&self.skeleton.maps.reals_stats, real)?[0] > 0);
        }
        Ok(Counters {
            forwarded: self.stats(ROW_TX)?[0],
            new_flows: misses,
            recorded: packets - misses,
            backends,
        })
    }

    fn grows_by(&self) -> usize {
        match self.method {
            Method::Tunnel => self.family.header_bytes(),
            Method::Direct => 0,
        }
    }

    fn keeps_packet(&self) -> bool {
        true
    }

    fn maps(&self) -> Result<Vec<(String, u64)>> {
        let maps = &self.skeleton.maps;
        let mut bytes = vec![("lru".to_string(), map_bytes(self.lru.as_fd())?)];
        for (name, fd) in [
            ("vips", maps.vips.as_fd()),
            ("flows", maps.flows.as_fd()),
            ("flows_of_other_cpus", maps.flows_of_other_cpus.as_fd()),
            ("rings", maps.rings.as_fd()),
            ("reals", maps.reals.as_fd()),
            ("control", maps.control.as_fd()),
            ("stats", maps.stats.as_fd()),
            ("reals_stats", maps.reals_stats.as_fd()),
            ("data", maps.data.as_fd()),
        ] {
            bytes.push((name.to_string(), map_bytes(fd)?));
        }
        Ok(bytes)
    }
}
