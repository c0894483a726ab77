/* SPDX-License-Identifier: (Apache-2.0 OR GPL-2.0-only) */
/* GUE variant 0 (draft-ietf-intarea-gue-09, section 3), with addresses of hops as private data. */
#ifndef EQP_GUE_H
#define EQP_GUE_H

#include "compat.h"

struct eqp_gue {
	__u8 version_length; /* two bits of version, the control bit, the length after the first word */
	__u8 protocol;       /* of the packet after the header */
	__be16 flags;
	__be16 type; /* of the private data: 0 */
	__u8 next_hop;
	__u8 hops;
	/* The address of each hop follows. */
};

#define EQP_GUE_HOPS_MAX 2

eqp_inline __u32 gue_address_bytes(__u8 family)
{
	return family == 4 ? 4 : 16;
}

#endif
