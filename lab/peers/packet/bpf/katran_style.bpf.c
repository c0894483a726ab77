// SPDX-License-Identifier: (Apache-2.0 OR GPL-2.0-only)
/*
 * A balancer as Katran makes one, written for this comparison: VIPs in a BPF hash map, an LRU of flows for each CPU,
 * Maglev rings of 65537 entries in an array, reals in an array, counters in per-CPU arrays, IPIP.
 *
 * Steps, maps and records are those of Katran's balancer (github.com/facebookincubator/katran, balancer.bpf.c, as of
 * 2026-08) with its default build flags, in their order: a packet here costs about what it costs there. What such a
 * packet does not meet is left out: ICMP, QUIC's connection ids, source routing, decapsulation, migration of UDP flows.
 * `katran_style_direct` rewrites the MAC address instead, which Katran does not do, to compare that as well.
 */
#include <linux/bpf.h>
#include <linux/if_ether.h>
#include <linux/in.h>

#include <bpf/bpf_endian.h>
#include <bpf/bpf_helpers.h>

#include "katran_style/encapsulate.h"
#include "katran_style/layout.h"
#include "katran_style/maps.h"
#include "katran_style/parse.h"
#include "katran_style/pick.h"

#define FRAME_BYTES_MAX 1514

static __always_inline struct vip *vip_of(struct packet *packet)
{
	struct vip_key key = {};

	__builtin_memcpy(key.address, packet->flow.destination, 16);
	key.port = packet->flow.ports[1];
	key.protocol = packet->flow.protocol;
	struct vip *vip = bpf_map_lookup_elem(&vips, &key);
	if (vip)
		return vip;
	key.port = 0; /* a VIP of all ports */
	vip = bpf_map_lookup_elem(&vips, &key);
	if (vip)
		packet->flow.ports[1] = 0;
	return vip;
}

static __always_inline int rewrite_mac(struct xdp_md *ctx, const struct real *real)
{
	struct ethhdr *ethernet = (void *)(long)ctx->data;

	if ((void *)(ethernet + 1) > (void *)(long)ctx->data_end)
		return -1;
	__builtin_memcpy(ethernet->h_source, ethernet->h_dest, ETH_ALEN);
	__builtin_memcpy(ethernet->h_dest, real->mac, ETH_ALEN);
	return 0;
}

static __always_inline int count_real(__u32 real, __u16 bytes)
{
	struct pair *pair = bpf_map_lookup_elem(&reals_stats, &real);

	if (!pair)
		return -1;
	pair->first += 1;
	pair->second += bytes;
	return 0;
}

static __always_inline int forward(struct xdp_md *ctx, const struct packet *packet, const struct real *real,
				   __u16 bytes, _Bool v6, _Bool direct)
{
	if (direct)
		return rewrite_mac(ctx, real);
	__u32 first = 0;
	__u64 *next_hop = bpf_map_lookup_elem(&control, &first);
	if (!next_hop)
		return -1;
	if (real->flags & REAL_IPV6)
		return encapsulate6(ctx, packet, real, next_hop, bytes, v6);
	return encapsulate4(ctx, packet, real, next_hop, bytes);
}

static __always_inline int process(struct xdp_md *ctx, __u64 frame_bytes, _Bool v6, _Bool direct)
{
	void *data = (void *)(long)ctx->data, *end = (void *)(long)ctx->data_end;
	struct packet packet = {};
	__u16 bytes = 0;

	int action = parse_ip(&packet, &bytes, data, end, v6);
	if (action != GO_ON)
		return action;
	action = parse_transport(&packet, data, end, v6);
	if (action != GO_ON)
		return action;
	__be16 source_port = packet.flow.ports[0];
	struct vip *vip = vip_of(&packet);
	if (!vip)
		return XDP_PASS;
	if (frame_bytes > FRAME_BYTES_MAX)
		return XDP_DROP;
	if (add(ROW_LRU, 1, 0))
		return XDP_DROP;
	if (vip->flags & VIP_HASH_WITHOUT_SOURCE_PORT)
		packet.flow.ports[0] = 0;
	struct real *real = pick(&packet, vip, v6);
	if (!real) {
		add(ROW_FAILED, 0, 1);
		return XDP_DROP;
	}
	if (add(vip->number, 1, bytes) || count_real(packet.real, bytes))
		return XDP_DROP;
	packet.flow.ports[0] = source_port;
	if (forward(ctx, &packet, real, bytes, v6, direct)) {
		add(ROW_FAILED, 1, 0);
		return XDP_DROP;
	}
	return XDP_TX;
}

static __always_inline int balance(struct xdp_md *ctx, _Bool direct)
{
	void *data = (void *)(long)ctx->data, *end = (void *)(long)ctx->data_end;
	struct ethhdr *ethernet = data;
	__u64 bytes = end - data;
	int action = XDP_PASS;

	if ((void *)(ethernet + 1) > end || add(ROW_TOTAL, 1, bytes))
		return XDP_DROP;
	if (ethernet->h_proto == bpf_htons(ETH_P_IP))
		action = process(ctx, bytes, 0, direct);
	else if (ethernet->h_proto == bpf_htons(ETH_P_IPV6))
		action = process(ctx, bytes, 1, direct);
	__u32 row = action == XDP_TX ? ROW_TX : action == XDP_DROP ? ROW_DROP : ROW_PASS;
	return add(row, 1, bytes) ? XDP_DROP : action;
}

SEC("xdp")
int katran_style(struct xdp_md *ctx)
{
	return balance(ctx, 0);
}

SEC("xdp")
int katran_style_direct(struct xdp_md *ctx)
{
	return balance(ctx, 1);
}

char _license[] SEC("license") = "Dual BSD/GPL";
