/* SPDX-License-Identifier: (Apache-2.0 OR GPL-2.0-only) */
/*
 * nat: the destination becomes the backend. Replies return through the balancer, and their source
 * becomes the VIP. The reply determines its new source (eqp_reverse). translated.h records whether
 * a client opened the flow by the VIP.
 */
#ifndef EQP_NAT_H
#define EQP_NAT_H

#include "count.h"
#include "direct.h"
#include "fragment.h"
#include "icmp.h"
#include "rewrite.h"
#include "route.h"
#include "sender.h"
#include "translated.h"
#include "vip.h"

/*
 * Records the flow, so that its replies are translated; and the way back to its client with the
 * flow's first packet and once in a tick, since more often costs each packet a cache line.
 */
eqp_inline void note_translated(const struct eqp_context *ctx, const struct eqp_job *job)
{
	const struct eqp_packet *packet = &job->packet;
	__u64 digest = job->digest;

	if (packet->flags & (EQP_PACKET_ICMP_ERROR | EQP_PACKET_LATER_FRAGMENT))
		return;
	if (job->service->key != EQP_FIVE_TUPLE)
		digest = tuple_digest(job, packet->source64, packet->destination64, packet->ports);
	if (translated_put(job, digest_at_slot(job, digest, job->slot)))
		note_sender(ctx, job);
}

/* EQP_GO_ON if a router may send the packet on to its backend; otherwise its end. */
eqp_inline int check_route_on(struct eqp_context *ctx, struct eqp_job *job)
{
	const struct eqp_backend *backend = job->backend;

	if (backend->family != job->packet.family)
		return EQP_DROP(EQP_DROP_FAMILY);
	if (job->packet.ip_bytes > backend->mtu)
		return answer_too_big(ctx, job, backend->mtu);
	if (hop_limit(ctx, &job->packet) <= 1)
		return EQP_DROP(EQP_DROP_TTL_EXPIRED);
	return EQP_GO_ON;
}

eqp_cold int forward_nat(struct eqp_context *ctx, struct eqp_job *job)
{
	const struct eqp_backend *backend = job->backend;
	struct eqp_rewrite rewrite = { .port = backend->port, .source = false, .outside = true };
	unsigned char *ethernet;
	int checked, i;

	checked = check_route_on(ctx, job);
	if (checked != EQP_GO_ON)
		return checked;
	for (i = 0; i < 4; i++)
		rewrite.address[i] = backend->address[i];
	note_translated(ctx, job);
	ethernet = packet_at(ctx, 0, ETH_HLEN);
	if (!ethernet || !rewrite_packet(ctx, &job->packet, &rewrite))
		return EQP_DROP(EQP_DROP_HEADER_SHORT);
	set_macs(ethernet, backend);
	return leave(ctx, backend->ifindex);
}

#define EQP_NO_REVERSE 0xffffffff

/* Returns the index of the entry for the flow's source address and a port, or EQP_NO_REVERSE. */
eqp_inline __u32 reverse_find(const struct eqp_job *job, __be16 port)
{
	const struct eqp_packet *packet = &job->packet;
	__u32 hash = address_hash(job, packet->source64, port, packet->protocol);
	__u32 mask = directory(job)->reverse_mask;
	int i;

	for (i = 0; i < EQP_PROBES_MAX; i++) {
		const struct eqp_reverse *reverse = reverse_at(job, (hash + i) & mask);
		const __u64 *address = (const __u64 *)reverse->address;

		if (!reverse->family)
			return EQP_NO_REVERSE;
		if (reverse->family == packet->family && reverse->protocol == packet->protocol &&
		    reverse->port == port && address[0] == packet->source64[0] && address[1] == packet->source64[1])
			return (hash + i) & mask;
	}
	return EQP_NO_REVERSE;
}

/*
 * Records the entry of a reply's first fragment, because the later ones have no port. The record is
 * beside the fragments to VIPs, with an entry's index instead of a digest, and no slot.
 */
eqp_cold void remember_reply(struct eqp_job *job, __u32 index, const struct eqp_reverse *reverse)
{
	job->digest = index;
	job->service_index = reverse->service;
	job->slot = EQP_NO_SLOT;
	remember_fragment(job);
}

/*
 * Returns the entry of the datagram's first fragment, or EQP_NO_REVERSE: the fragment was not seen,
 * or the tables have changed.
 */
eqp_cold __u32 reverse_of_first(const struct eqp_job *job)
{
	const struct eqp_packet *packet = &job->packet;
	const struct eqp_reverse *reverse;
	const struct eqp_service *service;
	const struct eqp_fragment *first = first_fragment(packet);
	const __u64 *address;

	if (!first || first->slot != EQP_NO_SLOT)
		return EQP_NO_REVERSE;
	reverse = reverse_at(job, first->digest);
	service = service_at(job, first->service);
	address = (const __u64 *)reverse->address;
	if (!service || service->number != first->number || reverse->service != first->service ||
	    reverse->family != packet->family || address[0] != packet->source64[0] || address[1] != packet->source64[1])
		return EQP_NO_REVERSE;
	return first->digest;
}

