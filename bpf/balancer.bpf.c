// SPDX-License-Identifier: (Apache-2.0 OR GPL-2.0-only)
/* The balancer: entry points of the XDP programs. */
#include "access.h"
#include "capture.h"
#include "compat.h"
#include "count.h"
#include "direct.h"
#include "fragment.h"
#include "full_nat.h"
#include "icmp.h"
#include "learn.h"
#include "lookup.h"
#include "nat.h"
#include "parse.h"
#include "quic.h"
#include "route.h"
#include "sketch.h"
#include "station.h"
#include "tunnel.h"
#include "vip.h"

/* Handles a rare packet to a VIP's address. XDP_PASS: no service accepts it. */
eqp_inline int handle_rare_of_vip(struct eqp_context *ctx, struct eqp_job *job, int parsed)
{
	const struct eqp_packet *packet = &job->packet;

	if (parsed < 0)
		return parsed;
	if (parsed == EQP_GO_ON)
		return XDP_PASS;
	if (packet->flags & EQP_PACKET_LATER_FRAGMENT)
		return follow_fragment(job);
	return is_icmp(packet) ? handle_icmp(ctx, job) : XDP_PASS;
}

/*
 * Handles rare packets: not for a VIP, later fragments, ICMP, faults, other protocols, ports
 * without a service. EQP_GO_ON: the packet now belongs to a flow; a later fragment also has its
 * backend.
 */
eqp_cold int handle_rare(struct eqp_context *ctx, struct eqp_job *job, int parsed)
{
	int action, address = address_find(job);

	if (address == EQP_VIP_SOURCE)
		return handle_full_nat_reply(ctx, job, parsed);
	if (address == EQP_VIP_FREE)
		return handle_reply(ctx, job, parsed);
	action = handle_rare_of_vip(ctx, job, parsed);
	return action == XDP_PASS ? leave_unserved(ctx, job) : action;
}

eqp_inline int forward(struct eqp_context *ctx, struct eqp_job *job)
{
	if (eqp_unlikely(!(job->backend->flags & EQP_BACKEND_REACHABLE)))
		return EQP_DROP(EQP_DROP_NEIGHBOUR_UNRESOLVED);
	switch (job->service->forward) {
	case EQP_DIRECT:
		return forward_direct(ctx, job);
	case EQP_TUNNEL:
	case EQP_GUE:
		return forward_tunnel(ctx, job);
	case EQP_NAT:
		return forward_nat(ctx, job);
	case EQP_FULL_NAT:
		return forward_full_nat(ctx, job);
	}
	return EQP_DROP(EQP_DROP_TABLES);
}

/* Records facts about rare packets of a flow. */
eqp_inline void note_rare(const struct eqp_job *job)
{
	__u8 flags = job->packet.flags;

	if (eqp_likely(!flags))
		return;
	if (flags & EQP_PACKET_FIRST_FRAGMENT)
		remember_fragment(job);
	else
		count_reason(job, flags & EQP_PACKET_ICMP_ERROR ? EQP_NOTE_ICMP_STEERED : EQP_NOTE_FRAGMENT);
}

eqp_inline int handle(struct eqp_context *ctx, struct eqp_job *job)
{
	int parsed = parse(ctx, &job->packet), action;

	if (parsed == XDP_PASS)
		return XDP_PASS;
	if (eqp_unlikely(parsed != EQP_GO_ON)) {
		action = handle_rare(ctx, job, parsed);
		if (action != EQP_GO_ON)
			return action;
	}
	if (eqp_likely(!job->backend)) {
		if (eqp_unlikely(!service_find(job)))
			return job->packet.flags & EQP_PACKET_ICMP_ERROR ? leave_unserved(ctx, job) :
									   handle_rare(ctx, job, EQP_GO_ON);
		if (eqp_unlikely(job->service->changes) && is_refused(job))
			return EQP_DROP(EQP_DROP_SOURCE_DENIED);
		job->digest = flow_digest(ctx, job);
		action = decide_by_connection_id(ctx, job) ? EQP_GO_ON : decide(job);
		if (action != EQP_GO_ON)
			return action;
		learn(job);
		weigh(ctx, job);
	}
	note_rare(job);
	if (is_capturing(job))
		capture_frame(ctx, job);
	return forward(ctx, job);
}

/* Counts the result of the packet. */
eqp_inline int finish(struct eqp_context *ctx, struct eqp_job *job, int action)
{
	if (is_capturing(job))
		capture_result(ctx, job, action);
	if (eqp_unlikely(action < 0)) {
		count_reason(job, -(action + 1));
		if (job->backend)
			count_backend_drop(job);
		return XDP_DROP;
	}
	if (eqp_likely(action == XDP_TX || action == XDP_REDIRECT))
		count_forwarded(job);
	return action & ~EQP_ANSWER;
}

/* Entry point on interfaces that receive packets of clients, and possibly replies. */
SEC("xdp")
int balance(struct eqp_context *ctx)
{
	struct eqp_job job;

	if (!job_begin(&job))
		return XDP_PASS;
	if (eqp_unlikely(!is_for_us(ctx, &job)))
		return pass_foreign(ctx, &job);
	return finish(ctx, &job, handle(ctx, &job));
}

/* Entry point on interfaces that receive replies only: other packets pass. */
SEC("xdp")
int reverse(struct eqp_context *ctx)
{
	struct eqp_job job;
	int parsed;

	if (!job_begin(&job))
		return XDP_PASS;
	if (eqp_unlikely(!is_for_us(ctx, &job)))
		return pass_foreign(ctx, &job);
	parsed = parse(ctx, &job.packet);
	if (parsed == XDP_PASS)
		return XDP_PASS;
	if (is_for_source(&job))
		return finish(ctx, &job, handle_full_nat_reply(ctx, &job, parsed));
	return finish(ctx, &job, handle_reply(ctx, &job, parsed));
}

#ifndef EQP_HOST
/* The kernel requires a GPL licence for bpf_fib_lookup(). */
char LICENSE[] SEC("license") = "GPL";
#endif
