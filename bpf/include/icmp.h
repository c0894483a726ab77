/* SPDX-License-Identifier: (Apache-2.0 OR GPL-2.0-only) */
/*
 * ICMP to a VIP: answers echo requests, and sends errors to the backend of the flow that they
 * concern.
 */
#ifndef EQP_ICMP_H
#define EQP_ICMP_H

#include "checksum.h"
#include "count.h"
#include "rate.h"

enum eqp_icmp_kind { EQP_ICMP_OTHER, EQP_ICMP_ECHO, EQP_ICMP_ERROR, EQP_ICMP_SHORT };

#define EQP_ECHO_REPLY_IPV4 0
#define EQP_ECHO_REPLY_IPV6 129

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

/* Router and neighbour discovery (RFC 4861): not a fragment, and with the maximum hop limit. */
eqp_inline bool is_neighbour_discovery(const struct eqp_context *ctx, const struct eqp_packet *packet)
{
	unsigned char *ip = packet_at(ctx, packet->l3, EQP_IPV6_BYTES), *icmp;

	if (packet->family != 6 || packet->protocol != IPPROTO_ICMPV6 || packet->flags || !ip || ip[7] != 255)
		return false;
	icmp = packet_at(ctx, packet->l4, EQP_ICMP_BYTES);
	return icmp && icmp[0] >= 133 && icmp[0] <= 137;
}

eqp_inline void swap16(__u16 *a, __u16 *b)
{
	__u16 was = *a;

	*a = *b;
	*b = was;
}

eqp_inline void swap32(__u32 *a, __u32 *b)
{
	__u32 was = *a;

	*a = *b;
	*b = was;
}

/* Turns an echo request into the reply: addresses, type, and a new hop limit. */
eqp_cold int answer_echo(struct eqp_context *ctx, const struct eqp_job *job)
{
	struct eqp_cpu *cpu = (struct eqp_cpu *)job->cpu;
	const struct eqp_packet *packet = &job->packet;
	bool v4 = packet->family == 4;
	__u16 *ethernet = packet_at(ctx, 0, ETH_HLEN);
	__u16 *icmp = packet_at(ctx, packet->l4, EQP_ICMP_BYTES);
	unsigned char *ip = packet_at(ctx, packet->l3, v4 ? EQP_IPV4_BYTES : EQP_IPV6_BYTES);
	int i;

	if (!rate_admits(&cpu->echo_tokens_at_ns, directory(job)->echo_per_second))
		return EQP_DROP(EQP_DROP_ICMP_RATE);
	if (!ethernet || !icmp || !ip)
		return EQP_DROP(EQP_DROP_HEADER_SHORT);
	for (i = 0; i < 3; i++)
		swap16(&ethernet[i], &ethernet[3 + i]);
	if (v4) {
		__u16 *hop = (__u16 *)(ip + 8), *checksum = (__u16 *)(ip + 10);
		__u64 difference = replace16(hop, (*hop & 0xff00) | EQP_ANSWER_TTL);

		*checksum = checksum_after(*checksum, difference);
		swap32((__u32 *)(ip + 12), (__u32 *)(ip + 16));
	} else {
		ip[7] = EQP_ANSWER_TTL;
		for (i = 0; i < 16; i += sizeof(__u32))
			swap32((__u32 *)(ip + 8 + i), (__u32 *)(ip + 24 + i));
	}
	icmp[1] = checksum_after(icmp[1], replace16(&icmp[0], (icmp[0] & 0xff00) |
								      (v4 ? EQP_ECHO_REPLY_IPV4 : EQP_ECHO_REPLY_IPV6)));
	count_reason(job, EQP_NOTE_ECHO_ANSWERED);
	return XDP_TX | EQP_ANSWER;
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

/* EQP_GO_ON: an error; the job now has the flow that it concerns. */
eqp_cold int handle_icmp(struct eqp_context *ctx, struct eqp_job *job)
{
	enum eqp_icmp_kind kind = icmp_kind(ctx, &job->packet);

	if (kind == EQP_ICMP_SHORT)
		return EQP_DROP(EQP_DROP_HEADER_SHORT);
	if (job->packet.flags & EQP_PACKET_FIRST_FRAGMENT)
		return XDP_PASS;
	if (kind == EQP_ICMP_ECHO)
		return answer_echo(ctx, job);
	return kind == EQP_ICMP_ERROR ? read_quoted(ctx, &job->packet) : XDP_PASS;
}

#endif
