/* SPDX-License-Identifier: (Apache-2.0 OR GPL-2.0-only) */
/*
 * tunnel: IP in IP (RFC 2003), IPv6 in IPv6 and mixed (RFC 2473, RFC 4213). GUE: variant 1, with
 * the IP packet directly after the UDP header (draft-ietf-intarea-gue-09, section 4); variant 0 if
 * it carries a second backend. The outer
 * source address contains bits of the flow, so that the backend's interface spreads flows over its
 * queues. The outer DSCP and ECN are those of the packet (RFC 2983, RFC 6040). The outer hop limit
 * is fixed, and the packet's does not change.
 */
#ifndef EQP_TUNNEL_H
#define EQP_TUNNEL_H

#include "checksum.h"
#include "direct.h"
#include "second_chance.h"
#include "too_big.h"

#define EQP_OUTER_TTL 64
#define EQP_GUE_PORTS_FIRST 49152 /* dynamic ports: RFC 6335, section 6 */
#define EQP_GUE_PORTS_MASK 0x3fff

/* Fields of a packet for the outer headers. */
struct eqp_outer {
	__u32 inner_bytes;
	__u32 udp_bytes; /* GUE: size of its headers; else 0 */
	struct eqp_others others;
	__u32 tag;       /* 802.1Q tag and ethertype, as in the frame */
	__u8 tos;
	__u8 protocol;
};

eqp_inline bool write_ipv4(const struct eqp_context *ctx, const struct eqp_job *job, const struct eqp_outer *outer)
{
	const struct eqp_directory *local = directory(job);
	__u32 *header = packet_at(ctx, job->packet.l3, EQP_IPV4_BYTES);
	__u16 bytes = EQP_IPV4_BYTES + outer->udp_bytes + outer->inner_bytes;
	__u64 sum;

	if (!header)
		return false;
	header[0] = 0x45 | (__u32)outer->tos << 8 | (__u32)eqp_htons(bytes) << 16;
	/* Do not fragment, so the header needs no identification (RFC 6864). */
	header[1] = (__u32)eqp_htons(0x4000) << 16;
	header[3] = local->tunnel_source4 | ((__u32)job->digest & local->tunnel_source4_mask);
	header[4] = job->backend->address[0];
	header[2] = EQP_OUTER_TTL | (__u32)outer->protocol << 8;
	sum = (__u64)header[0] + header[1] + header[2] + header[3] + header[4];
	header[2] |= (__u32)checksum_of(sum) << 16;
	return true;
}

eqp_inline bool write_ipv6(const struct eqp_context *ctx, const struct eqp_job *job, const struct eqp_outer *outer)
{
	const struct eqp_directory *local = directory(job);
	__u32 *header = packet_at(ctx, job->packet.l3, EQP_IPV6_BYTES);
	__u16 bytes = outer->udp_bytes + outer->inner_bytes;

	if (!header)
		return false;
	header[0] = eqp_htonl(0x60000000 | (__u32)outer->tos << 20);
	header[1] = eqp_htons(bytes) | (__u32)outer->protocol << 16 | (__u32)EQP_OUTER_TTL << 24;
	header[2] = local->tunnel_source6[0];
	header[3] = local->tunnel_source6[1];
	header[4] = local->tunnel_source6[2];
	header[5] = (__u32)job->digest;
	header[6] = job->backend->address[0];
	header[7] = job->backend->address[1];
	header[8] = job->backend->address[2];
	header[9] = job->backend->address[3];
	return true;
}

/*
 * No checksum, also over IPv6 (RFC 6935: for tunnels; the inner packet has its own, over its
 * addresses), because it would require reading the whole packet. Linux's receiver must permit it
 * (udp6zerocsumrx).
 */
