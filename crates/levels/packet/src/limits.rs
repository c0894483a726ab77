//! How large everything is: what the configuration asks for, and what follows from it for the
//! memory's layout.

use equipoise_pog::publish::SharedSizes;

use crate::abi::{
    AccessChange, Backend, Counter, Cpu, Directory, Event, HOWS, MACS, Mac, Opening, PENDING_WAYS,
    PORT_WAYS, PendingShare, Port, QUIC_CONFIGS, QuicConfig, QuicServer, REASONS, RECENT, Range,
    Reverse, SENDERS, SKETCH_LAYOUT, Sender, Service, Source, SourceSet, StateHeader,
    TOUCHED_WORDS, TRANSLATED_WAYS, Vip,
};
use crate::tables::PogCell;

/// How much there is room for. Fixed while a program is loaded.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Capacity {
    /// Flows that userspace remembers.
    pub flows: u32,
    /// Form of the tags of flows that were seen in an interval.
    pub tags: FlowTags,
    /// Maximum number of flows pinned in the POG: those with another backend than their service's
    /// ring selects.
    pub pins: u32,
    /// Flows recorded by the program itself while they open or while a pool changes. A power of
    /// two, at least 32768.
    pub pending: u32,
    /// VIPs.
    pub services: u32,
    /// Backends over all services, draining ones included.
    pub backends: u32,
    /// Prefixes in the lists of accepted and refused sources of all services.
    pub prefixes: u32,
    /// Rings: two for each service (one to come during a transition), and one for each that
    /// schedules by turns.
    pub rings: u32,
    /// Entries of a ring.
    pub ring_entries: u32,
    /// Flows of full-nat; 0: no VIP is full-nat.
    pub full_nat_flows: u32,
    /// CPUs that run the program.
    pub cpus: u32,
    /// Events in a CPU's log. A power of two.
    pub log_events: u32,
    /// Packets for each one that is sampled for the sketches; 0: none is.
    pub sample_every: u32,
}

impl Capacity {
    /// The most flows, pins, flows pending, services and backends with which every layout loads:
    /// see [`Limits::ARRAY_OFFSET_MAX`].
    pub const FLOWS_MAX: u32 = 1 << 25;
    /// See [`Self::FLOWS_MAX`].
    pub const PINS_MAX: u32 = 1 << 25;
    /// See [`Self::FLOWS_MAX`].
    pub const PENDING_MAX: u32 = 1 << 23;
    /// See [`Self::FLOWS_MAX`].
    pub const SERVICES_MAX: u32 = 1024;
    /// See [`Self::FLOWS_MAX`].
    pub const BACKENDS_MAX: u32 = 16_384;
    /// See [`Self::FLOWS_MAX`].
    pub const PREFIXES_MAX: u32 = 1 << 17;
    /// See [`Self::FLOWS_MAX`].
    pub const FULL_NAT_FLOWS_MAX: u32 = 1 << 21;
    /// Source addresses of all VIPs of full-nat.
    pub const SOURCES_MAX: u32 = 256;
}

impl Default for Capacity {
    fn default() -> Capacity {
        Capacity {
            flows: 1 << 20,
            tags: FlowTags::default(),
            pins: 1 << 18,
            pending: 1 << 16,
            services: 64,
            backends: 1024,
            prefixes: 1024,
            rings: 16,
            ring_entries: 65_537,
            full_nat_flows: 0,
            cpus: 1,
            log_events: 1 << 16,
            sample_every: 0,
        }
    }
}

/// Form of the tags of flows that were seen in an interval: memory against hidden flows. A flow
/// with the tag of another one is hidden: userspace learns of it in a later interval.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum FlowTags {
    /// Tags of 32 bits, four in a bucket of 16 bytes.
    #[default]
    Long,
    /// Tags of 21 bits, six in a bucket.
    Short,
}

impl FlowTags {
    /// Name in the configuration, form and meaning of each, in the order of the variants.
    pub const CHOICES: [(&str, FlowTags, &str); 2] = [
        (
            "32-bit",
            FlowTags::Long,
            "8 bytes for each flow; of a billion new flows at most one is hidden",
        ),
        (
            "21-bit",
            FlowTags::Short,
            "4 bytes for each flow; of a million new flows at most two are hidden",
        ),
    ];

    /// Flows for each bucket when the registry is full: on average two flows for four long tags, so
    /// that 4 % of the packets of a full registry find a tag replaced, or four for six short ones
    /// (5 %).
    const fn flows_per_bucket(self) -> u32 {
        match self {
            FlowTags::Long => 2,
            FlowTags::Short => 4,
        }
    }
}

