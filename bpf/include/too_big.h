/* SPDX-License-Identifier: (Apache-2.0 OR GPL-2.0-only) */
/*
 * Answers a packet that exceeds the path MTU to its backend with an ICMP error and the MTU (RFC
 * 792, RFC 1191; RFC 4443, section 3.2), whether or not the sender set DF, because the balancer
 * does not fragment. Works in place: truncates the frame to the quoted part and inserts the error's
 * headers before it.
 */
#ifndef EQP_TOO_BIG_H
#define EQP_TOO_BIG_H

#include "checksum.h"
#include "count.h"
#include "rate.h"

/*
 * Maximum sizes of the quoted part, so that the error has at most 576 (RFC 1812, section 4.3.2.3)
 * or 1280 bytes.
 */
#define EQP_QUOTED_MAX_IPV4 (576 - EQP_IPV4_BYTES - EQP_ICMP_BYTES)
#define EQP_QUOTED_MAX_IPV6 (1280 - EQP_IPV6_BYTES - EQP_ICMP_BYTES)

struct eqp_quote {
	const struct eqp_context *ctx;
	__u64 at;
	__u64 sum;
};

static long quote_step(__u32 index, void *argument)
{
	struct eqp_quote *quote = argument;
	__u32 *word = packet_at(quote->ctx, quote->at + (__u64)index * sizeof(*word), sizeof(*word));

	if (!word)
		return 1;
	quote->sum += *word;
	return 0;
}

/* Returns the sum of `bytes` (a multiple of 4) of the packet. */
eqp_inline __u64 quote_sum(const struct eqp_context *ctx, __u64 at, __u32 bytes)
{
	struct eqp_quote quote = { .ctx = ctx, .at = at };

	repeat(bytes / sizeof(__u32), quote_step, &quote);
	return quote.sum;
}

/* Writes the error's IP and ICMP headers, from the VIP to the client, before the quoted part. */
eqp_inline bool write_too_big_ipv4(const struct eqp_context *ctx, const struct eqp_packet *packet, __u32 quoted,
				   __u32 mtu)
{
	__u64 l4 = packet->l3 + EQP_IPV4_BYTES;
	__u64 sum = quote_sum(ctx, l4 + EQP_ICMP_BYTES, quoted);
	__u32 *ip = packet_at(ctx, packet->l3, EQP_IPV4_BYTES + EQP_ICMP_BYTES);
	__u32 *icmp = ip + EQP_IPV4_BYTES / sizeof(*ip);

	if (!ip)
		return false;
	ip[0] = 0x45 | (__u32)eqp_htons(EQP_IPV4_BYTES + EQP_ICMP_BYTES + quoted) << 16;
	ip[1] = (__u32)eqp_htons(0x4000) << 16;
	ip[2] = EQP_ANSWER_TTL | IPPROTO_ICMP << 8;
	ip[3] = packet->destination[0];
	ip[4] = packet->source[0];
	ip[2] |= (__u32)checksum_of((__u64)ip[0] + ip[1] + ip[2] + ip[3] + ip[4]) << 16;
	icmp[0] = 3 | 4 << 8; /* destination unreachable, fragmentation needed */
	icmp[1] = eqp_htonl(mtu & 0xffff);
	icmp[0] |= (__u32)checksum_of(sum + icmp[0] + icmp[1]) << 16;
	return true;
}

eqp_inline bool write_too_big_ipv6(const struct eqp_context *ctx, const struct eqp_packet *packet, __u32 quoted,
				   __u32 mtu)
{
	__u64 l4 = packet->l3 + EQP_IPV6_BYTES;
	__u64 sum = quote_sum(ctx, l4 + EQP_ICMP_BYTES, quoted);
	__u32 *ip = packet_at(ctx, packet->l3, EQP_IPV6_BYTES + EQP_ICMP_BYTES);
	__u32 *icmp = ip + EQP_IPV6_BYTES / sizeof(*ip);
	int i;

	if (!ip)
		return false;
	ip[0] = eqp_htonl(0x60000000);
	ip[1] = eqp_htons(EQP_ICMP_BYTES + quoted) | IPPROTO_ICMPV6 << 16 | (__u32)EQP_ANSWER_TTL << 24;
	for (i = 0; i < 4; i++) {
		ip[2 + i] = packet->destination[i];
		ip[6 + i] = packet->source[i];
		sum += (__u64)ip[2 + i] + ip[6 + i];
	}
	sum += eqp_htonl(EQP_ICMP_BYTES + quoted) + (__u64)eqp_htonl(IPPROTO_ICMPV6);
	icmp[0] = 2;
	icmp[1] = eqp_htonl(mtu);
	icmp[0] |= (__u32)checksum_of(sum + icmp[0] + icmp[1]) << 16;
	return true;
}

/*
 * Truncates the frame after `kept` bytes of the packet, grows it before them, and swaps its MAC
 * addresses.
 */
eqp_inline bool make_room(struct eqp_context *ctx, const struct eqp_packet *packet, __u32 kept, __u32 grown)
{
	bool tagged = packet->l3 != ETH_HLEN;
	__u16 *ethernet = packet_at(ctx, 0, ETH_HLEN + EQP_VLAN_BYTES);
	__u16 was[(ETH_HLEN + EQP_VLAN_BYTES) / sizeof(__u16)];
	int i;

	if (!ethernet)
		return false;
	for (i = 0; i < 9; i++)
		was[i] = ethernet[i];
	if (cut_tail(ctx, packet->frame - packet->l3 - kept) || grow_head(ctx, grown))
		return false;
	ethernet = packet_at(ctx, 0, ETH_HLEN + EQP_VLAN_BYTES);
	if (!ethernet)
		return false;
	for (i = 0; i < 3; i++) {
		ethernet[i] = was[3 + i];
		ethernet[3 + i] = was[i];
	}
	ethernet[6] = was[6];
	if (tagged) {
		ethernet[7] = was[7];
		ethernet[8] = was[8];
	}
	return true;
}

/*
 * `mtu`: maximum size of packets. Does not answer errors and later fragments (RFC 1122, section
 * 3.2.2).
 */
eqp_cold int answer_too_big(struct eqp_context *ctx, struct eqp_job *job, __u32 mtu)
{
	struct eqp_cpu *cpu = (struct eqp_cpu *)job->cpu;
	const struct eqp_packet *packet = &job->packet;
	bool v4 = packet->family == 4;
	__u32 most = v4 ? EQP_QUOTED_MAX_IPV4 : EQP_QUOTED_MAX_IPV6;
	__u32 quoted = (packet->ip_bytes < most ? packet->ip_bytes : most) & ~3u;
	__u32 headers = EQP_ICMP_BYTES + (v4 ? EQP_IPV4_BYTES : EQP_IPV6_BYTES);

	if (packet->flags & (EQP_PACKET_ICMP_ERROR | EQP_PACKET_LATER_FRAGMENT) ||
	    !rate_admits(&cpu->too_big_tokens_at_ns, directory(job)->too_big_per_second))
		return EQP_DROP(EQP_DROP_TOO_BIG);
	if (!make_room(ctx, packet, quoted, headers))
		return EQP_DROP(EQP_DROP_HEADROOM);
	if (v4 ? !write_too_big_ipv4(ctx, packet, quoted, mtu) : !write_too_big_ipv6(ctx, packet, quoted, mtu))
		return EQP_DROP(EQP_DROP_HEADROOM);
	count_reason(job, EQP_DROP_TOO_BIG);
	count_reason(job, EQP_NOTE_TOO_BIG_SENT);
	count_backend_drop(job);
	return XDP_TX | EQP_ANSWER;
}

#endif
