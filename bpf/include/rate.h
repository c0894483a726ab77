/* SPDX-License-Identifier: (Apache-2.0 OR GPL-2.0-only) */
/*
 * Limits the ICMP answers of a CPU: the generic cell rate algorithm (ITU-T I.371, virtual
 * scheduling).
 */
#ifndef EQP_RATE_H
#define EQP_RATE_H

#include "tables.h"

/* Burst of answers beyond the steady rate. */
#define EQP_BURST_ANSWERS 8

/* Whether one more answer fits the rate; if so, counts it. */
eqp_inline bool rate_admits(__u64 *tokens_at_ns, __u32 per_second)
{
	__u64 now_ns = clock_ns(), next_ns = *tokens_at_ns, interval_ns;

	if (!per_second)
		return false;
	interval_ns = 1000000000 / per_second;
	if (next_ns < now_ns)
		next_ns = now_ns;
	if (next_ns - now_ns > interval_ns * EQP_BURST_ANSWERS)
		return false;
	*tokens_at_ns = next_ns + interval_ns;
	return true;
}

#endif
