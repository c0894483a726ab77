/* SPDX-License-Identifier: (Apache-2.0 OR GPL-2.0-only) */
/*
 * Layout that the packet program and userspace share: fixed width, explicit padding. The Rust
 * mirror is crates/levels/packet/src/abi.rs; a test compares both by the object's BTF.
 *
 * The maps:
 *   tables   one value: pog's published memory (crates/base/pog/src/publish/layout.rs) with a
 *            directory in each copy. Userspace writes the copy that the epoch does not select, then
 *            flips it.
 *   state    one value, written by the program and read or cleared by userspace: touched flows,
 *            pending flows, opening flows, connections of each backend.
 *   cpus     one value per CPU: counters, recent events, log of flows. Only the CPU's own program
 *            writes it.
 *   fragments  LRU hash: the backend of a datagram's first fragment, for the later ones.
 *   capture, captured  a capture of packets, which ends with the process. See capture.h. The only
 *            entry of `captured` has a ring of EQP_CAPTURED_BYTES bytes while there is a capture.
 *   ports    one value, written by the program: the source address and port of each flow of
 *            full-nat. See ports.h.
 *   translated  array of maps: its only entry is absent until a VIP has nat. Then it is an array of
 *            one value, written by the program: limits.translated_lines lines of
 *            EQP_TRANSLATED_WAYS words, each a flow of nat; 0: free. See translated.h.
 *
 * Userspace maps all arrays. Sizes that depend on the configuration are in
 * `struct eqp_limits`, which userspace writes before loading; the verifier sees them as constants.
 */
#ifndef EQP_ABI_H
#define EQP_ABI_H

#include <linux/types.h>

/* --- tables: pog's header and copies --- */

#define EQP_TABLES_MAGIC "eqpPOG01"

struct eqp_tables_header {
	__u64 magic;
	__u32 cell_bytes; /* 2 */
	__u32 hash_id;    /* EQP_DIGEST_HASH_ID */
	__u32 tau_bits;   /* EQP_SLOT_BITS */
	__u32 cells_max;
	__u32 entries_max; /* 0: tau is a slot of the service's pool */
	__u32 padding;
	__u64 first_copy;
	__u64 copy_bytes;
	__u32 extra_bytes;
	__u32 padding_to_epoch[3];
	__u64 epoch; /* at 64: low bit selects the copy */
	__u64 padding_to_end[7];
};

struct eqp_copy_header {
	__u64 k0; /* seed of the digest hash */
	__u64 k1;
	__u32 a; /* cells in A */
	__u32 b;
	__u32 entries;
	__u32 padding;
	__u64 generation;
	__u64 padding_to_end[3];
};

/*
 * After the copy header: A (cells_max cells), B (cells_max cells), the directory; each begins at a
 * multiple of 64.
 */

/* The cell of a pinned flow: a fingerprint above the slot. */
#define EQP_SLOT_BITS 12
#define EQP_SLOTS_MAX (1 << EQP_SLOT_BITS)
#define EQP_NO_SLOT 0xffff
/* pog's KeyHash::ID of the hash from a flow's digest to its cells. */
#define EQP_DIGEST_HASH_ID 3

/* --- the directory: VIPs, services, backends, rings --- */

/*
 * First line of the directory. The tables follow in the order of the structs below, at the offsets
 * in eqp_limits.
 */
struct eqp_directory {
	__u64 digest_k0; /* SipHash-1-3 seed of flow digests, the same in the whole fleet */
	__u64 digest_k1;
	__u32 vip_seed;
	__u32 vip_mask;     /* VIP entries in use (a power of two) - 1 */
	__u32 reverse_mask; /* the same for the reverse table */
	__u32 flags;        /* EQP_DIRECTORY_* */
	__be32 tunnel_source4;      /* outer source of tunnels, host bits zero */
	__be32 tunnel_source4_mask; /* its host bits, taken from the flow */
	__be32 tunnel_source6[4];   /* upper 64 bits; the flow gives the lower 32 */
	__be16 gue_port;
	__u16 padding;
	__u32 echo_per_second;     /* echo replies per second and CPU */
	__u32 too_big_per_second;  /* ICMP too-big errors per second and CPU */
	__u32 services;            /* number in use */
	/* The longest idle timeouts of translated flows of all services, as in eqp_service. */
	__u16 translated_tcp;
	__u16 translated_closing;
	__u16 translated_udp;
	__u16 padding_translated;
	__u32 quic_mask;           /* the mask of the table of server ids */
	__u32 padding_quic;
	__u64 padding_to_end[5];
};

