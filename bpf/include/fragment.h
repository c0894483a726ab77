/* SPDX-License-Identifier: (Apache-2.0 OR GPL-2.0-only) */
/*
 * Fragments: only the first one has the ports. Its backend is recorded, and the later fragments
 * follow. Fragments that arrive before the first are lost.
 */
#ifndef EQP_FRAGMENT_H
#define EQP_FRAGMENT_H

#include "tables.h"

eqp_inline void fragment_key(struct eqp_fragment_key *key, const struct eqp_packet *packet)
{
	int i;

	for (i = 0; i < 4; i++) {
		key->source[i] = packet->source[i];
		key->destination[i] = packet->destination[i];
	}
	key->identification = packet->fragment_id;
	/*
	 * Protocol of the first header after the fragment header, which is the same in all fragments (RFC
	 * 8200, section 4.5).
	 */
	key->protocol = packet->outer_protocol;
	key->family = packet->family;
	key->padding = 0;
}

/*
 * Linux reassembles a datagram within 30 s or drops it (ipfrag_time). Identifications are reused.
 */
#define EQP_FRAGMENT_NS (30ll * 1000 * 1000 * 1000)

/* Returns the entry of the datagram's first fragment; NULL: there is none, or it is too old. */
eqp_inline const struct eqp_fragment *first_fragment(const struct eqp_packet *packet)
{
	const struct eqp_fragment *first;
	struct eqp_fragment_key key;

	fragment_key(&key, packet);
	first = fragment_find(&key);
	/* Signed: the clock of the CPU with the first fragment may be ahead. */
	return first && (__s64)(clock_ns() - first->at_ns) <= EQP_FRAGMENT_NS ? first : NULL;
}

eqp_cold void remember_fragment(const struct eqp_job *job)
{
	struct eqp_fragment fragment = {
		.digest = job->digest,
		.service = job->service_index,
		.number = job->service->number,
		.slot = job->slot,
		.at_ns = clock_ns(),
	};
	struct eqp_fragment_key key;

	fragment_key(&key, &job->packet);
	fragment_put(&key, &fragment);
}

/*
 * Applies the decision for the first fragment: EQP_GO_ON or a drop. XDP_PASS: neither TCP nor UDP.
 */
eqp_cold int follow_fragment(struct eqp_job *job)
{
	const struct eqp_packet *packet = &job->packet;
	const struct eqp_fragment *first = first_fragment(packet);
	struct eqp_service *service;

	if (!first) {
		if (packet->outer_protocol != IPPROTO_TCP && packet->outer_protocol != IPPROTO_UDP)
			return XDP_PASS;
		return EQP_DROP(EQP_DROP_FRAGMENT_UNKNOWN);
	}
	service = service_at(job, first->service);
	if (!service || service->number != first->number)
		return EQP_DROP(EQP_DROP_FRAGMENT_UNKNOWN);
	job->service = service;
	job->service_index = first->service;
	job->digest = first->digest;
	job->slot = first->slot;
	job->how = EQP_BY_FRAGMENT;
	job->backend = live_backend(job, first->slot);
	return job->backend ? EQP_GO_ON : EQP_DROP(EQP_DROP_FRAGMENT_UNKNOWN);
}

#endif