macro_rules! limits {
    ($($(#[$doc:meta])* $field:ident,)*) => {
        /// `struct eqp_limits`: sizes and offsets that are constants to the program. Offsets of
        /// tables are in a copy.
        #[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
        #[repr(C)]
        #[allow(missing_docs, reason = "abi.h says what the fields are")]
        pub struct Limits { $($(#[$doc])* pub $field: u32,)* }

        impl Limits {
            /// The fields in order, for comparison with the program's types.
            pub const FIELDS: &[&str] = &[$(stringify!($field)),*];

            /// As the program has them.
            pub fn as_bytes(&self) -> &[u8] {
                // SAFETY: nothing but `u32`, so without padding; the length is the struct's.
                unsafe {
                    std::slice::from_raw_parts(std::ptr::from_ref(self).cast(), size_of::<Limits>())
                }
            }
        }
    };
}

limits! {
    tables_bytes, copy_bytes, cells_max, a_offset, b_offset, directory_offset, vips_offset, vips_max, ranges_offset,
    ranges_max, reverse_offset, reverse_max, services_offset, services_max, backends_offset, backends_max,
    macs_offset, changes_offset, changes_max, quic_configs_offset, quic_servers_offset, quic_servers_max, sources_offset, sources_max, source_sets_offset, rings_offset, rings_max, ring_entries, state_bytes, touched_offset, touched_buckets, short_tags, pending_offset,
    pending_buckets, pending_services_offset, pending_shares_offset, openings_offset, openings, translated_lines, loads_offset, senders_offset, cursors_offset, cpu_bytes, cpus_max, cpu_services_offset, cpu_backends_offset,
    cpu_backend_drops_offset, cpu_hows_offset, cpu_reasons_offset, cpu_recent_offset, cpu_log_offset, log_entries,
    cpu_sketches_offset, sample_every,
    ports_bytes, port_lines, ports_offset, ports_max,
}

const _: () = assert!(size_of::<Limits>() == 232);

const LINE_BYTES: usize = 64;

/// Entries for SYNs: with 1 for 4 flows, a flood of as many SYNs a second as there are flows
/// overwrites most of them within a quarter of a second, which is longer than most handshakes.
const FLOWS_PER_OPENING: u32 = 4;
const OPENINGS_MIN: u32 = 1 << 14;
/// Words for each flow in the table of translated flows: at half load few lines overflow.
const TRANSLATED_PER_FLOW: u32 = 2;
/// Places for each flow of full-nat: at half load, a new flow finds a free one with its second try.
const PORTS_PER_FLOW: u32 = 2;
/// Words for each flow that lead to its port: lines have two on average, and few of eight overflow.
const PORT_WORDS_PER_FLOW: u32 = 2;
/// Entries for each VIP: its exact entry, its ranges, its address; and room, so that few probes are
/// needed.
const VIP_ENTRIES_PER_SERVICE: u32 = 8;
const VIP_ENTRIES_PER_SOURCE: u32 = 2;
const REVERSE_ENTRIES_PER_BACKEND: u32 = 4;
/// Server ids for each backend: of the configuration in use, and of the next or previous one.
pub(crate) const SERVER_IDS_PER_BACKEND: u32 = 2;
/// Entries for each server id, so that few probes are needed.
const ENTRIES_PER_SERVER_ID: u32 = 4;
/// The answer about a source changes at the first address of a prefix and after its last; and at
/// the first address of all, if a service has a list of accepted sources.
pub(crate) const CHANGES_PER_PREFIX: u32 = 2;

/// Lays one array after another.
struct Cursor(usize);

impl Cursor {
    fn place<T>(&mut self, count: u32) -> u32 {
        let at = self.0;
        self.0 = (at + count as usize * size_of::<T>()).next_multiple_of(LINE_BYTES);
        at as u32
    }
}

impl Limits {
    /// Below this, every array of the layout has to begin: the verifier refuses larger offsets
    /// (BPF_MAX_VAR_OFF).
    pub const ARRAY_OFFSET_MAX: u32 = 1 << 29;

    /// The layout for a capacity.
    pub fn new(capacity: &Capacity) -> Limits {
        let source_entries = match capacity.full_nat_flows {
            0 => 0,
            _ => Capacity::SOURCES_MAX * VIP_ENTRIES_PER_SOURCE,
        };
        let mut limits = Limits {
            vips_max: (capacity.services * VIP_ENTRIES_PER_SERVICE + source_entries)
                .next_power_of_two(),
            ranges_max: capacity.services,
            reverse_max: (capacity.backends * REVERSE_ENTRIES_PER_BACKEND).next_power_of_two(),
            services_max: capacity.services,
            backends_max: capacity.backends,
            changes_max: capacity.prefixes * CHANGES_PER_PREFIX + capacity.services,
            quic_servers_max: (capacity.backends * SERVER_IDS_PER_BACKEND * ENTRIES_PER_SERVER_ID)
                .next_power_of_two(),
            sources_max: Capacity::SOURCES_MAX,
            rings_max: capacity.rings,
            ring_entries: capacity.ring_entries,
            touched_buckets: (capacity.flows / capacity.tags.flows_per_bucket())
                .next_power_of_two(),
            short_tags: u32::from(capacity.tags == FlowTags::Short),
            pending_buckets: (capacity.pending / PENDING_WAYS as u32).next_power_of_two().max(4096),
            openings: (capacity.flows / FLOWS_PER_OPENING).next_power_of_two().max(OPENINGS_MIN),
            translated_lines: (capacity.flows * TRANSLATED_PER_FLOW / TRANSLATED_WAYS as u32)
                .next_power_of_two(),
            cpus_max: capacity.cpus,
            log_entries: capacity.log_events.next_power_of_two(),
            sample_every: capacity.sample_every,
            ..Limits::default()
        };
        limits.place_tables(capacity);
        limits.place_state();
        limits.place_cpu();
        limits.place_ports(capacity);
        limits
    }

    fn place_tables(&mut self, capacity: &Capacity) {
        // Two passes: the directory's length is needed for the sizes that give its offset.
        let mut at = Cursor(0);
        at.place::<Directory>(1);
        let offsets = [
            at.place::<Vip>(self.vips_max),
            at.place::<Range>(self.ranges_max),
            at.place::<Reverse>(self.reverse_max),
            at.place::<Service>(self.services_max),
            at.place::<Backend>(self.backends_max),
            at.place::<Mac>(MACS as u32),
            at.place::<AccessChange>(self.changes_max),
            at.place::<[QuicConfig; QUIC_CONFIGS]>(self.services_max),
            at.place::<QuicServer>(self.quic_servers_max),
            at.place::<Source>(self.sources_max),
            at.place::<SourceSet>(self.services_max),
            at.place::<u16>(self.rings_max * self.ring_entries),
        ];
        let sizes = SharedSizes::new(capacity.pins as usize, None).with_extra(at.0 as u32);
        self.directory_offset = sizes.extra_offset::<PogCell>() as u32;
        let [
            vips,
            ranges,
            reverse,
            services,
            backends,
            macs,
            changes,
            configs,
            servers,
            sources,
            sets,
            rings,
        ] = offsets.map(|offset| self.directory_offset + offset);
        (self.vips_offset, self.ranges_offset, self.reverse_offset) = (vips, ranges, reverse);
        (self.services_offset, self.backends_offset) = (services, backends);
        (self.macs_offset, self.changes_offset, self.rings_offset) = (macs, changes, rings);
        (self.quic_configs_offset, self.quic_servers_offset) = (configs, servers);
        (self.sources_offset, self.source_sets_offset) = (sources, sets);
        self.cells_max = sizes.cells_max();
        self.a_offset = sizes.a_offset() as u32;
        self.b_offset = sizes.b_offset::<PogCell>() as u32;
        self.copy_bytes = sizes.copy_bytes::<PogCell>() as u32;
        self.tables_bytes = sizes.bytes::<PogCell>() as u32;
    }

    fn place_state(&mut self) {
        let mut at = Cursor(0);
        at.place::<StateHeader>(1);
        // Tables that grow with `flows` are last: see [`Self::ARRAY_OFFSET_MAX`].
        self.loads_offset = at.place::<[u32; 2]>(self.backends_max);
        self.senders_offset = at.place::<Sender>(SENDERS as u32);
        self.cursors_offset = at.place::<u32>(self.services_max);
        self.pending_shares_offset = at.place::<PendingShare>(self.services_max);
        self.pending_services_offset = at.place::<[u16; PENDING_WAYS]>(self.pending_buckets);
        self.pending_offset = at.place::<[u64; PENDING_WAYS]>(self.pending_buckets);
        self.openings_offset = at.place::<Opening>(self.openings);
        self.touched_offset = at.place::<[u64; TOUCHED_WORDS]>(self.touched_buckets);
        self.state_bytes = at.0 as u32;
    }

    fn place_cpu(&mut self) {
        let mut at = Cursor(0);
        at.place::<Cpu>(1);
        self.cpu_services_offset = at.place::<Counter>(self.services_max);
        self.cpu_backends_offset = at.place::<Counter>(self.backends_max);
        self.cpu_backend_drops_offset = at.place::<u64>(self.backends_max);
        self.cpu_hows_offset = at.place::<[u64; HOWS]>(self.services_max);
        self.cpu_reasons_offset = at.place::<[u64; REASONS]>(self.services_max + 1);
        self.cpu_recent_offset = at.place::<[Event; RECENT]>(1);
        self.cpu_log_offset = at.place::<Event>(self.log_entries);
        self.cpu_sketches_offset = at.place::<[u8; 2 * SKETCH_LAYOUT.0]>(1);
        self.cpu_bytes = at.0 as u32;
    }

    fn place_ports(&mut self, capacity: &Capacity) {
        let flows = capacity.full_nat_flows;
        self.port_lines = (flows * PORT_WORDS_PER_FLOW / PORT_WAYS as u32).next_power_of_two();
        self.ports_max = (flows * PORTS_PER_FLOW).next_power_of_two();
        let mut at = Cursor(0);
        at.place::<[u64; PORT_WAYS]>(self.port_lines);
        self.ports_offset = at.place::<Port>(self.ports_max);
        self.ports_bytes = at.0 as u32;
    }

    /// Returns the sizes for the set-up of `tables`.
    pub fn shared_sizes(&self, capacity: &Capacity) -> SharedSizes {
        SharedSizes::new(capacity.pins as usize, None)
            .with_extra(self.copy_bytes - self.directory_offset)
    }

    /// Bytes of the flows of nat.
    pub(crate) fn translated_bytes(&self) -> u32 {
        self.translated_lines * size_of::<[u64; TRANSLATED_WAYS]>() as u32
    }

    /// Bytes of the directory and the tables behind it.
    pub fn directory_bytes(&self) -> usize {
        (self.copy_bytes - self.directory_offset) as usize
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The fields by name.
    fn fields(limits: &Limits) -> impl Iterator<Item = (&'static str, u32)> {
        let (values, _) = limits.as_bytes().as_chunks::<4>();
        Limits::FIELDS.iter().copied().zip(values.iter().map(|value| u32::from_ne_bytes(*value)))
    }

    /// All combinations of least and most, as the configuration accepts them.
    fn corners() -> impl Iterator<Item = Capacity> {
        (0..256).map(|which: u32| {
            let of = |bit: u32, least, most| if which >> bit & 1 == 0 { least } else { most };
            let services = of(3, 1, Capacity::SERVICES_MAX);
            Capacity {
                flows: of(0, 1024, Capacity::FLOWS_MAX),
                tags: if which >> 7 & 1 == 0 { FlowTags::Long } else { FlowTags::Short },
                pins: of(1, 1024, Capacity::PINS_MAX),
                pending: of(2, 1 << 15, Capacity::PENDING_MAX),
                services,
                backends: of(4, 1, Capacity::BACKENDS_MAX),
                prefixes: of(5, 1, Capacity::PREFIXES_MAX),
                full_nat_flows: of(6, 0, Capacity::FULL_NAT_FLOWS_MAX),
                rings: 3 * services,
                ..Capacity::default()
            }
        })
    }

    #[test]
    fn every_array_of_every_capacity_begins_where_the_verifier_lets_it() {
        for capacity in corners() {
            let limits = Limits::new(&capacity);
            let offsets = fields(&limits).filter(|(name, _)| name.ends_with("_offset"));
            for (name, offset) in offsets {
                assert!(offset < Limits::ARRAY_OFFSET_MAX, "{name} {offset} of {capacity:?}");
            }
            // The kernel has no larger values of a map.
            let Limits { tables_bytes, state_bytes, cpu_bytes, ports_bytes, .. } = limits;
            let translated_bytes = limits.translated_bytes();
            // The last line of the one array begins below the limit.
            assert!(translated_bytes <= Limits::ARRAY_OFFSET_MAX);
            for bytes in [tables_bytes, state_bytes, cpu_bytes, ports_bytes, translated_bytes] {
                assert!(i32::try_from(bytes).is_ok(), "{bytes} bytes of {capacity:?}");
            }
        }
    }
}