#define EQP_DIRECTORY_REVERSE 1u /* some VIP is translated: look replies up */
/*
 * The flows that clients opened before these tables are unknown: translate every reply from a
 * backend's port.
 */
#define EQP_DIRECTORY_REPLIES_ALL 2u
#define EQP_DIRECTORY_PORTS 4u /* some VIP is full-nat: look the replies of its sources up */

/*
 * Target of an address, port and protocol. Open addressing with linear probing, at most
 * EQP_PROBES_MAX entries from the hash on.
 */
struct eqp_vip {
	__be32 address[4]; /* IPv4: in [0], the rest zero */
	__be16 port;       /* EQP_VIP_RANGES: 0 */
	__u8 protocol;
	__u8 family;       /* 4, 6 */
	__u8 kind;         /* EQP_VIP_* */
	__u8 padding;
	__u16 service;      /* EQP_VIP_EXACT; EQP_VIP_ADDRESS: first of TCP, else UDP */
	__u16 ranges_first; /* EQP_VIP_RANGES: index into the ranges */
	__u16 ranges;       /* at most EQP_RANGES_MAX */
	__u16 udp_service;  /* EQP_VIP_ADDRESS: first of UDP, else TCP */
	__u16 padding_to_end;
};

enum eqp_vip_kind {
	EQP_VIP_FREE = 0,
	EQP_VIP_EXACT = 1,   /* one port */
	EQP_VIP_RANGES = 2,  /* port ranges, any port: the entry of (address, protocol) */
	/*
	 * The address itself, protocol 0: the program answers echo requests. Packets without a service
	 * count in the row of the address's first service.
	 */
	EQP_VIP_ADDRESS = 3,
	EQP_VIP_SOURCE = 4, /* a source address of full-nat, protocol 0 */
};

#define EQP_PROBES_MAX 8
#define EQP_RANGES_MAX 16

struct eqp_range {
	__u16 first; /* host order, inclusive */
	__u16 last;
	__u16 service;
	__u16 padding;
};

/*
 * A destination MAC address that the program accepts on an interface. All other frames go to the
 * kernel: a switch floods frames to other stations, and balancers that forwarded them would create
 * a loop. Open addressing as for VIPs, over EQP_MACS entries.
 */
struct eqp_mac {
	__u8 address[6];
	__u16 padding; /* 0: the address is compared as one word */
	__u32 ifindex; /* 0: free */
	__u32 padding_to_end;
};

#define EQP_MACS 1024 /* a power of two */

/* New source of a reply (nat). Open addressing as for VIPs, by address, port, protocol. */
struct eqp_reverse {
	__be32 address[4]; /* of the backend */
	__be32 vip[4];
	__be16 port;       /* of the backend; 0: the VIP has many ports, which do not change */
	__be16 vip_port;   /* 0: unchanged */
	__u8 protocol;
	__u8 family;       /* 0: free */
	__u16 service;
	__u16 backend;     /* index into the backends */
	__u16 padding;
	__u32 padding_to_end;
};

