/* SPDX-License-Identifier: (Apache-2.0 OR GPL-2.0-only) */
/* What the decapsulating program shares with userspace; the Rust side is crates/packet/src/decap.rs. */
#ifndef EQP_DECAP_H
#define EQP_DECAP_H

#include <linux/types.h>

#define EQP_DECAP_ADDRESSES_MAX 1024
#define EQP_DECAP_VLAN_BYTES 4

/* A constant of one load. */
struct eqp_decap_options {
	__be16 gue_port; /* 0: none */
};

/* An outer destination that is ours. */
struct eqp_decap_address {
	__be32 address[4]; /* IPv4: in [0], the rest zero */
	__u32 family;      /* 4, 6 */
};

struct eqp_decap_counter {
	__u64 packets;
	__u64 bytes; /* of the frame as received */
};

enum eqp_decap_counters {
	EQP_DECAP_4_IN_4 = 0,
	EQP_DECAP_6_IN_4,
	EQP_DECAP_4_IN_6,
	EQP_DECAP_6_IN_6,
	EQP_DECAP_GUE,     /* over either */
	EQP_DECAP_INVALID, /* dropped: what it carries is cut off, or congestion was met that it cannot be told of */
	EQP_DECAP_COUNTERS,
};

#endif
