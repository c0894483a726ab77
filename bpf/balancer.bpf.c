// SPDX-License-Identifier: (Apache-2.0 OR GPL-2.0-only)
/* The balancer. */
#include "compat.h"
#include "count.h"
#include "direct.h"
#include "learn.h"
#include "lookup.h"
#include "parse.h"
#include "vip.h"

/* A packet that is no plain TCP or UDP, or not a VIP's. EQP_GO_ON: it is now a flow's packet. */
eqp_cold int handle_rare(struct eqp_context *ctx, struct eqp_job *job, int parsed)
{
	if (!is_vip_address(job))
		return XDP_PASS;
	if (parsed < 0)
		return parsed;
	return XDP_PASS;
}

eqp_inline int forward(struct eqp_context *ctx, struct eqp_job *job)
{
	if (eqp_unlikely(!(job->backend->flags & EQP_BACKEND_REACHABLE)))
		return EQP_DROP(EQP_DROP_NEIGHBOUR_UNRESOLVED);
	switch (job->service->forward) {
	case EQP_DIRECT:
		return forward_direct(ctx, job);
	}
	return EQP_DROP(EQP_DROP_TABLES);
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
	if (!service_find(job))
		return handle_rare(ctx, job, EQP_RARE);
	job->digest = flow_digest(ctx, job);
	action = decide(job);
	if (action != EQP_GO_ON)
		return action;
	learn(job);
	return forward(ctx, job);
}

SEC("xdp")
int balance(struct eqp_context *ctx)
{
	struct eqp_job job;
	int action;

	if (!job_begin(&job))
		return XDP_PASS;
	action = handle(ctx, &job);
	if (eqp_unlikely(action < 0)) {
		count_reason(&job, -(action + 1));
		return XDP_DROP;
	}
	if (action == XDP_PASS)
		return XDP_PASS;
	count_forwarded(&job);
	return action;
}

/* What the kernel wants to read where bpf_fib_lookup() is used. */
char LICENSE[] SEC("license") = "GPL";