struct eqp_service {
	__u64 salt; /* xored to digest_k0: flows of different VIPs differ */
	__u32 backends_first; /* slot s is backend backends_first + s */
	__u32 slots;
	__u32 ring;          /* index of the Maglev table; services with equal tables share one */
	__u32 ring_len;      /* entries in use; 0: no backend accepts new flows */
	__u32 ring_next;     /* during a transition: the next table; otherwise equal to ring */
	__u32 ring_next_len;
	/* Index of the ring with the order of turns, the buckets of sh, or the replaced ring. */
	__u32 sequence;
	__u32 sequence_len;
	__u16 cursor;        /* of the sequence; stable per service */
	__u16 number;        /* stable; index of counters and in the log */
	__u8 forward;        /* enum eqp_forward */
	__u8 key;            /* enum eqp_key */
	__u8 pick;           /* enum eqp_pick */
	__u8 flags;          /* EQP_SERVICE_* */
	__u32 changes_first; /* of the accepted sources; see access.h */
	__u32 changes;       /* 0: all sources are accepted */
	/* Idle timeouts of translated flows, ticks: established TCP, other TCP, UDP. */
	__u16 translated_tcp;
	__u16 translated_closing;
	__u16 translated_udp;
	__u8 key_bits;       /* EQP_SOURCE_PREFIX: length of the prefix */
	__u8 padding;
};

/*
 * An address at which the answer whether a source is accepted changes, host order; IPv4 in the
 * upper 32 bits. Sources before a service's first change are accepted.
 */
struct eqp_access_change {
	__u64 high;
	__u64 low;
};

/*
 * How servers make connection ids (draft-ietf-quic-load-balancers-21): the first octet, server id
 * and nonce. Service i has the entries from i * EQP_QUIC_CONFIGS on, by the first octet's three
 * highest bits. The last of them stays free.
 */
struct eqp_quic_config {
	__u8 form;     /* enum eqp_quic_form */
	__u8 bytes;    /* of server id and nonce: 5 to 19 */
	__u8 last_pass; /* EQP_QUIC_FOUR_PASS: 1, or 2 if the left half has the whole server id */
	__u8 padding;
	__u32 padding_to_masks;
	__u64 server_mask[2]; /* of the server id in the decoded bytes, in the order of memory */
	__u64 half_masks[2][2]; /* EQP_QUIC_FOUR_PASS: of the left and the right half */
	__u64 keys[22]; /* round keys, in the order of their use; see aes.h */
	__u64 padding_to_end[3];
};

#define EQP_QUIC_CONFIGS 8

enum eqp_quic_form {
	EQP_QUIC_FREE = 0,
	EQP_QUIC_PLAINTEXT = 1,
	EQP_QUIC_SINGLE_PASS = 2, /* 16 bytes, encrypted as a block: to be decrypted */
	EQP_QUIC_FOUR_PASS = 3,   /* encrypted by a Feistel network, which only encrypts blocks */
};

/* The backend with a server id. Open addressing as for VIPs, by server id and configuration. */
struct eqp_quic_server {
	__u64 id[2];   /* in the order of memory, the rest zero */
	__u16 config;  /* index of the configuration + 1; 0: free */
	__u16 slot;
	__u32 padding;
};

enum eqp_forward { EQP_NAT = 1, EQP_TUNNEL = 2, EQP_GUE = 3, EQP_DIRECT = 4, EQP_FULL_NAT = 5 };
enum eqp_key { EQP_FIVE_TUPLE = 0, EQP_SOURCE_ADDRESS = 1, EQP_SOURCE_MAC = 2, EQP_SOURCE_PREFIX = 3 };
enum eqp_pick {
	EQP_PICK_RING = 0,      /* by the ring: maglev, weighted-random */
	EQP_PICK_SEQUENCE = 1,  /* round-robin, weighted-round-robin: turns */
	EQP_PICK_LEAST = 2,     /* least-connection: 256 * active + inactive */
	EQP_PICK_LEAST_WEIGHTED = 3, /* the same divided by the weight */
	EQP_PICK_EXPECTED_DELAY = 4, /* sed: (active + 1) divided by the weight */
	EQP_PICK_NEVER_QUEUE = 5, /* nq: the first without active connections, else as sed */
	EQP_PICK_SOURCE_BUCKET = 6, /* sh: by the client's address, from the sequence */
};
#define EQP_SERVICE_TRANSITION 1u /* ring_next differs: record flows that would move in pending */
#define EQP_SERVICE_PENDING 2u    /* pending may have flows of this service: search there first */
/* Pending is above its mark: the ring places new flows, unrecorded. */
#define EQP_SERVICE_PENDING_FULL 4u
#define EQP_SERVICE_QUIC 8u       /* connection ids have the server */
/* GUE also carries the backend of the replaced ring, which is the sequence: see second_chance.h. */
#define EQP_SERVICE_SECOND_CHANCE 16u