/* Whether the backend itself sent an ICMP error, not a router on the path. */
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

/*
 * Translates a reply of a translated flow: sets the VIP as source and sends it to the client. A
 * packet from a backend to this machine itself belongs to a connection of this machine (a health
 * check, the session level), not to a VIP.
 */
eqp_cold int translate_reply(struct eqp_context *ctx, struct eqp_job *job, __u32 index)
{
	const struct eqp_reverse *reverse = reverse_at(job, index);
	struct eqp_rewrite rewrite = { .port = reverse->vip_port, .source = true };
	struct bpf_fib_lookup fib = {};
	int route, i;

	if (!job->service)
		return EQP_DROP(EQP_DROP_TABLES);
	if (!ask_route(ctx, &job->packet, reverse->vip, &fib))
		return EQP_DROP(EQP_DROP_HEADER_SHORT);
	route = route_find(ctx, &fib);
	if (route == BPF_FIB_LKUP_RET_NOT_FWDED)
		return XDP_PASS;
	if (hop_limit(ctx, &job->packet) <= 1)
		return EQP_DROP(EQP_DROP_TTL_EXPIRED);
	rewrite.outside = comes_from(ctx, &job->packet, reverse->address);
	for (i = 0; i < 4; i++)
		rewrite.address[i] = reverse->vip[i];
	count_reason(job, EQP_NOTE_REPLY);
	if (job->packet.flags & EQP_PACKET_FIRST_FRAGMENT)
		remember_reply(job, index, reverse);
	/* Here already, so that a capture has the frame as it arrived. */
	if (is_unroutable(route))
		return EQP_DROP(EQP_DROP_NO_ROUTE);
	if (!rewrite_packet(ctx, &job->packet, &rewrite))
		return EQP_DROP(EQP_DROP_HEADER_SHORT);
	return leave_by_route(ctx, job, &fib, route);
}

/* Whether a client opened the reply's flow by the VIP, to this backend. Requires job->service. */
eqp_cold bool is_asked_for(const struct eqp_job *job, const struct eqp_reverse *reverse)
{
	const struct eqp_packet *packet = &job->packet;
	__be16 vip_port = reverse->vip_port ? reverse->vip_port : packet->source_port;
	__u32 ports = packet->destination_port | (__u32)vip_port << 16;
	__u32 slot = reverse->backend - job->service->backends_first;
	__u64 digest;

	if (directory(job)->flags & EQP_DIRECTORY_REPLIES_ALL)
		return true;
	digest = tuple_digest(job, packet->destination64, (const __u64 *)reverse->vip, ports);
	return translated_find(job, digest_at_slot(job, digest, slot), slot);
}

/* Finds the service of a reply with this entry. */
eqp_inline const struct eqp_reverse *reply_entry(struct eqp_job *job, __u32 index)
{
	const struct eqp_reverse *reverse = reverse_at(job, index);

	job->service = service_at(job, reverse->service);
	return reverse;
}

/* Handles a packet that is not for a VIP and may be a reply. `parsed`: result of parse(). */
eqp_cold int handle_reply(struct eqp_context *ctx, struct eqp_job *job, int parsed)
{
	struct eqp_packet *packet = &job->packet;
	const struct eqp_reverse *reverse;
	__u32 index;

	if (!(directory(job)->flags & EQP_DIRECTORY_REVERSE))
		return XDP_PASS;
	if (parsed == EQP_RARE && packet->flags & EQP_PACKET_LATER_FRAGMENT) {
		index = reverse_of_first(job);
		if (index == EQP_NO_REVERSE)
			return XDP_PASS;
		reply_entry(job, index);
		return translate_reply(ctx, job, index);
	}
	if (parsed == EQP_RARE && is_icmp(packet) && !(packet->flags & EQP_PACKET_FIRST_FRAGMENT) &&
	    icmp_kind(ctx, packet) == EQP_ICMP_ERROR)
		parsed = read_quoted(ctx, packet);
	if (parsed != EQP_GO_ON)
		return XDP_PASS;
	index = reverse_find(job, packet->source_port);
	if (index == EQP_NO_REVERSE)
		index = reverse_find(job, 0);
	if (index == EQP_NO_REVERSE)
		return XDP_PASS;
	reverse = reply_entry(job, index);
	if (job->service && !is_asked_for(job, reverse)) {
		/* Does not belong to this service. */
		job->service = NULL;
		return XDP_PASS;
	}
	return translate_reply(ctx, job, index);
}

#endif
