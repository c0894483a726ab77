/* SPDX-License-Identifier: (Apache-2.0 OR GPL-2.0-only) */
/*
 * Flows that are recorded before userspace can pin them: an exact set in mapped memory. A word is
 * the flow's digest with its slot in the low bits. The index of the line has the low bits of the
 * digest (there are at least 4096 lines), so no bit is lost. 0: free.
 */
#ifndef EQP_PENDING_H
#define EQP_PENDING_H

#include "tables.h"

#define EQP_SLOT_MASK (EQP_SLOTS_MAX - 1)
/* Flag in the result of pending_put(): the flow is new. */
#define EQP_RECORDED_NOW 0x10000

eqp_inline __u64 *pending_line(const struct eqp_job *job)
{
	__u64 line = job->digest & (limits.pending_buckets - 1);

	return (__u64 *)(job->state + limits.pending_offset) + line * EQP_PENDING_WAYS;
}

eqp_inline bool is_flow(__u64 word, __u64 digest)
{
	return word && !((word ^ digest) >> EQP_SLOT_BITS);
}

/* Returns the flow's slot, or EQP_NO_SLOT. */
eqp_inline __u32 pending_find(const struct eqp_job *job)
{
	const __u64 *line = pending_line(job);
	int i;

	for (i = 0; i < EQP_PENDING_WAYS; i++) {
		__u64 word = eqp_read_once(line[i]);

		if (is_flow(word, job->digest))
			return word & EQP_SLOT_MASK;
	}
	return EQP_NO_SLOT;
}

/* Returns the share of the packet's service; NULL: its number is invalid. */
eqp_inline struct eqp_pending_share *pending_share(const struct eqp_job *job)
{
	__u64 number = job->service->number;

	eqp_opaque(number);
	if (number >= limits.services_max)
		return NULL;
	return (struct eqp_pending_share *)(job->state + limits.pending_shares_offset) + number;
}

/* Whether too many flows are opening to record another one of this service. */
eqp_inline bool pending_full(const struct eqp_job *job)
{
	const struct eqp_state_header *header = (const struct eqp_state_header *)job->state;
	const struct eqp_pending_share *share = pending_share(job);

	if (!share)
		return true;
	if (eqp_read_once(share->count) < eqp_read_once(share->share))
		return false;
	return eqp_read_once(header->pending_count) + eqp_read_once(share->reserved) >=
	       eqp_read_once(header->pending_mark);
}

/* Counts a flow recorded at `way` of its line. */
eqp_inline void pending_count(const struct eqp_job *job, __u64 way)
{
	struct eqp_state_header *header = (struct eqp_state_header *)job->state;
	__u64 line = job->digest & (limits.pending_buckets - 1);
	__u16 *services = (__u16 *)(job->state + limits.pending_services_offset) + line * EQP_PENDING_WAYS;
	struct eqp_pending_share *share = pending_share(job);

	eqp_write_once(services[way & (EQP_PENDING_WAYS - 1)], job->service->number);
	__sync_fetch_and_add(&header->pending_count, 1);
	if (share)
		__sync_fetch_and_add(&share->count, 1);
}

/*
 * Records the flow unless it is already recorded. Returns the recorded slot, with EQP_RECORDED_NOW
 * if it is new; EQP_NO_SLOT: the line is full.
 */
eqp_cold __u32 pending_put(const struct eqp_job *job, __u32 slot)
{
	__u64 word = (job->digest & ~(__u64)EQP_SLOT_MASK) | (slot & EQP_SLOT_MASK);
	__u64 *line = pending_line(job), found;
	__u32 recorded = pending_find(job);
	int i;

	if (recorded != EQP_NO_SLOT)
		return recorded;
	if (!word)
		return EQP_NO_SLOT;
	for (i = 0; i < EQP_PENDING_WAYS; i++) {
		if (eqp_read_once(line[i]))
			continue;
		found = __sync_val_compare_and_swap(&line[i], 0, word);
		if (!found) {
			pending_count(job, i);
			return slot | EQP_RECORDED_NOW;
		}
		/* Another CPU was faster, perhaps with the same flow. */
		if (is_flow(found, job->digest))
			return found & EQP_SLOT_MASK;
	}
	return EQP_NO_SLOT;
}

#endif