struct eqp_backend {
	__be32 address[4];
	__be16 port;     /* nat: 0 = stays */
	__u8 family;     /* 4, 6; 0: no backend in this slot */
	__u8 flags;      /* EQP_BACKEND_* */
	__u32 ifindex;   /* outgoing interface */
	__u8 destination_mac[6]; /* next hop: the backend, or the gateway for tunnels and nat */
	__u8 source_mac[6];
	__u16 mtu;       /* path MTU to it, outer packets; IP bytes */
	__u16 number;    /* stable; index of counters */
	__u32 weight;
	__u32 padding;
	__u64 padding_to_end[2];
};

#define EQP_BACKEND_LIVE 1u      /* may receive packets */
#define EQP_BACKEND_REACHABLE 2u /* its next hop's MAC address is known */
#define EQP_BACKEND_ELIGIBLE 4u  /* takes new flows (least-connection schedulers) */

/* A source address of full-nat. */
struct eqp_source {
	__be32 address[4]; /* IPv4: in [0], the rest zero */
};

/* Sources of a service of full-nat, by service number. */
struct eqp_source_set {
	__be32 vip[4];    /* address of its VIP */
	__u16 first;      /* index of its first source */
	__u16 sources;    /* number of them; 0: the service is not full-nat */
	__u16 port_first; /* of each source, host order */
	__u16 ports;
	/* Idle timeouts as in eqp_service. */
	__u16 tcp;
	__u16 closing;
	__u16 udp;
	__u16 service;    /* index in the directory */
};

/* A ring: limits.ring_entries slots of 16 bits. */

/* --- state --- */

struct eqp_state_header {
	__u32 pending_count;   /* flows in pending; program adds, userspace subtracts (both atomic) */
	__u32 pending_mark;    /* above it new flows are not recorded */
	__u64 interval;        /* odd; each interval gives flows other touched tags */
	__u64 previous_interval; /* the previous one; userspace's */
	__u64 padding_to_end[5];
};

/*
 * Then, each beginning at a multiple of 64:
 *   loads     an eqp_load for each backend index
 *   senders   EQP_SENDERS eqp_sender, by a hash of their addresses
 *   cursors   a __u32 for each service number
 *   pending_shares    an eqp_pending_share for each service number
 *   pending_services  a __u16 for each word of pending: the number of its service, written after it
 *   pending   limits.pending_buckets lines of eight words, each a flow and its slot; 0: free
 *   openings  limits.openings eqp_opening. See learn.h.
 *   touched   limits.touched_buckets times EQP_TOUCHED_BYTES: tags of the flows of this interval,
 *             four odd ones of 32 bits, or with limits.short_tags six of 21 bits, three in the
 *             lower 63 bits of each word; 0: free. See touched.h.
 */
#define EQP_TOUCHED_BYTES 16
#define EQP_PENDING_WAYS 8
#define EQP_TRANSLATED_WAYS 8

struct eqp_pending_share {
	__u32 count;    /* its flows in pending; program adds, userspace subtracts (atomic) */
	__u32 share;    /* its flows are always recorded below this; userspace's */
	__u32 reserved; /* reserved for services below their shares; userspace's */
	__u32 padding;
};

/* SYN of a flow. If two CPUs write one entry at once, `check` most probably differs. */
struct eqp_opening {
	__u64 digest;
	__u16 slot;
	__u16 service; /* number */
	__u8 how;      /* enum eqp_how */
	__u8 stamp;    /* the highest bits of the interval number */
	__u16 check;   /* the highest bits of the digest */
};

/*
 * Way back to a client of nat on its link: MAC addresses and interface of its last packet. If two
 * CPUs write one entry at once, it may have the addresses of both until a next packet.
 */
struct eqp_sender {
	__be32 address[4]; /* of the client */
	__u8 own_mac[6];    /* destination of its frame; then the source, in the order of the frame */
	__u8 sender_mac[6]; /* the client's, or its router's */
	__u32 ifindex;      /* 0: free */
};

