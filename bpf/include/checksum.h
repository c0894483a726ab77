/* SPDX-License-Identifier: (Apache-2.0 OR GPL-2.0-only) */
/*
 * The Internet checksum. Sums are over words in memory order, because byte order does not matter
 * (RFC 1071, section 2). A change is added as the difference ~old + new (RFC 1624, equation 3), so
 * that a wrong checksum stays wrong.
 */
#ifndef EQP_CHECKSUM_H
#define EQP_CHECKSUM_H

#include "compat.h"

eqp_inline __u16 sum_folded(__u64 sum)
{
	sum = (sum & 0xffffffff) + (sum >> 32);
	sum = (sum & 0xffff) + (sum >> 16);
	sum = (sum & 0xffff) + (sum >> 16);
	return (sum & 0xffff) + (sum >> 16);
}

eqp_inline __u16 checksum_of(__u64 sum)
{
	return ~sum_folded(sum);
}

/* Returns a checksum after a change of the covered data by a difference. */
eqp_inline __u16 checksum_after(__u16 checksum, __u64 difference)
{
	return ~sum_folded((__u16)~checksum + difference);
}

/* Replaces a value. Returns the difference. */
eqp_inline __u64 replace16(__u16 *at, __u16 value)
{
	__u64 difference = (__u64)(__u16)~*at + value;

	*at = value;
	return difference;
}

eqp_inline __u64 replace32(__u32 *at, __u32 value)
{
	__u64 difference = (__u64)(__u32)~*at + value;

	*at = value;
	return difference;
}

#endif
