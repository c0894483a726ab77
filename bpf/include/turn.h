/* SPDX-License-Identifier: (Apache-2.0 OR GPL-2.0-only) */
/*
 * Schedulers without a hash, as in LVS (net/netfilter/ipvs/ip_vs_rr.c, _wrr.c, _lc.c, _wlc.c).
 * Userspace lays out the turns as a sequence, so round-robin and weighted round-robin are the same
 * here.
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

/* Returns the next live slot in the order of turns. */
eqp_inline __u32 next_turn(const struct eqp_job *job)
{
	const struct eqp_service *service = job->service;
	__u64 cursor = service->cursor;
	__u32 turn;
	int i;

	eqp_opaque(cursor);
	if (cursor >= limits.services_max || !service->sequence_len)
		return EQP_NO_SLOT;
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
	bool weighted;
};

/*
 * One slot of the search; 1 ends it. Numbers as in LVS: an established connection counts as 256
 * others.
 */
static long least_step(__u32 slot, void *argument)
{
	struct eqp_search *search = argument;
	const struct eqp_job *job = search->job;
	const struct eqp_backend *backend = live_backend(job, slot);
	const struct eqp_load *load = load_at(job, (__u64)job->service->backends_first + slot);
	__u64 overhead, weight;

	if (!backend || !load || !(backend->flags & EQP_BACKEND_ELIGIBLE))
		return 0;
	overhead = (__u64)eqp_read_once(load->active) * 256 + eqp_read_once(load->inactive);
	weight = search->weighted ? backend->weight : 1;
	if (!weight)
		return 0;
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
		.weighted = job->service->pick == EQP_PICK_LEAST_WEIGHTED,
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
	slot = job->service->pick == EQP_PICK_SEQUENCE ? next_turn(job) : least_loaded(job);
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