#define EQP_SENDERS 4096 /* a power of two */

struct eqp_load {
	__u32 active;   /* as LVS counts: opening and established */
	__u32 inactive; /* closing */
};

/* --- ports --- */

/*
 * The map has limits.port_lines lines of EQP_PORT_WAYS words, which lead from a flow to its port,
 * and from limits.ports_offset on limits.ports_max eqp_port. See ports.h.
 */
#define EQP_PORT_WAYS 8

/* The source address and port of a flow of full-nat. */
struct eqp_port {
	__u64 word;   /* state; 0: free */
	__u64 key;    /* hash of backend and source, plus its port; the low bits are the index */
	__u64 digest; /* of the client's five-tuple */
	__be32 client[4];
	__be32 source[4];
	__be16 client_port;
	__be16 vip_port;
	__be16 source_port;
	__u16 service; /* number */
};

/* --- cpus --- */

struct eqp_counter {
	__u64 packets;
	__u64 bytes; /* of the frame as received */
};

struct eqp_event {
	__u64 digest;
	__u16 slot;
	__u16 service; /* number */
	__u8 kind;     /* enum eqp_event_kind; never 0 */
	__u8 how;      /* enum eqp_how */
	__u16 padding;
};

enum eqp_event_kind { EQP_TOUCH = 1, EQP_FIN = 2, EQP_RST = 3 };

/* Reason why a packet went to its backend. */
enum eqp_how { EQP_BY_RING = 1, EQP_BY_PIN = 2, EQP_BY_PENDING = 3, EQP_BY_TURN = 4, EQP_BY_FALLBACK = 5, EQP_BY_FRAGMENT = 6, EQP_BY_CONNECTION_ID = 7 };
#define EQP_HOWS 8

/* First part of a CPU's memory. */
struct eqp_cpu {
	__u32 log_head;    /* events written; program */
	__u32 recent_head; /* events written to recent; program */
	__u64 recent_ends; /* bits of the events in recent that end a flow; program */
	__u32 sample_left; /* packets before the next sample; program */
	__u32 capturing;   /* 0: no capture; userspace */
	__u64 padding_head[5];
	__u32 log_tail;     /* events read; userspace */
	__u32 recent_taken; /* events taken from recent, which are not logged; userspace */
	__u32 sketch_window; /* the sketch in use; userspace */
	__u32 padding_tail[13];
	__u64 echo_tokens_at_ns; /* rate limits of ICMP: next time of the GCRA */
	__u64 too_big_tokens_at_ns;
	__u64 padding_to_end[6];
};

/*
 * Then, each beginning at a multiple of 64:
 *   services  an eqp_counter for each service number: packets forwarded
 *   backends  an eqp_counter for each backend number: packets forwarded
 *   backend_drops  a __u64 for each backend number: packets dropped after it was chosen
 *   hows      EQP_HOWS times __u64 for each service number
 *   reasons   EQP_REASONS times __u64 for each service number, and a row for packets to no VIP
 *   recent    EQP_RECENT eqp_event: one for each packet that may report a flow. See learn.h.
 *   log       limits.log_entries eqp_event, a power of two
 *   sketches  two eqp_sketch. See sketch.h.
 */
#define EQP_RECENT 32

/* A flow with many bytes. */
struct eqp_heavy {
	__u64 digest;
	__be32 source[4];
	__be16 source_port;
	__be16 destination_port;
	__u16 service; /* number */
	__u16 slot;
	__u8 source_mac[6];
	__u16 padding;
	__u32 bytes; /* estimate at its last sample; 0: free */
	__u32 padding_to_end;
};

#define EQP_SKETCH_ROWS 4
#define EQP_SKETCH_COLUMNS 2048 /* a power of two */
#define EQP_HEAVY 256           /* a power of two */

/* The sampled packets of a window. */
struct eqp_sketch {
	__u64 bytes; /* sum of all */
	__u64 padding[7];
	__u32 cells[EQP_SKETCH_ROWS][EQP_SKETCH_COLUMNS];
	struct eqp_heavy heavy[EQP_HEAVY];
};

/* --- capture --- */

