/* SPDX-License-Identifier: (Apache-2.0 OR GPL-2.0-only) */
/*
 * Rewrites the address and port of one side of a packet: headers, checksums, hop limit. In an ICMP
 * error it also rewrites the other side of the quoted packet, so that the error matches the packet
 * that its receiver sent.
 */
#ifndef EQP_REWRITE_H
#define EQP_REWRITE_H

#include "checksum.h"
#include "parse.h"

struct eqp_rewrite {
	__be32 address[4];
	__be16 port;  /* 0: unchanged */
	bool source;  /* side to rewrite */
	bool outside; /* false: rewrite only the packet that an ICMP error quotes */
};

/* Differences for sums: over the pseudo header and the payload; over all changed data. */
struct eqp_change {
	__u64 pseudo;
	__u64 all;
};

eqp_inline bool change_address(const struct eqp_context *ctx, const struct eqp_packet *packet, __u64 l3, bool source,
			       const struct eqp_rewrite *rewrite, struct eqp_change *change)
{
	__u32 *address;
	__u16 *header;
	int i;

	if (packet->family == 4) {
		header = packet_at(ctx, l3, EQP_IPV4_BYTES);
		if (!header)
			return false;
		address = source ? (__u32 *)(header + 6) : (__u32 *)(header + 8);
		change->pseudo += replace32(address, rewrite->address[0]);
		change->all += change->pseudo;
		change->all += replace16(&header[5], checksum_after(header[5], change->pseudo));
		return true;
	}
	header = packet_at(ctx, l3, EQP_IPV6_BYTES);
	if (!header)
		return false;
	address = source ? (__u32 *)(header + 4) : (__u32 *)(header + 12);
	for (i = 0; i < 4; i++)
		change->pseudo += replace32(&address[i], rewrite->address[i]);
	change->all += change->pseudo;
	return true;
}

/*
 * Updates the checksum of TCP or UDP if the packet (or its quoted part) includes it. A UDP packet
 * without a checksum stays so.
 */
eqp_inline void change_checksum(const struct eqp_context *ctx, const struct eqp_packet *packet, __u64 at, bool udp,
				struct eqp_change *change)
{
	__u16 *checksum = packet_at(ctx, at, sizeof(*checksum)), value;

	if (!checksum || at + sizeof(*checksum) > packet->l3 + packet->ip_bytes || (udp && !*checksum))
		return;
	value = checksum_after(*checksum, change->pseudo);
	/* RFC 768: 0 means that there is no checksum. */
	if (udp && !value)
		value = 0xffff;
	change->all += replace16(checksum, value);
}

eqp_inline bool change_transport(const struct eqp_context *ctx, const struct eqp_packet *packet, __u64 l4, bool source,
				 const struct eqp_rewrite *rewrite, struct eqp_change *change)
{
	__u16 *ports = packet_at(ctx, l4, EQP_UDP_BYTES);
	bool udp = packet->protocol == IPPROTO_UDP;

	if (!ports)
		return false;
	if (rewrite->port) {
		__u64 difference = replace16(source ? &ports[0] : &ports[1], rewrite->port);

		change->pseudo += difference;
		change->all += difference;
	}
	change_checksum(ctx, packet, l4 + (udp ? 6 : 16), udp, change);
	return true;
}

/* Decrements the hop limit, which must be above 1. */
eqp_inline bool change_hop_limit(const struct eqp_context *ctx, const struct eqp_packet *packet)
{
	__u16 *header = packet_at(ctx, packet->l3, EQP_IPV4_BYTES);

	if (!header)
		return false;
	if (packet->family == 4)
		header[5] = checksum_after(header[5], replace16(&header[4], header[4] - 1));
	else
		header[3] -= 1 << 8;
	return true;
}

/* Returns the hop limit of the packet. */
eqp_inline __u8 hop_limit(const struct eqp_context *ctx, const struct eqp_packet *packet)
{
	unsigned char *ip = packet_at(ctx, packet->l3, EQP_IPV4_BYTES);

	return ip ? ip[packet->family == 4 ? 8 : 7] : 0;
}

/*
 * Rewrites the other side of the quoted packet, and the error's checksum. `outer`: differences
 * outside the quoted packet.
 */
eqp_cold bool rewrite_quoted(const struct eqp_context *ctx, const struct eqp_packet *packet,
			     const struct eqp_rewrite *rewrite, const struct eqp_change *outer)
{
	struct eqp_change change = {};
	__u64 difference;
	__u16 *icmp;

	if (!change_address(ctx, packet, packet->inner_l3, !rewrite->source, rewrite, &change) ||
	    !change_transport(ctx, packet, packet->inner_l4, !rewrite->source, rewrite, &change))
		return false;
	icmp = packet_at(ctx, packet->l4, EQP_ICMP_BYTES);
	if (!icmp)
		return false;
	/* ICMPv6 has a pseudo header, ICMP has none. */
	difference = change.all + (packet->family == 6 ? outer->pseudo : 0);
	icmp[1] = checksum_after(icmp[1], difference);
	return true;
}

/* Rewrites one side. Returns false if the packet ends before its headers. */
eqp_cold bool rewrite_side(const struct eqp_context *ctx, const struct eqp_packet *packet,
			   const struct eqp_rewrite *rewrite)
{
	struct eqp_change change = {};

	if (rewrite->outside && !change_address(ctx, packet, packet->l3, rewrite->source, rewrite, &change))
		return false;
	if (packet->flags & EQP_PACKET_LATER_FRAGMENT)
		return true;
	if (packet->flags & EQP_PACKET_ICMP_ERROR)
		return rewrite_quoted(ctx, packet, rewrite, &change);
	return change_transport(ctx, packet, packet->l4, rewrite->source, rewrite, &change);
}

/* Rewrites one side, and decrements the hop limit. */
eqp_inline bool rewrite_packet(const struct eqp_context *ctx, const struct eqp_packet *packet,
			       const struct eqp_rewrite *rewrite)
{
	return change_hop_limit(ctx, packet) && rewrite_side(ctx, packet, rewrite);
}

#endif
