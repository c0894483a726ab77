/* SPDX-License-Identifier: (Apache-2.0 OR GPL-2.0-only) */
/*
 * Refuses packets by their source: the lists `allow` and `deny` of a VIP, in which the longest
 * prefix decides. Userspace resolves the prefixes to the sorted addresses at which the answer
 * changes, and publishes them with the service, so that packets see the old lists or the new ones.
 * Before the first change, sources are accepted; after an odd number of changes, refused.
 *
 * crates/levels/packet/src/twin makes the same decision.
 */
#ifndef EQP_ACCESS_H
#define EQP_ACCESS_H

#include "tables.h"

/* Each step halves the changes that are left. */
#define EQP_ACCESS_STEPS 32

struct eqp_access_search {
	const struct eqp_job *job;
	__u64 high; /* source address, host order */
	__u64 low;
	__u32 from; /* changes before it are at or below the address */
	__u32 to;   /* changes from it on are above */
};

/* One step of the search; 1 ends it. */
static long access_step(__u32 step, void *argument)
{
	struct eqp_access_search *search = argument;
	__u32 middle = search->from + (search->to - search->from) / 2;
	const struct eqp_access_change *change;

	if (search->from >= search->to)
		return 1;
	change = access_change_at(search->job, (__u64)search->job->service->changes_first + middle);
	if (!change)
		return 1;
	if (change->high < search->high || (change->high == search->high && change->low <= search->low))
		search->from = middle + 1;
	else
		search->to = middle;
	return 0;
}

/* Whether the service refuses the client of the packet's flow. */
eqp_cold bool is_refused(const struct eqp_job *job)
{
	const struct eqp_packet *packet = &job->packet;
	struct eqp_access_search search = {
		.job = job,
		.high = __builtin_bswap64(packet->source64[0]),
		.low = __builtin_bswap64(packet->source64[1]),
		.to = job->service->changes,
	};

	repeat(EQP_ACCESS_STEPS, access_step, &search);
	return search.from & 1;
}

#endif
