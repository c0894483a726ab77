/* SPDX-License-Identifier: (Apache-2.0 OR GPL-2.0-only) */
/*
 * The backend's side of second_chance.h: a packet of a flow that this host does not know is passed
 * on to the next backend in its GUE header. Only configured backends get packets. Each address is
 * used once, so a packet cannot loop: the last backend has next_hop equal to hops. The outer source
 * stays, which lets the next backend check that a balancer sent the packet.
 */
#ifndef EQP_PASS_ON_H
#define EQP_PASS_ON_H

#include "checksum.h"
#include "gue.h"
#include "quoted.h"
#include "socket.h"

/* Outer headers of a packet. */
struct eqp_around {
	__u32 l3;
	__u32 inner; /* offset of the inner packet; 0: not a tunnel for this machine */
	__u32 gue;   /* offset after the UDP header; 0: not GUE */
	__u32 hop;   /* offset of the next backend's address; 0: none */
	__u8 tos;
	__u8 version; /* of the inner packet; 0: its first bits tell */
	__u8 family;  /* of the outer packet */
	__u8 is_second; /* whether another backend has passed it on */
};

/*
 * Moves `inner` behind a GUE header of variant 0. False: it has flags or a length that this program
 * does not know.
 */
eqp_inline bool see_gue_header(const struct eqp_context *ctx, struct eqp_around *around)
{
	__u32 at = around->gue;
	struct eqp_gue *gue = packet_at(ctx, at, 4);
	__u8 words;

	if (!gue)
		return false;
	words = gue->version_length;
	if (gue->flags || (gue->protocol != IPPROTO_IPIP && gue->protocol != IPPROTO_IPV6))
		return false;
	around->version = gue->protocol == IPPROTO_IPIP ? 4 : 6;
	around->inner = at + 4 + words * 4;
	if (!words)
		return true;
	gue = packet_at(ctx, at, sizeof(*gue));
	if (!gue || gue->type || !gue->hops || gue->hops > EQP_GUE_HOPS_MAX || gue->next_hop > gue->hops)
		return false;
	if (words != 1 + gue->hops * gue_address_bytes(around->family) / 4)
		return false;
	around->is_second = gue->next_hop > 0;
	if (gue->next_hop < gue->hops)
		around->hop = at + sizeof(*gue) + gue->next_hop * gue_address_bytes(around->family);
	return true;
}

/*
 * Whether the packet stays: this host has its flow, or it opens one, or it belongs to no flow of
 * TCP.
 */
eqp_cold bool stays_here(struct eqp_context *ctx, const struct eqp_around *around)
{
	struct eqp_packet packet = {};
	int parsed;

	packet.frame = packet_end(ctx) - packet_begin(ctx);
	packet.l3 = around->inner;
	parsed = around->version == 4 ? parse_ipv4(ctx, &packet, around->inner) : parse_ipv6(ctx, &packet, around->inner);
	if (parsed == EQP_RARE && !packet.flags && is_icmp(&packet) && icmp_kind(ctx, &packet) == EQP_ICMP_ERROR)
		parsed = read_quoted(ctx, &packet);
	if (parsed != EQP_GO_ON || packet.protocol != IPPROTO_TCP || packet_opens(&packet))
		return true;
	return flow_is_here(ctx, &packet);
}

/* Replaces the outer destination, and marks its address as used. */
eqp_inline bool readdress(struct eqp_context *ctx, const struct eqp_around *around, const __be32 *to)
{
	struct eqp_gue *gue = packet_at(ctx, around->gue, sizeof(*gue));
	__u16 *ip;
	__u32 *address;
	int i;

	if (!gue)
		return false;
	gue->next_hop++;
	if (around->family == 4) {
		ip = packet_at(ctx, around->l3, EQP_IPV4_BYTES);
		if (!ip)
			return false;
		address = (__u32 *)(ip + 8);
		ip[5] = checksum_after(ip[5], replace32(address, to[0]));
		return true;
	}
	address = packet_at(ctx, around->l3 + 24, 16);
	if (!address)
		return false;
	for (i = 0; i < 4; i++)
		address[i] = to[i];
	return true;
}

/*
 * Passes a packet on if its flow is not here. EQP_GO_ON: it stays. `which` becomes the counter of
 * the outcome, if it has one.
 */
eqp_cold int pass_on(struct eqp_context *ctx, const struct eqp_around *around, __u32 *which)
{
	struct eqp_decapsulation_address to = { .family = around->family };
	const struct eqp_decapsulation_backend *backend;
	unsigned char *ethernet;
	__be32 *hop;
	int i;

	if (stays_here(ctx, around))
		return EQP_GO_ON;
	hop = packet_at(ctx, around->hop, 4);
	if (!hop)
		return EQP_GO_ON;
	to.address[0] = hop[0];
	if (around->family == 6) {
		hop = packet_at(ctx, around->hop, 16);
		if (!hop)
			return EQP_GO_ON;
		for (i = 1; i < 4; i++)
			to.address[i] = hop[i];
	}
	backend = backend_find(&to);
	if (!backend) {
		*which = EQP_DECAPSULATED_REFUSED;
		return EQP_GO_ON;
	}
	*which = EQP_DECAPSULATED_UNREACHABLE;
	if (!backend->ifindex || !readdress(ctx, around, to.address))
		return XDP_DROP;
	ethernet = packet_at(ctx, 0, ETH_HLEN);
	if (!ethernet)
		return XDP_DROP;
	for (i = 0; i < ETH_ALEN; i++) {
		ethernet[i] = backend->destination_mac[i];
		ethernet[ETH_ALEN + i] = backend->source_mac[i];
	}
	*which = EQP_DECAPSULATED_PASSED_ON;
	return backend->ifindex == ctx->ingress_ifindex ? XDP_TX : leave_by(backend->ifindex);
}

#endif
