/* SPDX-License-Identifier: (Apache-2.0 OR GPL-2.0-only) */
/* The records of the Katran-style program; sizes and widths are Katran's. Mirrored in src/katran_style.rs. */
#ifndef KATRAN_STYLE_LAYOUT_H
#define KATRAN_STYLE_LAYOUT_H

#include <linux/types.h>

#define RING_ENTRIES 65537
#define VIPS_MAX 512
#define REALS_MAX 4096
#define CPUS_MAX 128

/* 40 bytes: one key for both families. */
struct flow_key {
	__be32 source[4]; /* IPv4: [0] */
	__be32 destination[4];
	__be16 ports[2];
	__u8 protocol;
};

struct flow_real {
	__u32 real;
	__u64 seen_ns; /* UDP */
};

struct vip_key {
	__be32 address[4];
	__be16 port;
	__u8 protocol;
};

struct vip {
	__u32 flags;
	__u32 number;
};

#define VIP_HASH_WITHOUT_SOURCE_PORT 1u
#define VIP_WITHOUT_LRU 2u

struct real {
	__be32 address[4]; /* of the outer packet */
	__u8 flags;
	__u8 mac[6]; /* direct routing */
};

#define REAL_IPV6 1u

struct pair {
	__u64 first;
	__u64 second;
};

/* Rows of `stats` behind those of the VIPs. */
enum global_row {
	ROW_LRU = VIPS_MAX, /* packets of VIPs, misses */
	ROW_MISSES,         /* of SYNs, of other TCP packets */
	ROW_NEW,            /* new flows in this second, when it began */
	ROW_NO_LRU,         /* no LRU for this CPU */
	ROW_FAILED,         /* encapsulation, no real */
	ROW_TOTAL,          /* packets, bytes */
	ROW_TX,
	ROW_DROP,
	ROW_PASS,
};

/* What is known of a packet. */
struct packet {
	struct flow_key flow;
	__u32 real;
	__u8 flags;
	__u8 tos;
};

#define PACKET_SYN 1
#define PACKET_RST 2

#endif
