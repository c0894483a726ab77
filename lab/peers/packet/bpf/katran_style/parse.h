/* SPDX-License-Identifier: (Apache-2.0 OR GPL-2.0-only) */
/* A packet's flow. Packets with IP options, fragments and ICMP are outside of this comparison: dropped or passed. */
#ifndef KATRAN_STYLE_PARSE_H
#define KATRAN_STYLE_PARSE_H

#include <linux/bpf.h>
#include <linux/if_ether.h>
#include <linux/in.h>
#include <linux/ip.h>
#include <linux/ipv6.h>
#include <linux/tcp.h>
#include <linux/udp.h>

#include <bpf/bpf_endian.h>

#include "layout.h"

#define GO_ON (-1)
#define FRAGMENT_BITS 0x3fff

/* Gives an XDP action or GO_ON. `bytes`: of the IP packet. */
static __always_inline int parse_ip(struct packet *packet, __u16 *bytes, void *data, void *end, _Bool v6)
{
	if (v6) {
		struct ipv6hdr *ip = data + sizeof(struct ethhdr);
		if ((void *)(ip + 1) > end)
			return XDP_DROP;
		packet->flow.protocol = ip->nexthdr;
		packet->tos = ip->priority << 4 | ip->flow_lbl[0] >> 4;
		if (ip->nexthdr == IPPROTO_FRAGMENT)
			return XDP_DROP;
		*bytes = bpf_ntohs(ip->payload_len) + sizeof(*ip);
		__builtin_memcpy(packet->flow.source, &ip->saddr, 16);
		__builtin_memcpy(packet->flow.destination, &ip->daddr, 16);
		return GO_ON;
	}
	struct iphdr *ip = data + sizeof(struct ethhdr);
	if ((void *)(ip + 1) > end || ip->ihl != 5)
		return XDP_DROP;
	packet->flow.protocol = ip->protocol;
	packet->tos = ip->tos;
	*bytes = bpf_ntohs(ip->tot_len);
	if (ip->frag_off & bpf_htons(FRAGMENT_BITS))
		return XDP_DROP;
	packet->flow.source[0] = ip->saddr;
	packet->flow.destination[0] = ip->daddr;
	return GO_ON;
}

static __always_inline int parse_transport(struct packet *packet, void *data, void *end, _Bool v6)
{
	void *at = data + sizeof(struct ethhdr) + (v6 ? sizeof(struct ipv6hdr) : sizeof(struct iphdr));

	if (packet->flow.protocol == IPPROTO_TCP) {
		struct tcphdr *tcp = at;
		if ((void *)(tcp + 1) > end)
			return XDP_DROP;
		packet->flags = (tcp->syn ? PACKET_SYN : 0) | (tcp->rst ? PACKET_RST : 0);
		packet->flow.ports[0] = tcp->source;
		packet->flow.ports[1] = tcp->dest;
		return GO_ON;
	}
	if (packet->flow.protocol == IPPROTO_UDP) {
		struct udphdr *udp = at;
		if ((void *)(udp + 1) > end)
			return XDP_DROP;
		packet->flow.ports[0] = udp->source;
		packet->flow.ports[1] = udp->dest;
		return GO_ON;
	}
	return XDP_PASS;
}

#endif
