//! Layout that the packet program and userspace share: the Rust mirror of `bpf/include/abi.h`,
//! which documents each field. Sizes and offsets are asserted here; a test compares them with the
//! types of the built program.

mod choices;

use std::mem::offset_of;

pub use choices::{EventKind, FlowKey, Forward, How, Pick};

/// Number of bits of a slot in a POG cell; the fingerprint is above.
pub const SLOT_BITS: u32 = 12;
/// Maximum number of slots of a pool.
pub const SLOTS_MAX: usize = 1 << SLOT_BITS;
/// Marks the absence of a slot.
pub const NO_SLOT: u16 = 0xffff;
/// [`KeyHash::ID`](equipoise_pog::KeyHash::ID) of the hash from a flow's digest to its cells.
pub const DIGEST_HASH_ID: u32 = 3;
/// Maximum number of entries probed from a hash on, in the tables of VIPs and of replies.
pub const PROBES_MAX: usize = 8;
/// Maximum number of port ranges of one address and protocol.
pub const RANGES_MAX: usize = 16;
/// Number of entries in the table of MAC addresses.
pub const MACS: usize = 1024;
/// Number of entries in the table of ways back to clients.
pub const SENDERS: usize = 4096;
/// Number of words in a bucket of the touched table.
pub const TOUCHED_WORDS: usize = 2;
/// Number of flows in a line of the pending table.
pub const PENDING_WAYS: usize = 8;
/// Number of flows in a line of the table of translated flows.
pub const TRANSLATED_WAYS: usize = 8;
/// Tick of the table of translated flows: 2 to this power nanoseconds of the kernel's clock.
pub const TRANSLATED_TICK_SHIFT: u32 = 31;
/// Number of words in a line that leads from a flow of full-nat to its port.
pub const PORT_WAYS: usize = 8;
/// Number of events that a CPU looks up at once.
pub const RECENT: usize = 32;
/// Number of [`How`] counters.
pub const HOWS: usize = 8;
/// Number of [`Reason`](crate::Reason) counters.
pub const REASONS: usize = 32;

/// `eqp_directory.flags`: some VIP is translated.
pub const DIRECTORY_REVERSE: u32 = 1;
/// `eqp_directory.flags`: every reply of a backend's port is translated.
pub const DIRECTORY_REPLIES_ALL: u32 = 2;
/// `eqp_directory.flags`: some VIP is full-nat.
pub const DIRECTORY_PORTS: u32 = 4;
/// `eqp_service.flags`: `ring_next` differs; flows that would move are recorded in pending.
pub const SERVICE_TRANSITION: u8 = 1;
/// `eqp_service.flags`: pending may hold flows of this service.
pub const SERVICE_PENDING: u8 = 2;
/// `eqp_service.flags`: pending is above its mark.
pub const SERVICE_PENDING_FULL: u8 = 4;
/// `eqp_service.flags`: connection ids of QUIC have the server.
pub const SERVICE_QUIC: u8 = 8;
/// Number of configurations of a service, by config rotation id; the last one is not used.
pub const QUIC_CONFIGS: usize = 8;
/// `eqp_service.flags`: GUE also carries the backend of the replaced ring, which is the sequence.
pub const SERVICE_SECOND_CHANCE: u8 = 16;
/// `eqp_backend.flags`: may receive packets.
pub const BACKEND_LIVE: u8 = 1;
/// `eqp_backend.flags`: the MAC address of its next hop is known.
pub const BACKEND_REACHABLE: u8 = 2;
/// `eqp_backend.flags`: takes new flows.
pub const BACKEND_ELIGIBLE: u8 = 4;

/// `eqp_vip.kind`
pub mod vip_kind {
    #![allow(missing_docs, reason = "named as in abi.h")]
    pub const FREE: u8 = 0;
    pub const EXACT: u8 = 1;
    pub const RANGES: u8 = 2;
    pub const ADDRESS: u8 = 3;
    pub const SOURCE: u8 = 4;
}

/// `eqp_quic_config.form`
pub mod quic_form {
    #![allow(missing_docs, reason = "named as in abi.h")]
    pub const FREE: u8 = 0;
    pub const PLAINTEXT: u8 = 1;
    pub const SINGLE_PASS: u8 = 2;
    pub const FOUR_PASS: u8 = 3;
}