#define EQP_CAPTURE_SNAP_MAX 2048
#define EQP_CAPTURED_BYTES (1 << 19) /* of the ring; a power of two */
#define EQP_ANY_BACKEND 0xffffffffu

/* A capture. Userspace writes it; the program counts. */
struct eqp_capture {
	__u64 id;       /* 0: none */
	__u64 until_ns; /* clock */
	__u64 source[2]; /* client's prefix, network order */
	__u64 source_mask[2];
	__u32 service;    /* number */
	__u32 backend;    /* number, or EQP_ANY_BACKEND */
	__u32 random_max; /* takes a packet if a random number is at most this */
	__u32 snap_bytes;
	__s32 left; /* packets; program subtracts */
	__u32 lost; /* packets for which the ring had no room; program adds */
};

/* Before the bytes of a captured frame, in the ring. */
struct eqp_captured {
	__u64 id;
	__u64 at_ns;
	__u32 frame_bytes; /* as received */
	__u32 captured_bytes;
	__u32 backend; /* number, or EQP_ANY_BACKEND */
	__s32 action;  /* XDP_*, or below 0 a drop: EQP_DROP(reason) */
	__u8 how;      /* enum eqp_how; 0: none */
	__u8 padding[7];
};

struct eqp_captured_frame {
	struct eqp_captured head;
	__u8 bytes[EQP_CAPTURE_SNAP_MAX];
};

/* Drops (the packet is lost) and notes (it continues). Rust: `Reason`, exported by name. */
enum eqp_reason {
	/* drops */
	EQP_DROP_HEADER_SHORT = 0,      /* ends before its headers do */
	EQP_DROP_HEADER_INVALID,        /* inconsistent lengths */
	EQP_DROP_EXTENSION_HEADERS,     /* more IPv6 extension headers than are parsed */
	EQP_DROP_FRAGMENT_UNKNOWN,      /* a later fragment without its first */
	EQP_DROP_NO_BACKEND,            /* no backend of the pool accepts flows */
	EQP_DROP_NEIGHBOUR_UNRESOLVED,  /* next hop's MAC address not known (yet) */
	EQP_DROP_TOO_BIG,               /* exceeds the tunnel's MTU; answered with ICMP */
	EQP_DROP_TTL_EXPIRED,           /* nat: hop limit would become 0 */
	EQP_DROP_HEADROOM,              /* no headroom to grow the packet */
	EQP_DROP_FAMILY,                /* nat or direct routing between IPv4 and IPv6 */
	EQP_DROP_NO_ROUTE,              /* nat: the kernel has no route for a reply */
	EQP_DROP_TABLES,                /* tables not set up or inconsistent */
	EQP_DROP_ICMP_RATE,             /* echo above the rate limit */
	EQP_DROP_NO_SERVICE,            /* no service or flow at the address; would loop */
	EQP_DROP_SOURCE_DENIED,         /* the service's lists refuse the source */
	EQP_DROP_PORTS_EXHAUSTED,       /* full-nat: no source port is free for the backend */
	EQP_DROPS,
	/* notes */
	EQP_NOTE_LOG_FULL = 16,         /* userspace lags; a later packet is logged */
	EQP_NOTE_PENDING_FULL,          /* too many opening flows: by ring, unrecorded */
	EQP_NOTE_ECHO_ANSWERED,
	EQP_NOTE_TOO_BIG_SENT,
	EQP_NOTE_ICMP_STEERED,          /* ICMP error sent to the flow's backend */
	EQP_NOTE_FRAGMENT,              /* later fragment sent after its first */
	EQP_NOTE_REPLY,                 /* nat, full-nat: reply translated */
	EQP_NOTE_TO_KERNEL,             /* nat, full-nat: left to the kernel's routing */
	EQP_NOTE_FOREIGN_MAC,           /* frame to another station: passed unchanged */
	EQP_NOTE_REPLIES_FULL,          /* nat: no space to record the flow; replies fail */
	EQP_NOTE_QUIC_CLIENT_ID,        /* QUIC: long header with an id of the client's: by five-tuple */
	EQP_NOTE_QUIC_ID_SHORT,         /* QUIC: ends before its connection id does */
	EQP_NOTE_QUIC_CONFIG_UNKNOWN,   /* QUIC: no configuration with the id's first bits */
	EQP_NOTE_QUIC_SERVER_UNKNOWN,   /* QUIC: no backend with the id's server id */
	EQP_NOTE_SECOND_CHANCE,         /* sent with the address of another backend */
	EQP_REASONS = 32,
};

