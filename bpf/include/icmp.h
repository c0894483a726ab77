/* SPDX-License-Identifier: (Apache-2.0 OR GPL-2.0-only) */
/*
 * ICMP to a VIP: answers echo requests, and sends errors to the backend of the flow that they
 * concern.
 */
#ifndef EQP_ICMP_H
#define EQP_ICMP_H

#include "checksum.h"
#include "count.h"
#include "quoted.h"
#include "rate.h"

#define EQP_ECHO_REPLY_IPV4 0
#define EQP_ECHO_REPLY_IPV6 129

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
