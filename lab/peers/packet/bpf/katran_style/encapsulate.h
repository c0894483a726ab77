/* SPDX-License-Identifier: (Apache-2.0 OR GPL-2.0-only) */
/* IPIP and IP6IP6: room in front, new Ethernet and IP headers, an outer source that differs by flow. */
#ifndef KATRAN_STYLE_ENCAPSULATE_H
#define KATRAN_STYLE_ENCAPSULATE_H

#include <linux/bpf.h>
#include <linux/if_ether.h>
#include <linux/in.h>
#include <linux/ip.h>
#include <linux/ipv6.h>

#include <bpf/bpf_endian.h>
#include <bpf/bpf_helpers.h>

#include "layout.h"

#define OUTER_TTL 64
#define OUTER_SOURCE4 bpf_htonl(0xac100000) /* 172.16.0.0/16 */
#define OUTER_SOURCE6 bpf_htonl(0x01000000) /* 100::/64 */

static __always_inline __u16 header_checksum(const struct iphdr *ip)
{
	const __u16 *words = (const void *)ip;
	__u64 sum = 0;

#pragma unroll
	for (int at = 0; at < (int)sizeof(*ip) / 2; at++)
		sum += words[at];
	sum = (sum & 0xffff) + (sum >> 16);
	sum = (sum & 0xffff) + (sum >> 16);
	return ~sum;
}

static __always_inline void outer_ethernet(struct ethhdr *outer, const struct ethhdr *inner, const __u64 *next_hop)
{
	__builtin_memcpy(outer->h_dest, next_hop, ETH_ALEN);
	__builtin_memcpy(outer->h_source, inner->h_dest, ETH_ALEN);
}

static __always_inline int encapsulate4(struct xdp_md *ctx, const struct packet *packet, const struct real *real,
					const __u64 *next_hop, __u16 bytes)
{
	if (bpf_xdp_adjust_head(ctx, -(int)sizeof(struct iphdr)))
		return -1;
	void *data = (void *)(long)ctx->data, *end = (void *)(long)ctx->data_end;
	struct ethhdr *outer = data, *inner = data + sizeof(struct iphdr);
	struct iphdr *ip = data + sizeof(*outer);
	if ((void *)(inner + 1) > end || (void *)(ip + 1) > end)
		return -1;
	outer_ethernet(outer, inner, next_hop);
	outer->h_proto = bpf_htons(ETH_P_IP);
	ip->version = 4;
	ip->ihl = 5;
	ip->tos = packet->tos;
	ip->tot_len = bpf_htons(bytes + sizeof(*ip));
	ip->id = 0;
	ip->frag_off = 0;
	ip->ttl = OUTER_TTL;
	ip->protocol = IPPROTO_IPIP;
	ip->check = 0;
	ip->saddr = OUTER_SOURCE4 | ((__u32)bpf_htons(packet->flow.ports[0]) << 16 ^ (packet->flow.source[0] & 0xffff0000));
	ip->daddr = real->address[0];
	ip->check = header_checksum(ip);
	return 0;
}

static __always_inline int encapsulate6(struct xdp_md *ctx, const struct packet *packet, const struct real *real,
					const __u64 *next_hop, __u16 bytes, _Bool v6)
{
	if (bpf_xdp_adjust_head(ctx, -(int)sizeof(struct ipv6hdr)))
		return -1;
	void *data = (void *)(long)ctx->data, *end = (void *)(long)ctx->data_end;
	struct ethhdr *outer = data, *inner = data + sizeof(struct ipv6hdr);
	struct ipv6hdr *ip = data + sizeof(*outer);
	if ((void *)(inner + 1) > end || (void *)(ip + 1) > end)
		return -1;
	outer_ethernet(outer, inner, next_hop);
	outer->h_proto = bpf_htons(ETH_P_IPV6);
	ip->version = 6;
	ip->priority = packet->tos >> 4;
	ip->flow_lbl[0] = packet->tos << 4;
	ip->flow_lbl[1] = 0;
	ip->flow_lbl[2] = 0;
	ip->payload_len = bpf_htons(bytes);
	ip->nexthdr = v6 ? IPPROTO_IPV6 : IPPROTO_IPIP;
	ip->hop_limit = OUTER_TTL;
	ip->saddr.s6_addr32[0] = OUTER_SOURCE6;
	ip->saddr.s6_addr32[1] = 0;
	ip->saddr.s6_addr32[2] = 0;
	ip->saddr.s6_addr32[3] = packet->flow.source[v6 ? 3 : 0] ^ packet->flow.ports[0];
	__builtin_memcpy(&ip->daddr, real->address, 16);
	return 0;
}

#endif