/* --- fragments --- */

struct eqp_fragment_key {
	__be32 source[4];
	__be32 destination[4];
	__be32 identification; /* IPv4: 16 bits */
	__u8 protocol;
	__u8 family;
	__u16 padding;
};

struct eqp_fragment {
	__u64 digest;
	__u16 service; /* index in the directory; its number must match */
	__u16 number;
	__u16 slot;
	__u16 padding;
	__u64 at_ns; /* time of the first fragment */
};

/* --- limits: constants of one load --- */

struct eqp_limits {
	/* tables */
	__u32 tables_bytes;
	__u32 copy_bytes;
	__u32 cells_max;
	__u32 a_offset; /* in a copy */
	__u32 b_offset;
	__u32 directory_offset;
	__u32 vips_offset; /* in a copy, like all tables of the directory */
	__u32 vips_max;    /* power of two */
	__u32 ranges_offset;
	__u32 ranges_max;
	__u32 reverse_offset;
	__u32 reverse_max; /* power of two */
	__u32 services_offset;
	__u32 services_max;
	__u32 backends_offset;
	__u32 backends_max;
	__u32 macs_offset; /* EQP_MACS entries */
	__u32 changes_offset;
	__u32 changes_max;
	__u32 quic_configs_offset; /* EQP_QUIC_CONFIGS for each service */
	__u32 quic_servers_offset;
	__u32 quic_servers_max; /* power of two */
	__u32 sources_offset;
	__u32 sources_max;
	__u32 source_sets_offset; /* an eqp_source_set for each service number */
	__u32 rings_offset;
	__u32 rings_max;
	__u32 ring_entries;
	/* state */
	__u32 state_bytes;
	__u32 touched_offset;
	__u32 touched_buckets; /* power of two */
	__u32 short_tags; /* 1: tags of 21 bits, 0: of 32 */
	__u32 pending_offset;
	__u32 pending_buckets; /* power of two, at least 4096 */
	__u32 pending_services_offset;
	__u32 pending_shares_offset;
	__u32 openings_offset;
	__u32 openings; /* power of two */
	__u32 translated_lines; /* power of two, at most 2^30 */
	__u32 loads_offset;
	__u32 senders_offset;
	__u32 cursors_offset;
	/* cpus */
	__u32 cpu_bytes;
	__u32 cpus_max;
	__u32 cpu_services_offset;
	__u32 cpu_backends_offset;
	__u32 cpu_backend_drops_offset;
	__u32 cpu_hows_offset;
	__u32 cpu_reasons_offset;
	__u32 cpu_recent_offset;
	__u32 cpu_log_offset;
	__u32 log_entries; /* power of two */
	__u32 cpu_sketches_offset;
	__u32 sample_every; /* packets for each sample; 0: no samples */
	/* ports */
	__u32 ports_bytes;
	__u32 port_lines; /* power of two */
	__u32 ports_offset;
	__u32 ports_max; /* power of two */
};

/* --- decapsulation: constants of a backend's program, and its counters --- */

struct eqp_decapsulation {
	__be32 source4;      /* accepted outer sources: the balancers' */
	__be32 source4_mask; /* mask of their bits; 0: any */
	__be32 source6[4];
	__be32 source6_mask[4];
	__be16 gue_port; /* 0: no GUE */
	__u16 flags;     /* EQP_DECAPSULATION_* */
};

/* Accept only outer destinations in the map `addresses`. */
#define EQP_DECAPSULATION_ADDRESSES 1u
/* Accept only frames to a MAC address in the map `macs`. */
#define EQP_DECAPSULATION_MACS 2u
/* Pass packets of unknown flows on to backends in the map `backends`. */
#define EQP_DECAPSULATION_SECOND_CHANCE 4u

