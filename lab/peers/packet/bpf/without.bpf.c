// SPDX-License-Identifier: (Apache-2.0 OR GPL-2.0-only)
/*
 * The balancer without some of its parts, to measure their cost. Each part is a function: its
 * header is included first, and its calls are then replaced. build.rs defines the parts to omit.
 */
#include "count.h"
#include "quic.h"
#include "sender.h"
#include "station.h"
#include "access.h"
#include "translated.h"

/* Frames to any MAC address are for us. */
#ifdef WITHOUT_STATION
#define is_for_us(ctx, job) true
#endif

/* Lists of sources, which are empty here. */
#ifdef WITHOUT_LISTS
#define is_refused(job) false
#endif

/* Connection ids of QUIC, which the service does not have here. */
#ifdef WITHOUT_QUIC
#define decide_by_connection_id(ctx, job) false
#endif

/* Counters of a backend. */
#ifdef WITHOUT_BACKENDS
eqp_inline void count_service(const struct eqp_job *job)
{
	__u64 service = job->service->number;
	struct eqp_counter *counter;
	__u64 *hows;

	eqp_opaque(service);
	if (service >= limits.services_max)
		return;
	counter = (struct eqp_counter *)(job->cpu + limits.cpu_services_offset) + service;
	counter->packets++;
	counter->bytes += job->packet.frame;
	hows = (__u64 *)(job->cpu + limits.cpu_hows_offset) + service * EQP_HOWS;
	eqp_opaque(hows);
	hows[job->how & (EQP_HOWS - 1)]++;
}

#define count_forwarded(job) count_service(job)
#endif

/* nat: the way back to a client. */
#ifdef WITHOUT_SENDER
#define note_sender(ctx, job) ((void)0)
#endif

/* nat: the way back is noted with each packet, not only if the flow's record changes. */
#ifdef SENDER_EACH
#define translated_put(job, digest) (translated_put(job, digest), true)
#endif

#include "../../../../bpf/balancer.bpf.c"
