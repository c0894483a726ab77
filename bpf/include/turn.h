/* SPDX-License-Identifier: (Apache-2.0 OR GPL-2.0-only) */
/*
 * Schedulers of LVS (net/netfilter/ipvs/ip_vs_rr.c, _wrr.c, _lc.c, _wlc.c, _sed.c, _nq.c, _sh.c).
 * Userspace lays out the turns as a sequence, so round-robin and weighted round-robin are the same
 * here. It also lays out the buckets of source hashing.
 *
 * As in LVS, a flow counts as active from its first packet on, so that the next one sees it.
 * Userspace subtracts flows that are not established in time.
 *
 * Deviates: the choice for a flow's first packet is recorded in pending. While pending is above its
 * mark (a flood of SYNs), the ring places flows.
 */
#ifndef EQP_TURN_H
#define EQP_TURN_H

#include "count.h"
#include "pending.h"

#define EQP_TURN_TRIES 8

eqp_inline struct eqp_load *load_at(const struct eqp_job *job, __u64 backend)
{
	eqp_opaque(backend);
	if (backend >= limits.backends_max)
		return NULL;
	return (struct eqp_load *)(job->state + limits.loads_offset) + backend;
}

/* ip_vs_sh_hashkey() without ports; hash_32() of include/linux/hash.h. */
#define EQP_GOLDEN_RATIO_32 0x61c88647u
#define EQP_SOURCE_BUCKET_BITS 8

eqp_inline __u32 source_bucket(const struct eqp_packet *packet)
{
	const __be32 *source = packet->source;

	return eqp_ntohl(source[0] ^ source[1] ^ source[2] ^ source[3]) * EQP_GOLDEN_RATIO_32 >>
	       (32 - EQP_SOURCE_BUCKET_BITS);
}

/* Returns the slot of the turn or the bucket, or the next live one in the sequence. */
eqp_inline __u32 in_sequence(const struct eqp_job *job)
{
	const struct eqp_service *service = job->service;
	__u64 cursor = service->cursor;
	__u32 turn;
	int i;

	eqp_opaque(cursor);
	if (cursor >= limits.services_max || !service->sequence_len)
		return EQP_NO_SLOT;
	if (service->pick == EQP_PICK_SOURCE_BUCKET)
		turn = source_bucket(&job->packet);
	else
		turn = __sync_fetch_and_add((__u32 *)(job->state + limits.cursors_offset) + cursor, 1);
	for (i = 0; i < EQP_TURN_TRIES; i++) {
		__u32 slot = ring_at(job, service->sequence, (turn + i) % service->sequence_len);

		if (live_backend(job, slot))
			return slot;
	}
	return EQP_NO_SLOT;
}

struct eqp_search {
	const struct eqp_job *job;
	__u64 overhead; /* of the best slot so far, and its weight */
	__u64 weight;
	__u32 slot;
	__u8 pick;
};

/*
 * One slot of the search; 1 ends it. Numbers as in LVS: an active connection counts as 256
 * others.
 */
static long least_step(__u32 slot, void *argument)
{
	struct eqp_search *search = argument;
	const struct eqp_job *job = search->job;
	const struct eqp_backend *backend = live_backend(job, slot);
	const struct eqp_load *load = load_at(job, (__u64)job->service->backends_first + slot);
	__u64 overhead, weight, active;

	if (!backend || !load || !(backend->flags & EQP_BACKEND_ELIGIBLE))
		return 0;
	active = eqp_read_once(load->active);
	weight = search->pick == EQP_PICK_LEAST ? 1 : backend->weight;
	if (!weight)
		return 0;
	if (search->pick == EQP_PICK_NEVER_QUEUE && !active) {
		search->slot = slot;
		return 1;
	}
	if (search->pick >= EQP_PICK_EXPECTED_DELAY)
		overhead = active + 1;
	else
		overhead = active * 256 + eqp_read_once(load->inactive);
	if (search->slot == EQP_NO_SLOT || search->overhead * weight > overhead * search->weight) {
		search->overhead = overhead;
		search->weight = weight;
		search->slot = slot;
	}
	return 0;
}

eqp_inline __u32 least_loaded(const struct eqp_job *job)
{
	struct eqp_search search = {
		.job = job,
		.slot = EQP_NO_SLOT,
		.pick = job->service->pick,
	};
	__u32 slots = job->service->slots;

	if (slots > EQP_SLOTS_MAX)
		slots = EQP_SLOTS_MAX;
	repeat(slots, least_step, &search);
	return search.slot;
}

/* False: the packet does not open a flow, or its turn cannot be recorded, so the ring decides. */
eqp_cold bool decide_by_turn(struct eqp_job *job)
{
	const struct eqp_packet *packet = &job->packet;
	struct eqp_backend *backend;
	struct eqp_load *load;
	__u32 slot, recorded;

	/* Only its first packet begins a UDP flow; an ICMP error is not a packet of the flow. */
	if (packet->flags & EQP_PACKET_ICMP_ERROR || (packet->protocol == IPPROTO_TCP && !packet_opens(packet)))
		return false;
	if (job->service->flags & EQP_SERVICE_PENDING_FULL || pending_full(job)) {
		count_reason(job, EQP_NOTE_PENDING_FULL);
		return false;
	}
	if (job->service->pick == EQP_PICK_SEQUENCE || job->service->pick == EQP_PICK_SOURCE_BUCKET)
		slot = in_sequence(job);
	else
		slot = least_loaded(job);
	if (slot == EQP_NO_SLOT)
		return false;
	recorded = pending_put(job, slot);
	if (recorded == EQP_NO_SLOT) {
		count_reason(job, EQP_NOTE_PENDING_FULL);
		return false;
	}
	slot = recorded & EQP_SLOT_MASK;
	backend = live_backend(job, slot);
	if (!backend)
		return false;
	load = load_at(job, (__u64)job->service->backends_first + slot);
	if (load && recorded & EQP_RECORDED_NOW)
		__sync_fetch_and_add(&load->active, 1);
	job->slot = slot;
	job->backend = backend;
	job->how = EQP_BY_TURN;
	return true;
}

#endif
