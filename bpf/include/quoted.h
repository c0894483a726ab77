/* SPDX-License-Identifier: (Apache-2.0 OR GPL-2.0-only) */
/* Parses ICMP: its kind, and the flow that an error concerns. */
#ifndef EQP_QUOTED_H
#define EQP_QUOTED_H

#include "parse.h"

enum eqp_icmp_kind { EQP_ICMP_OTHER, EQP_ICMP_ECHO, EQP_ICMP_ERROR, EQP_ICMP_SHORT };

eqp_inline bool is_icmp(const struct eqp_packet *packet)
{
	return packet->protocol == (packet->family == 4 ? IPPROTO_ICMP : IPPROTO_ICMPV6);
}

/* Returns the kind of an ICMP packet, if its header is complete. */
eqp_inline enum eqp_icmp_kind icmp_kind(const struct eqp_context *ctx, const struct eqp_packet *packet)
{
	unsigned char *icmp = packet_at(ctx, packet->l4, EQP_ICMP_BYTES);
	__u8 type;

	if (!icmp || packet->l4 + EQP_ICMP_BYTES > packet->l3 + packet->ip_bytes)
		return EQP_ICMP_SHORT;
	type = icmp[0];
	if (packet->family == 4) {
		if (type == 8)
			return EQP_ICMP_ECHO;
		return type == 3 || type == 11 || type == 12 ? EQP_ICMP_ERROR : EQP_ICMP_OTHER;
	}
	if (type == 128)
		return EQP_ICMP_ECHO;
	return type >= 1 && type <= 4 ? EQP_ICMP_ERROR : EQP_ICMP_OTHER;
}

/*
 * Reads addresses and protocol of the quoted IPv4 header. Returns the offset after it, or a drop,
 * or XDP_PASS (smaller than any offset).
 */
eqp_inline int read_quoted_ipv4(const struct eqp_context *ctx, struct eqp_packet *packet, __u32 ip_end)
{
	unsigned char *ip = packet_at(ctx, packet->inner_l3, EQP_IPV4_BYTES);
	__u32 header_bytes;

	if (!ip || packet->inner_l3 + EQP_IPV4_BYTES > ip_end || ip[0] >> 4 != 4)
		return EQP_DROP(EQP_DROP_HEADER_SHORT);
	header_bytes = (ip[0] & 0xf) * 4;
	if (header_bytes < EQP_IPV4_BYTES || packet->inner_l3 + header_bytes > ip_end)
		return EQP_DROP(EQP_DROP_HEADER_SHORT);
	packet->protocol = ip[9];
	packet->destination64[0] = *(__u32 *)(ip + 12);
	packet->source64[0] = *(__u32 *)(ip + 16);
	if (*(__u16 *)(ip + 6) & eqp_htons(0x1fff))
		return XDP_PASS;
	return packet->inner_l3 + header_bytes;
}

eqp_inline int read_quoted_ipv6(const struct eqp_context *ctx, struct eqp_packet *packet, __u32 ip_end)
{
	unsigned char *ip = packet_at(ctx, packet->inner_l3, EQP_IPV6_BYTES);
	__u8 outer_protocol = packet->outer_protocol;
	int l4;

	if (!ip || packet->inner_l3 + EQP_IPV6_BYTES > ip_end || ip[0] >> 4 != 6)
		return EQP_DROP(EQP_DROP_HEADER_SHORT);
	packet->protocol = ip[6];
	packet->destination64[0] = *(__u64 *)(ip + 8);
	packet->destination64[1] = *(__u64 *)(ip + 16);
	packet->source64[0] = *(__u64 *)(ip + 24);
	packet->source64[1] = *(__u64 *)(ip + 32);
	l4 = walk_extension_headers(ctx, packet, packet->inner_l3 + EQP_IPV6_BYTES, ip_end);
	packet->outer_protocol = outer_protocol;
	if (l4 < 0)
		return EQP_DROP(EQP_DROP_HEADER_SHORT);
	return packet->flags & EQP_PACKET_LATER_FRAGMENT ? XDP_PASS : l4;
}

/*
 * Replaces the packet's fields by those of the flow that the quoted packet belongs to. The quoted
 * packet went from VIP to client; the flow goes from client to VIP. Returns EQP_GO_ON; XDP_PASS if
 * the error concerns no flow; or a drop.
 */
eqp_cold int read_quoted(const struct eqp_context *ctx, struct eqp_packet *packet)
{
	__u32 ip_end = packet->l3 + packet->ip_bytes;
	unsigned char *ports;
	int l4;

	packet->inner_l3 = packet->l4 + EQP_ICMP_BYTES;
	l4 = packet->family == 4 ? read_quoted_ipv4(ctx, packet, ip_end) : read_quoted_ipv6(ctx, packet, ip_end);
	if (l4 < 0)
		return l4;
	if (l4 == XDP_PASS || (packet->protocol != IPPROTO_TCP && packet->protocol != IPPROTO_UDP))
		return XDP_PASS;
	packet->inner_l4 = l4;
	/* RFC 792: eight bytes after the quoted header, including the ports. */
	ports = packet_at(ctx, (__u32)l4, 8);
	if (!ports || (__u32)l4 + 8 > ip_end)
		return EQP_DROP(EQP_DROP_HEADER_SHORT);
	packet->source_port = *(__be16 *)(ports + 2);
	packet->destination_port = *(__be16 *)ports;
	packet->flags = EQP_PACKET_ICMP_ERROR;
	return EQP_GO_ON;
}

#endif