/* A key of the maps `addresses` and `backends`. */
struct eqp_decapsulation_address {
	__be32 address[4]; /* IPv4: in [0], the rest zero */
	__u32 family;      /* 4, 6 */
};

/* A key of the map `macs`. */
struct eqp_decapsulation_mac {
	__u8 address[6];
	__u16 padding;
};

/* Way to a backend. */
struct eqp_decapsulation_backend {
	__u32 ifindex; /* 0: unknown (yet) */
	__u8 destination_mac[6];
	__u8 source_mac[6];
};

/* Counters per CPU, an eqp_counter each, in the map `decapsulated`. */
enum eqp_decapsulated {
	EQP_DECAPSULATED_PACKETS = 0,
	EQP_DECAPSULATED_FOREIGN, /* outer source is not a balancer: left to the kernel */
	EQP_DECAPSULATED_INVALID, /* inconsistent headers, or unmarkable: dropped */
	EQP_DECAPSULATED_FOREIGN_MAC, /* frame to another station: left to the kernel */
	EQP_DECAPSULATED_PASSED_ON, /* flow not known here: sent to the backend in its header */
	EQP_DECAPSULATED_SECOND, /* of EQP_DECAPSULATED_PACKETS: passed on by another backend */
	EQP_DECAPSULATED_REFUSED, /* not passed on, because the backend is not configured */
	EQP_DECAPSULATED_UNREACHABLE, /* dropped: no way to the backend (yet) */
	EQP_DECAPSULATED_COUNTERS,
};

#define EQP_ASSERT_SIZE(type, bytes) _Static_assert(sizeof(type) == (bytes), #type " has the size of the layout")
EQP_ASSERT_SIZE(struct eqp_tables_header, 128);
EQP_ASSERT_SIZE(struct eqp_copy_header, 64);
EQP_ASSERT_SIZE(struct eqp_directory, 128);
EQP_ASSERT_SIZE(struct eqp_vip, 32);
EQP_ASSERT_SIZE(struct eqp_range, 8);
EQP_ASSERT_SIZE(struct eqp_mac, 16);
EQP_ASSERT_SIZE(struct eqp_reverse, 48);
EQP_ASSERT_SIZE(struct eqp_service, 64);
EQP_ASSERT_SIZE(struct eqp_access_change, 16);
EQP_ASSERT_SIZE(struct eqp_quic_config, 256);
EQP_ASSERT_SIZE(struct eqp_quic_server, 24);
EQP_ASSERT_SIZE(struct eqp_backend, 64);
EQP_ASSERT_SIZE(struct eqp_state_header, 64);
EQP_ASSERT_SIZE(struct eqp_pending_share, 16);
EQP_ASSERT_SIZE(struct eqp_opening, 16);
EQP_ASSERT_SIZE(struct eqp_load, 8);
EQP_ASSERT_SIZE(struct eqp_sender, 32);
EQP_ASSERT_SIZE(struct eqp_event, 16);
EQP_ASSERT_SIZE(struct eqp_cpu, 192);
EQP_ASSERT_SIZE(struct eqp_fragment_key, 40);
EQP_ASSERT_SIZE(struct eqp_fragment, 24);
EQP_ASSERT_SIZE(struct eqp_heavy, 48);
EQP_ASSERT_SIZE(struct eqp_sketch, 45120);
EQP_ASSERT_SIZE(struct eqp_capture, 72);
EQP_ASSERT_SIZE(struct eqp_captured, 40);
EQP_ASSERT_SIZE(struct eqp_source, 16);
EQP_ASSERT_SIZE(struct eqp_source_set, 32);
EQP_ASSERT_SIZE(struct eqp_port, 64);
EQP_ASSERT_SIZE(struct eqp_limits, 232);
EQP_ASSERT_SIZE(struct eqp_decapsulation, 44);
EQP_ASSERT_SIZE(struct eqp_decapsulation_address, 20);
EQP_ASSERT_SIZE(struct eqp_decapsulation_mac, 8);
EQP_ASSERT_SIZE(struct eqp_decapsulation_backend, 16);

#endif
