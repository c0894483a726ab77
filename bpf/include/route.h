/* SPDX-License-Identifier: (Apache-2.0 OR GPL-2.0-only) */
/* Queries the kernel's routing and neighbour tables for translated replies and unserved packets. */
#ifndef EQP_ROUTE_H
#define EQP_ROUTE_H

#include "count.h"
#include "direct.h"
#include "icmp.h"
#include "sender.h"

#define EQP_AF_INET 2
#define EQP_AF_INET6 10

/* Describes the packet, with another source address, as a query to the kernel. */
eqp_inline bool ask_route(struct eqp_context *ctx, const struct eqp_packet *packet, const __be32 *source,
			  struct bpf_fib_lookup *fib)
{
	__u32 *ip = packet_at(ctx, packet->l3, EQP_IPV4_BYTES);
	int i;

	if (!ip)
		return false;
	fib->l4_protocol = packet->outer_protocol;
	fib->tot_len = packet->ip_bytes;
	fib->ifindex = ctx->ingress_ifindex;
	if (packet->family == 4) {
		fib->family = EQP_AF_INET;
		fib->tos = ip[0] >> 8;
		fib->ipv4_src = source[0];
		fib->ipv4_dst = ip[4];
		return true;
	}
	ip = packet_at(ctx, packet->l3, EQP_IPV6_BYTES);
	if (!ip)
		return false;
	fib->family = EQP_AF_INET6;
	fib->flowinfo = ip[0] & eqp_htonl(0x0fffffff);
	for (i = 0; i < 4; i++) {
		fib->ipv6_src[i] = source[i];
		fib->ipv6_dst[i] = ip[6 + i];
	}
	return true;
}

/* Whether the kernel has no route. `result`: of the query. */
eqp_inline bool is_unroutable(int result)
{
	return result == BPF_FIB_LKUP_RET_BLACKHOLE || result == BPF_FIB_LKUP_RET_UNREACHABLE ||
	       result == BPF_FIB_LKUP_RET_PROHIBIT;
}

/*
 * Sends a reply by its route. Without a neighbour entry it goes back where its client's packets
 * come from; if that is unknown, or without forwarding, the kernel handles it. `result`: of the
 * query `fib`.
 */
eqp_inline int leave_by_route(struct eqp_context *ctx, const struct eqp_job *job, const struct bpf_fib_lookup *fib,
			      int result)
{
	unsigned char *ethernet;
	int i;

	if (is_unroutable(result))
		return EQP_DROP(EQP_DROP_NO_ROUTE);
	ethernet = packet_at(ctx, 0, ETH_HLEN);
	if (result == BPF_FIB_LKUP_RET_NO_NEIGH && ethernet && return_to_sender(job, ethernet, fib->ifindex))
		return leave(ctx, fib->ifindex) | EQP_ANSWER;
	if (result != BPF_FIB_LKUP_RET_SUCCESS || !ethernet) {
		count_reason(job, EQP_NOTE_TO_KERNEL);
		return XDP_PASS;
	}
	for (i = 0; i < ETH_ALEN; i++) {
		ethernet[i] = fib->dmac[i];
		ethernet[ETH_ALEN + i] = fib->smac[i];
	}
	return leave(ctx, fib->ifindex) | EQP_ANSWER;
}

/*
 * Handles a packet to a VIP's address without a service (another port or protocol), or to a source
 * address of full-nat without a flow. It goes to the kernel if the address is this machine's own,
 * or if the kernel does not forward. Otherwise it is dropped: the kernel would send it back to the
 * routers, which would return it until its hop limit expires. Neighbour discovery goes to the
 * kernel, which may be a proxy for the address; it cannot loop, because it is only valid before its
 * first hop.
 */
eqp_cold int leave_unserved(struct eqp_context *ctx, const struct eqp_job *job)
{
	struct bpf_fib_lookup fib = {};
	int route;

	if (is_neighbour_discovery(ctx, &job->packet))
		return XDP_PASS;
	if (!ask_route(ctx, &job->packet, job->packet.source, &fib))
		return XDP_PASS;
	route = route_find(ctx, &fib);
	if (route == BPF_FIB_LKUP_RET_SUCCESS || route == BPF_FIB_LKUP_RET_NO_NEIGH ||
	    route == BPF_FIB_LKUP_RET_FRAG_NEEDED)
		return EQP_DROP(EQP_DROP_NO_SERVICE);
	return XDP_PASS;
}

#endif
