/* SPDX-License-Identifier: (Apache-2.0 OR GPL-2.0-only) */
/* The maps, of the kinds that Katran uses. Userspace sets the LRU's size, and may make the rings fewer, before loading. */
#ifndef KATRAN_STYLE_MAPS_H
#define KATRAN_STYLE_MAPS_H

#include <linux/bpf.h>

#include <bpf/bpf_helpers.h>

#include "layout.h"

struct {
	__uint(type, BPF_MAP_TYPE_HASH);
	__uint(max_entries, VIPS_MAX);
	__type(key, struct vip_key);
	__type(value, struct vip);
} vips SEC(".maps");

/* An LRU of flows for each CPU that forwards. */
struct {
	__uint(type, BPF_MAP_TYPE_ARRAY_OF_MAPS);
	__uint(max_entries, CPUS_MAX);
	__type(key, __u32);
	__type(value, __u32);
	__array(
		values, struct {
			__uint(type, BPF_MAP_TYPE_LRU_HASH);
			__uint(max_entries, 1000);
			/* Sizes, since clang leaves types out that only an inner map's declaration names. */
			__uint(key_size, sizeof(struct flow_key));
			__uint(value_size, sizeof(struct flow_real));
		});
} flows SEC(".maps");

/* For a CPU that has none. */
struct {
	__uint(type, BPF_MAP_TYPE_LRU_HASH);
	__uint(max_entries, 1000);
	__type(key, struct flow_key);
	__type(value, struct flow_real);
} flows_of_other_cpus SEC(".maps");

struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(max_entries, VIPS_MAX *RING_ENTRIES);
	__type(key, __u32);
	__type(value, __u32);
} rings SEC(".maps");

/* Real 0 is none. */
struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(max_entries, REALS_MAX);
	__type(key, __u32);
	__type(value, struct real);
} reals SEC(".maps");

/* [0]: the next hop's MAC address */
struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(max_entries, 16);
	__type(key, __u32);
	__type(value, __u64);
} control SEC(".maps");

/* Packets and bytes by VIP, then the rows of enum global_row. */
struct {
	__uint(type, BPF_MAP_TYPE_PERCPU_ARRAY);
	__uint(max_entries, VIPS_MAX * 2);
	__type(key, __u32);
	__type(value, struct pair);
} stats SEC(".maps");

struct {
	__uint(type, BPF_MAP_TYPE_PERCPU_ARRAY);
	__uint(max_entries, REALS_MAX);
	__type(key, __u32);
	__type(value, struct pair);
} reals_stats SEC(".maps");

/* Above it new flows of a CPU are not recorded. Katran's default; userspace raises it while it fills the LRU. */
__u32 new_flows_per_second_max = 125000;

/* Adds to a row; without the row the packet cannot be counted. */
static __always_inline int add(__u32 row, __u64 first, __u64 second)
{
	struct pair *pair = bpf_map_lookup_elem(&stats, &row);

	if (!pair)
		return -1;
	pair->first += first;
	pair->second += second;
	return 0;
}

#endif
