/* SPDX-License-Identifier: (Apache-2.0 OR GPL-2.0-only) */
/*
 * nat: the destination becomes the backend; replies come back through the balancer, and their source becomes the VIP.
 * Without state: what a reply's source becomes follows from it (eqp_reverse).
 */
#ifndef EQP_NAT_H
#define EQP_NAT_H

#include "count.h"
#include "direct.h"
#include "icmp.h"
#include "rewrite.h"
#include "route.h"
#include "vip.h"

eqp_cold int forward_nat(struct eqp_context *ctx, const struct eqp_job *job)
{
	const struct eqp_backend *backend = job->backend;
	struct eqp_rewrite rewrite = { .port = backend->port, .source = false, .outside = true };
	unsigned char *ethernet;
	int i;

	if (backend->family != job->packet.family)
		return EQP_DROP(EQP_DROP_FAMILY);
	if (hop_limit(ctx, &job->packet) <= 1)
		return EQP_DROP(EQP_DROP_TTL_EXPIRED);
	for (i = 0; i < 4; i++)
		rewrite.address[i] = backend->address[i];
	ethernet = packet_at(ctx, 0, ETH_HLEN);
	if (!ethernet || !rewrite_packet(ctx, &job->packet, &rewrite))
		return EQP_DROP(EQP_DROP_HEADER_SHORT);
	set_macs(ethernet, backend);
	return leave(ctx, backend->ifindex);
}

/* The entry of the flow's source address with a port, or NULL. */
eqp_inline const struct eqp_reverse *reverse_find(const struct eqp_job *job, __be16 port)
{
	const struct eqp_packet *packet = &job->packet;
	__u32 hash = address_hash(job, packet->source64, port, packet->protocol);
	__u32 mask = directory(job)->reverse_mask;
	int i;

	for (i = 0; i < EQP_PROBES_MAX; i++) {
		const struct eqp_reverse *reverse = reverse_at(job, (hash + i) & mask);
		const __u64 *address = (const __u64 *)reverse->address;

		if (!reverse->family)
			return NULL;
		if (reverse->family == packet->family && reverse->protocol == packet->protocol &&
		    reverse->port == port && address[0] == packet->source64[0] && address[1] == packet->source64[1])
			return reverse;
	}
	return NULL;
}

/* Whether an ICMP error comes from the backend itself, and not from a router on the way to it. */
eqp_inline bool comes_from(const struct eqp_context *ctx, const struct eqp_packet *packet, const __be32 *address)
{
	__u32 *ip = packet_at(ctx, packet->l3, EQP_IPV4_BYTES);

	if (!(packet->flags & EQP_PACKET_ICMP_ERROR))
		return true;
	if (packet->family == 4)
		return ip && ip[3] == address[0];
	ip = packet_at(ctx, packet->l3, EQP_IPV6_BYTES);
	return ip && ip[2] == address[0] && ip[3] == address[1] && ip[4] == address[2] && ip[5] == address[3];
}

/* A reply of a flow that was translated: back to the VIP's address, and on its way to the client. */
eqp_cold int translate_reply(struct eqp_context *ctx, struct eqp_job *job, const struct eqp_reverse *reverse)
{
	struct eqp_rewrite rewrite = { .port = reverse->vip_port, .source = true };
	int i;

	job->service = service_at(job, reverse->service);
	if (!job->service)
		return EQP_DROP(EQP_DROP_TABLES);
	if (hop_limit(ctx, &job->packet) <= 1)
		return EQP_DROP(EQP_DROP_TTL_EXPIRED);
	rewrite.outside = comes_from(ctx, &job->packet, reverse->address);
	for (i = 0; i < 4; i++)
		rewrite.address[i] = reverse->vip[i];
	if (!rewrite_packet(ctx, &job->packet, &rewrite))
		return EQP_DROP(EQP_DROP_HEADER_SHORT);
	count_reason(job, EQP_NOTE_REPLY);
	return leave_by_route(ctx, job);
}

/* A packet that is not for a VIP: perhaps a reply. `parsed`: of it. */
eqp_cold int handle_reply(struct eqp_context *ctx, struct eqp_job *job, int parsed)
{
	const struct eqp_reverse *reverse;
	struct eqp_packet *packet = &job->packet;

	if (!(directory(job)->flags & EQP_DIRECTORY_REVERSE) || packet->flags & EQP_PACKET_LATER_FRAGMENT)
		return XDP_PASS;
	if (parsed == EQP_RARE && is_icmp(packet) && !(packet->flags & EQP_PACKET_FIRST_FRAGMENT) &&
	    icmp_kind(ctx, packet) == EQP_ICMP_ERROR)
		parsed = read_quoted(ctx, packet);
	if (parsed != EQP_GO_ON)
		return XDP_PASS;
	reverse = reverse_find(job, packet->source_port);
	if (!reverse)
		reverse = reverse_find(job, 0);
	return reverse ? translate_reply(ctx, job, reverse) : XDP_PASS;
}

#endif
