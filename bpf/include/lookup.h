/* SPDX-License-Identifier: (Apache-2.0 OR GPL-2.0-only) */
/*
 * Selects the backend of a packet, in this order:
 *   pending  an exact set of flows that opened, or would have moved, since the last publication;
 *   pins     the POG: a 4-bit fingerprint and a slot for each flow that differs from the ring;
 *   turn     a scheduler without a hash, for the first packet of a flow; recorded in pending;
 *   ring     the Maglev table (Eisenbud et al., NSDI 2016, section 3.4), equal in the whole fleet.
 * While a ring is replaced, flows that would move are recorded in pending with their slot.
 *
 * crates/levels/packet/src/twin makes the same decisions, bit for bit.
 */
#ifndef EQP_LOOKUP_H
#define EQP_LOOKUP_H

#include "count.h"
#include "hash.h"
#include "turn.h"

#define EQP_RING_TRIES 8

/* Returns the slot of the flow's pin, or EQP_NO_SLOT. A flow without a pin may match falsely. */
eqp_inline __u32 pin_find(const struct eqp_job *job)
{
	const struct eqp_copy_header *copy = copy_header(job);
	__u64 hash = cell_hash(copy, job->digest);
	__u64 a = (hash & 0xffffffff) * copy->a >> 32;
	__u64 b = (hash >> 32) * copy->b >> 32;
	__u32 value = hash * 0x9e3779b97f4a7c15 >> 32 & 0xffff;

	eqp_opaque(a);
	eqp_opaque(b);
	if (a >= limits.cells_max || b >= limits.cells_max)
		return EQP_NO_SLOT;
	value ^= *(__u16 *)(job->copy + limits.a_offset + a * sizeof(__u16));
	value ^= *(__u16 *)(job->copy + limits.b_offset + b * sizeof(__u16));
	return value >> EQP_SLOT_BITS ? EQP_NO_SLOT : value;
}

struct eqp_ring_answer {
	struct eqp_backend *backend; /* NULL: none */
	__u32 slot;
	bool fallback; /* not the ring's first answer */
};

/* The ring's first slot is not live: tries others that depend on the digest only. */
eqp_cold __u32 ring_fallback(const struct eqp_job *job, __u32 ring, __u32 length)
{
	__u64 x = job->digest;
	int i;

	for (i = 1; i < EQP_RING_TRIES; i++) {
		__u32 slot;

		x = (x ^ x >> 31) * 0xbf58476d1ce4e5b9;
		slot = ring_at(job, ring, (x >> 32) * length >> 32);
		if (live_backend(job, slot))
			return slot;
	}
	return EQP_NO_SLOT;
}

eqp_inline struct eqp_ring_answer ring_pick(const struct eqp_job *job, __u32 ring, __u32 length)
{
	struct eqp_ring_answer pick = { NULL, EQP_NO_SLOT, false };

	if (!length)
		return pick;
	pick.slot = ring_at(job, ring, (job->digest >> 32) * length >> 32);
	pick.backend = live_backend(job, pick.slot);
	if (eqp_unlikely(!pick.backend)) {
		pick.fallback = true;
		pick.slot = ring_fallback(job, ring, length);
		pick.backend = live_backend(job, pick.slot);
	}
	return pick;
}

eqp_inline void choose(struct eqp_job *job, __u32 slot, struct eqp_backend *backend, enum eqp_how how)
{
	job->slot = slot;
	job->backend = backend;
	job->how = how;
}

/*
 * The next ring may move the flow: records its current slot, or for an opening flow its next slot.
 * The caller has already chosen the ring's slot.
 */
eqp_cold void choose_in_transition(struct eqp_job *job)
{
	const struct eqp_service *service = job->service;
	struct eqp_ring_answer next = ring_pick(job, service->ring_next, service->ring_next_len);
	struct eqp_backend *backend;
	__u32 recorded;

	if (!next.backend || (job->backend && next.slot == job->slot))
		return;
	job->how = EQP_BY_RING;
	if (!job->backend)
		choose(job, next.slot, next.backend, EQP_BY_RING);
	/* An ICMP error about a flow does not prove that the flow exists. */
	if (job->packet.flags & EQP_PACKET_ICMP_ERROR)
		return;
	recorded = pending_full(job) ? EQP_NO_SLOT : pending_put(job, packet_opens(&job->packet) ? next.slot : job->slot);
	if (recorded == EQP_NO_SLOT) {
		count_reason(job, EQP_NOTE_PENDING_FULL);
		return;
	}
	recorded &= EQP_SLOT_MASK;
	backend = live_backend(job, recorded);
	if (backend)
		choose(job, recorded, backend, EQP_BY_RING);
}

/*
 * With a second chance, a flow begins where every balancer knows it: a pin may match falsely, and
 * others would not find the flow.
 */
eqp_inline bool begins_by_ring(const struct eqp_job *job)
{
	return eqp_unlikely(job->service->flags & EQP_SERVICE_SECOND_CHANCE) && packet_opens(&job->packet);
}

/* Decides by pending, if the flow is there. */
eqp_cold bool decide_by_pending(struct eqp_job *job)
{
	__u32 slot = pending_find(job);
	struct eqp_backend *backend = live_backend(job, slot);

	if (!backend)
		return false;
	choose(job, slot, backend, EQP_BY_PENDING);
	return true;
}

/* Sets slot, backend and how. Requires service and digest. */
eqp_inline int decide(struct eqp_job *job)
{
	const struct eqp_service *service = job->service;
	struct eqp_backend *backend;
	struct eqp_ring_answer pick;
	__u32 slot;

	if (eqp_unlikely(service->flags & EQP_SERVICE_PENDING) && decide_by_pending(job))
		return EQP_GO_ON;
	slot = pin_find(job);
	backend = live_backend(job, slot);
	if (backend && !begins_by_ring(job)) {
		choose(job, slot, backend, EQP_BY_PIN);
		return EQP_GO_ON;
	}
	if (eqp_unlikely(service->pick != EQP_PICK_RING) && decide_by_turn(job))
		return EQP_GO_ON;
	pick = ring_pick(job, service->ring, service->ring_len);
	choose(job, pick.slot, pick.backend, pick.fallback ? EQP_BY_FALLBACK : EQP_BY_RING);
	if (eqp_unlikely(service->flags & EQP_SERVICE_TRANSITION))
		choose_in_transition(job);
	return job->backend ? EQP_GO_ON : EQP_DROP(EQP_DROP_NO_BACKEND);
}

#endif