eqp_inline bool write_gue(const struct eqp_context *ctx, const struct eqp_job *job, __u64 l4,
			  const struct eqp_outer *outer)
{
	__u16 *header = packet_at(ctx, l4, EQP_UDP_BYTES);

	if (!header)
		return false;
	header[0] = eqp_htons(EQP_GUE_PORTS_FIRST | (job->digest & EQP_GUE_PORTS_MASK));
	header[1] = directory(job)->gue_port;
	header[2] = eqp_htons(outer->udp_bytes + outer->inner_bytes);
	header[3] = 0;
	if (eqp_likely(!outer->others.first))
		return true;
	return write_others(ctx, l4 + EQP_UDP_BYTES, &outer->others,
			    job->packet.family == 4 ? IPPROTO_IPIP : IPPROTO_IPV6);
}

/* Writes every byte of the grown frame up to the packet. */
eqp_inline bool write_headers(const struct eqp_context *ctx, const struct eqp_job *job, const struct eqp_outer *outer)
{
	bool over_ipv4 = job->backend->family == 4;
	__be16 type = over_ipv4 ? eqp_htons(ETH_P_IP) : eqp_htons(ETH_P_IPV6);
	unsigned char *ethernet = packet_at(ctx, 0, ETH_HLEN + EQP_VLAN_BYTES);
	__u64 l3 = job->packet.l3;

	if (!ethernet)
		return false;
	set_macs(ethernet, job->backend);
	if (eqp_likely(l3 == ETH_HLEN)) {
		*(__be16 *)(ethernet + 12) = type;
	} else {
		*(__u32 *)(ethernet + 12) = outer->tag;
		*(__be16 *)(ethernet + 16) = type;
	}
	if (over_ipv4 ? !write_ipv4(ctx, job, outer) : !write_ipv6(ctx, job, outer))
		return false;
	l3 += over_ipv4 ? EQP_IPV4_BYTES : EQP_IPV6_BYTES;
	return !outer->udp_bytes || write_gue(ctx, job, l3, outer);
}

eqp_inline int forward_tunnel(struct eqp_context *ctx, struct eqp_job *job)
{
	const struct eqp_packet *packet = &job->packet;
	bool gue = job->service->forward == EQP_GUE;
	unsigned char *ip = packet_at(ctx, packet->l3, EQP_IPV4_BYTES);
	__u32 *tag = packet_at(ctx, ETH_HLEN - sizeof(__be16), sizeof(*tag));
	struct eqp_outer outer = {
		.inner_bytes = packet->ip_bytes,
		.udp_bytes = gue ? EQP_UDP_BYTES : 0,
	};
	bool over_ipv4 = job->backend->family == 4;
	__u32 grown = outer.udp_bytes + (over_ipv4 ? EQP_IPV4_BYTES : EQP_IPV6_BYTES), spare = 0;

	if (!ip || !tag)
		return EQP_DROP(EQP_DROP_HEADER_SHORT);
	outer.tag = *tag;
	/* The size that fits is the same for all packets of a VIP. */
	if (gue && eqp_unlikely(job->service->flags & EQP_SERVICE_SECOND_CHANCE))
		spare = gue_bytes(job->backend->family, EQP_GUE_HOPS_MAX);
	if (eqp_unlikely(packet->ip_bytes + grown + spare > job->backend->mtu))
		return answer_too_big(ctx, job, job->backend->mtu - grown - spare);
	if (eqp_unlikely(spare)) {
		find_others(job, &outer.others);
		if (outer.others.first) {
			spare = gue_bytes(job->backend->family, outer.others.second ? 2 : 1);
			outer.udp_bytes += spare;
			grown += spare;
		}
	}
	if (packet->family == 4) {
		outer.tos = ip[1];
		outer.protocol = IPPROTO_IPIP;
	} else {
		outer.tos = ip[0] << 4 | ip[1] >> 4;
		outer.protocol = IPPROTO_IPV6;
	}
	if (gue)
		outer.protocol = IPPROTO_UDP;
	if (grow_head(ctx, grown))
		return EQP_DROP(EQP_DROP_HEADROOM);
	if (!write_headers(ctx, job, &outer))
		return EQP_DROP(EQP_DROP_HEADROOM);
	return leave(ctx, job->backend->ifindex);
}

#endif