macro_rules! mirror {
    ($(#[$doc:meta])* $name:ident, $size:literal { $($field:ident: $type:ty = $offset:literal,)* }) => {
        $(#[$doc])*
        #[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
        #[repr(C)]
        #[allow(missing_docs, reason = "abi.h says what the fields are")]
        pub struct $name { $(pub $field: $type,)* }

        const _: () = {
            assert!(size_of::<$name>() == $size);
            $(assert!(offset_of!($name, $field) == $offset);)*
        };

        impl $name {
            /// Size in bytes, and each field's name and offset, for comparison with the program's
            /// types.
            pub const LAYOUT: (usize, &[(&str, usize)]) = ($size, &[$((stringify!($field), $offset),)*]);

            /// Reads it from the beginning of `bytes`; `None` if there are too few.
            pub fn from_bytes(bytes: &[u8]) -> Option<$name> {
                let bytes = bytes.get(..$size)?;
                // SAFETY: every bit pattern is valid (`Plain`), and there are enough bytes.
                Some(unsafe { bytes.as_ptr().cast::<$name>().read_unaligned() })
            }

            /// Returns the bytes in memory order.
            pub fn as_bytes(&self) -> &[u8] {
                // SAFETY: integers without padding, so every byte is initialized; the length is the
                // struct's.
                unsafe { std::slice::from_raw_parts(std::ptr::from_ref(self).cast(), $size) }
            }
        }

        // SAFETY: integers without padding: every bit pattern is valid, and every byte is
        // initialized.
        unsafe impl Plain for $name {}
    };
}

/// Structs that are defined by their bytes alone.
///
/// # Safety
/// Every bit pattern must be valid, and there must be no padding.
pub unsafe trait Plain: Copy {}

mirror! {
    /// `struct eqp_directory`
    Directory, 128 {
        digest_k0: u64 = 0,
        digest_k1: u64 = 8,
        vip_seed: u32 = 16,
        vip_mask: u32 = 20,
        reverse_mask: u32 = 24,
        flags: u32 = 28,
        tunnel_source4: [u8; 4] = 32,
        tunnel_source4_mask: [u8; 4] = 36,
        tunnel_source6: [u8; 16] = 40,
        gue_port: [u8; 2] = 56,
        padding: u16 = 58,
        echo_per_second: u32 = 60,
        too_big_per_second: u32 = 64,
        services: u32 = 68,
        translated_tcp: u16 = 72,
        translated_closing: u16 = 74,
        translated_udp: u16 = 76,
        padding_translated: u16 = 78,
        quic_mask: u32 = 80,
        padding_quic: u32 = 84,
        padding_to_end: [u64; 5] = 88,
    }
}

mirror! {
    /// `struct eqp_vip`
    Vip, 32 {
        address: [u8; 16] = 0,
        port: [u8; 2] = 16,
        protocol: u8 = 18,
        family: u8 = 19,
        kind: u8 = 20,
        padding: u8 = 21,
        service: u16 = 22,
        ranges_first: u16 = 24,
        ranges: u16 = 26,
        udp_service: u16 = 28,
        padding_to_end: u16 = 30,
    }
}

mirror! {
    /// `struct eqp_range`
    Range, 8 {
        first: u16 = 0,
        last: u16 = 2,
        service: u16 = 4,
        padding: u16 = 6,
    }
}

mirror! {
    /// `struct eqp_mac`
    Mac, 16 {
        address: [u8; 6] = 0,
        padding: u16 = 6,
        ifindex: u32 = 8,
        padding_to_end: u32 = 12,
    }
}

mirror! {
    /// `struct eqp_reverse`
    Reverse, 48 {
        address: [u8; 16] = 0,
        vip: [u8; 16] = 16,
        port: [u8; 2] = 32,
        vip_port: [u8; 2] = 34,
        protocol: u8 = 36,
        family: u8 = 37,
        service: u16 = 38,
        backend: u16 = 40,
        padding: u16 = 42,
        padding_to_end: u32 = 44,
    }
}

mirror! {
    /// `struct eqp_service`
    Service, 64 {
        salt: u64 = 0,
        backends_first: u32 = 8,
        slots: u32 = 12,
        ring: u32 = 16,
        ring_len: u32 = 20,
        ring_next: u32 = 24,
        ring_next_len: u32 = 28,
        sequence: u32 = 32,
        sequence_len: u32 = 36,
        cursor: u16 = 40,
        number: u16 = 42,
        forward: u8 = 44,
        key: u8 = 45,
        pick: u8 = 46,
        flags: u8 = 47,
        changes_first: u32 = 48,
        changes: u32 = 52,
        translated_tcp: u16 = 56,
        translated_closing: u16 = 58,
        translated_udp: u16 = 60,
        key_bits: u8 = 62,
        padding: u8 = 63,
    }
}

mirror! {
    /// `struct eqp_access_change`
    AccessChange, 16 {
        high: u64 = 0,
        low: u64 = 8,
    }
}

mirror! {
    /// `struct eqp_quic_config`
    QuicConfig, 256 {
        form: u8 = 0,
        bytes: u8 = 1,
        last_pass: u8 = 2,
        padding: u8 = 3,
        padding_to_masks: u32 = 4,
        server_mask: [u64; 2] = 8,
        half_masks: [[u64; 2]; 2] = 24,
        keys: [u64; 22] = 56,
        padding_to_end: [u64; 3] = 232,
    }
}

mirror! {
    /// `struct eqp_quic_server`
    QuicServer, 24 {
        id: [u8; 16] = 0,
        config: u16 = 16,
        slot: u16 = 18,
        padding: u32 = 20,
    }
}

mirror! {
    /// `struct eqp_backend`
    Backend, 64 {
        address: [u8; 16] = 0,
        port: [u8; 2] = 16,
        family: u8 = 18,
        flags: u8 = 19,
        ifindex: u32 = 20,
        destination_mac: [u8; 6] = 24,
        source_mac: [u8; 6] = 30,
        mtu: u16 = 36,
        number: u16 = 38,
        weight: u32 = 40,
        padding: u32 = 44,
        padding_to_end: [u64; 2] = 48,
    }
}

mirror! {
    /// `struct eqp_source`
    Source, 16 {
        address: [u8; 16] = 0,
    }
}

mirror! {
    /// `struct eqp_source_set`
    SourceSet, 32 {
        vip: [u8; 16] = 0,
        first: u16 = 16,
        sources: u16 = 18,
        port_first: u16 = 20,
        ports: u16 = 22,
        tcp: u16 = 24,
        closing: u16 = 26,
        udp: u16 = 28,
        service: u16 = 30,
    }
}

mirror! {
    /// `struct eqp_port`
    Port, 64 {
        word: u64 = 0,
        key: u64 = 8,
        digest: u64 = 16,
        client: [u8; 16] = 24,
        source: [u8; 16] = 40,
        client_port: [u8; 2] = 56,
        vip_port: [u8; 2] = 58,
        source_port: [u8; 2] = 60,
        service: u16 = 62,
    }
}

mirror! {
    /// `struct eqp_state_header`
    StateHeader, 64 {
        pending_count: u32 = 0,
        pending_mark: u32 = 4,
        interval: u64 = 8,
        previous_interval: u64 = 16,
        padding_to_end: [u64; 5] = 24,
    }
}

mirror! {
    /// `struct eqp_pending_share`
    PendingShare, 16 {
        count: u32 = 0,
        share: u32 = 4,
        reserved: u32 = 8,
        padding: u32 = 12,
    }
}

mirror! {
    /// `struct eqp_opening`
    Opening, 16 {
        digest: u64 = 0,
        slot: u16 = 8,
        service: u16 = 10,
        how: u8 = 12,
        stamp: u8 = 13,
        check: u16 = 14,
    }
}

mirror! {
    /// `struct eqp_sender`
    Sender, 32 {
        address: [u8; 16] = 0,
        own_mac: [u8; 6] = 16,
        sender_mac: [u8; 6] = 22,
        ifindex: u32 = 28,
    }
}

mirror! {
    /// `struct eqp_counter`
    Counter, 16 {
        packets: u64 = 0,
        bytes: u64 = 8,
    }
}

mirror! {
    /// `struct eqp_event`
    Event, 16 {
        digest: u64 = 0,
        slot: u16 = 8,
        service: u16 = 10,
        kind: u8 = 12,
        how: u8 = 13,
        padding: u16 = 14,
    }
}

mirror! {
    /// `struct eqp_cpu`
    Cpu, 192 {
        log_head: u32 = 0,
        recent_head: u32 = 4,
        recent_ends: u64 = 8,
        sample_left: u32 = 16,
        capturing: u32 = 20,
        padding_head: [u64; 5] = 24,
        log_tail: u32 = 64,
        recent_taken: u32 = 68,
        sketch_window: u32 = 72,
        padding_tail: [u32; 13] = 76,
        echo_tokens_at_ns: u64 = 128,
        too_big_tokens_at_ns: u64 = 136,
        padding_to_end: [u64; 6] = 144,
    }
}

mirror! {
    /// `struct eqp_heavy`
    Heavy, 48 {
        digest: u64 = 0,
        source: [u8; 16] = 8,
        source_port: [u8; 2] = 24,
        destination_port: [u8; 2] = 26,
        service: u16 = 28,
        slot: u16 = 30,
        source_mac: [u8; 6] = 32,
        padding: u16 = 38,
        bytes: u32 = 40,
        padding_to_end: u32 = 44,
    }
}

/// Rows of a sketch.
pub const SKETCH_ROWS: usize = 4;
/// Cells of a row.
pub const SKETCH_COLUMNS: usize = 2048;
/// Flows that a sketch remembers.
pub const HEAVY: usize = 256;
/// `struct eqp_sketch`, which is read in place: as the `LAYOUT` of the other structs.
pub const SKETCH_LAYOUT: (usize, &[(&str, usize)]) =
    (45_120, &[("bytes", 0), ("padding", 8), ("cells", 64), ("heavy", 32_832)]);

/// Bytes of a capture's ring.
pub const CAPTURED_BYTES: u32 = 1 << 19;
/// Largest number of bytes that are captured of a frame.
pub const CAPTURE_SNAP_MAX: u32 = 2048;
/// Marks the absence of a backend's number.
pub const ANY_BACKEND: u32 = u32::MAX;

mirror! {
    /// `struct eqp_capture`
    Capture, 72 {
        id: u64 = 0,
        until_ns: u64 = 8,
        source: [u8; 16] = 16,
        source_mask: [u8; 16] = 32,
        service: u32 = 48,
        backend: u32 = 52,
        random_max: u32 = 56,
        snap_bytes: u32 = 60,
        left: i32 = 64,
        lost: u32 = 68,
    }
}

mirror! {
    /// `struct eqp_captured`
    Captured, 40 {
        id: u64 = 0,
        at_ns: u64 = 8,
        frame_bytes: u32 = 16,
        captured_bytes: u32 = 20,
        backend: u32 = 24,
        action: i32 = 28,
        how: u8 = 32,
        padding: [u8; 7] = 33,
    }
}

mirror! {
    /// `struct eqp_decapsulation`
    DecapsulationConstants, 44 {
        source4: [u8; 4] = 0,
        source4_mask: [u8; 4] = 4,
        source6: [u8; 16] = 8,
        source6_mask: [u8; 16] = 24,
        gue_port: [u8; 2] = 40,
        flags: u16 = 42,
    }
}

/// `EQP_DECAPSULATION_ADDRESSES`
pub const DECAPSULATION_ADDRESSES: u16 = 1;
/// `EQP_DECAPSULATION_MACS`
pub const DECAPSULATION_MACS: u16 = 2;
/// `EQP_DECAPSULATION_SECOND_CHANCE`
pub const DECAPSULATION_SECOND_CHANCE: u16 = 4;

mirror! {
    /// `struct eqp_decapsulation_backend`
    DecapsulationBackend, 16 {
        ifindex: u32 = 0,
        destination_mac: [u8; 6] = 4,
        source_mac: [u8; 6] = 10,
    }
}
