/* SPDX-License-Identifier: (Apache-2.0 OR GPL-2.0-only) */
/* The real of a packet: the CPU's LRU of flows, then the VIP's ring, whose answer the LRU records. */
#ifndef KATRAN_STYLE_PICK_H
#define KATRAN_STYLE_PICK_H

#include <linux/bpf.h>
#include <linux/in.h>

#include <bpf/bpf_helpers.h>

#include "jhash.h"
#include "layout.h"
#include "maps.h"

#define UDP_TIMEOUT_NS 30000000000ull
#define SECOND_NS 1000000000ull

/* This CPU's LRU. */
static __always_inline void *lru_of_cpu(void)
{
	__u32 cpu = bpf_get_smp_processor_id();
	void *lru = bpf_map_lookup_elem(&flows, &cpu);

	if (!lru) {
		add(ROW_NO_LRU, 1, 0);
		lru = &flows_of_other_cpus;
	}
	return lru;
}

static __always_inline struct real *recorded(struct packet *packet, void *lru)
{
	struct flow_real *flow = bpf_map_lookup_elem(lru, &packet->flow);

	if (!flow)
		return NULL;
	if (packet->flow.protocol == IPPROTO_UDP) {
		__u64 now_ns = bpf_ktime_get_ns();
		if (now_ns - flow->seen_ns > UDP_TIMEOUT_NS)
			return NULL;
		flow->seen_ns = now_ns;
	}
	packet->real = flow->real;
	return bpf_map_lookup_elem(&reals, &packet->real);
}

/* More new flows on this CPU than are recorded in a second. */
static __always_inline _Bool flooded(__u64 *now_ns)
{
	__u32 row = ROW_NEW;
	struct pair *pair = bpf_map_lookup_elem(&stats, &row);

	if (!pair)
		return 1;
	*now_ns = bpf_ktime_get_ns();
	if (*now_ns - pair->second > SECOND_NS) {
		pair->first = 1;
		pair->second = *now_ns;
		return 0;
	}
	return ++pair->first > new_flows_per_second_max;
}

static __always_inline struct real *by_ring(struct packet *packet, const struct vip *vip, void *lru, _Bool v6)
{
	__u64 now_ns = 0;
	_Bool flood = flooded(&now_ns);
	__u32 source = packet->flow.source[0], ports;

	__builtin_memcpy(&ports, packet->flow.ports, 4);
	if (v6)
		source = jhash_16_bytes(packet->flow.source, VIPS_MAX);
	__u32 hash = jhash_2_words(source, ports, VIPS_MAX * RING_ENTRIES);
	__u32 at = vip->number * RING_ENTRIES + hash % RING_ENTRIES;
	__u32 *real = bpf_map_lookup_elem(&rings, &at);
	if (!real || !*real)
		return NULL;
	packet->real = *real;
	struct real *found = bpf_map_lookup_elem(&reals, &packet->real);
	if (found && !flood && !(vip->flags & VIP_WITHOUT_LRU) && !(packet->flags & PACKET_RST)) {
		struct flow_real flow = { .real = packet->real };
		if (packet->flow.protocol == IPPROTO_UDP)
			flow.seen_ns = now_ns;
		bpf_map_update_elem(lru, &packet->flow, &flow, BPF_ANY);
	}
	return found;
}

/* NULL: there is none. */
static __always_inline struct real *pick(struct packet *packet, const struct vip *vip, _Bool v6)
{
	void *lru = lru_of_cpu();
	struct real *real = NULL;

	if (!(packet->flags & PACKET_SYN) && !(vip->flags & VIP_WITHOUT_LRU))
		real = recorded(packet, lru);
	if (real)
		return real;
	if (packet->flow.protocol == IPPROTO_TCP) {
		_Bool opening = packet->flags & PACKET_SYN;
		add(ROW_MISSES, opening, !opening);
	}
	add(ROW_LRU, 0, 1);
	return by_ring(packet, vip, lru, v6);
}

#endif
