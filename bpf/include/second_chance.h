/* SPDX-License-Identifier: (Apache-2.0 OR GPL-2.0-only) */
/*
 * Second chance (Olteanu et al., NSDI 2018, section 4; GitHub's glb-director): GUE carries other
 * backends that may have the flow. A backend that does not know the flow passes the packet on to
 * the next of them (pass_on.h), so that a flow survives a change of its pool at a balancer that has
 * not seen it.
 *
 * The header is GUE variant 0 in the format of glb-director's private data:
 *   version 0, length in words | protocol | flags 0 | type 0 | next hop 0 | hops | addresses
 * Deviates: the addresses may be IPv6.
 */
#ifndef EQP_SECOND_CHANCE_H
#define EQP_SECOND_CHANCE_H

#include "count.h"
#include "gue.h"

/* Other backends that may have the flow, in the order in which they get the packet. */
struct eqp_others {
	const struct eqp_backend *first; /* NULL: none */
	const struct eqp_backend *second;
	__u32 first_slot;
};

/* Adds the backend of a ring, unless it is in the list or cannot replace the packet's. */
eqp_inline void add_other(const struct eqp_job *job, struct eqp_others *others, __u32 ring, __u32 length)
{
	__u32 slot = length ? ring_at(job, ring, (job->digest >> 32) * length >> 32) : EQP_NO_SLOT;
	const struct eqp_backend *backend = slot == job->slot ? NULL : live_backend(job, slot);

	/* It replaces the address in the outer header. */
	if (!backend || backend->family != job->backend->family)
		return;
	if (!others->first) {
		others->first = backend;
		others->first_slot = slot;
	} else if (!others->second && slot != others->first_slot) {
		others->second = backend;
	}
}

/*
 * Finds the backends that may have the flow if the packet's does not: that of the ring, because a
 * pin may match falsely; during a change the next one; and that of the ring that was replaced.
 */
eqp_cold void find_others(const struct eqp_job *job, struct eqp_others *others)
{
	const struct eqp_service *service = job->service;

	/* The first packet of a flow stays, and a later fragment has no ports to look up. */
	if (packet_opens(&job->packet) ||
	    job->packet.flags & (EQP_PACKET_FIRST_FRAGMENT | EQP_PACKET_LATER_FRAGMENT))
		return;
	add_other(job, others, service->ring, service->ring_len);
	if (service->flags & EQP_SERVICE_TRANSITION)
		add_other(job, others, service->ring_next, service->ring_next_len);
	add_other(job, others, service->sequence, service->sequence_len);
	if (others->first)
		count_reason(job, EQP_NOTE_SECOND_CHANCE);
}

/* Bytes of the GUE header with `hops` addresses of a family. */
eqp_inline __u32 gue_bytes(__u8 family, __u32 hops)
{
	return sizeof(struct eqp_gue) + hops * gue_address_bytes(family);
}

eqp_inline bool write_address(const struct eqp_context *ctx, __u64 at, const struct eqp_backend *backend)
{
	__u32 *address = packet_at(ctx, at, sizeof(*address));
	int i;

	if (!address)
		return false;
	address[0] = backend->address[0];
	if (backend->family == 4)
		return true;
	address = packet_at(ctx, at, 4 * sizeof(*address));
	if (!address)
		return false;
	for (i = 1; i < 4; i++)
		address[i] = backend->address[i];
	return true;
}

/* Writes the GUE header after the UDP header. */
eqp_inline bool write_others(const struct eqp_context *ctx, __u64 at, const struct eqp_others *others, __u8 protocol)
{
	struct eqp_gue *gue = packet_at(ctx, at, sizeof(*gue));
	__u8 family = others->first->family, hops = others->second ? 2 : 1;

	if (!gue)
		return false;
	*gue = (struct eqp_gue){
		.version_length = gue_bytes(family, hops) / 4 - 1,
		.protocol = protocol,
		.hops = hops,
	};
	at += sizeof(*gue);
	if (!write_address(ctx, at, others->first))
		return false;
	return !others->second || write_address(ctx, at + gue_address_bytes(family), others->second);
}

#endif
