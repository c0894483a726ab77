/* SPDX-License-Identifier: (Apache-2.0 OR GPL-2.0-only) */
/*
 * The kernel's side of compat.h in a process: memory by pointers, a packet in a buffer with room
 * before and after it, a clock that stands still, and routes from a table.
 */
#ifndef EQP_HOST_H
#define EQP_HOST_H

#include <stdbool.h>
#include <string.h>

#include "abi.h"

#define SEC(name)

#define EQP_HOST_FRAGMENTS 1024
#define EQP_HOST_ROUTES 64
#define EQP_HOST_BACKENDS 64

struct eqp_context {
	unsigned char *room; /* start of the headroom */
	unsigned char *room_end;
	unsigned char *data;
	unsigned char *data_end;
	__u32 ingress_ifindex;
};

/* Result of the kernel's routing for a destination. */
struct eqp_host_route {
	__be32 destination[4];
	__u32 family; /* AF_* */
	__u32 ifindex;
	int result; /* BPF_FIB_LKUP_RET_* */
	__u8 destination_mac[6];
	__u8 source_mac[6];
};

/* A backend to which packets may be passed on. */
struct eqp_host_backend {
	struct eqp_decapsulation_address address;
	struct eqp_decapsulation_backend way;
};

struct eqp_host {
	unsigned char *tables;
	unsigned char *state;
	unsigned char *cpus;
	unsigned char *ports;
	unsigned char *translated; /* NULL: none */
	struct eqp_limits constants;
	__u32 cpu;
	__u32 redirected_to; /* 0: not redirected */
	__u64 clock_ns;
	__u64 random;
	struct eqp_capture capture;
	struct eqp_captured_frame captured_frame;
	__u32 fragments_written;
	__u32 routes;
	struct eqp_decapsulation decapsulation_constants;
	struct eqp_decapsulation_mac decapsulation_mac;
	struct eqp_counter decapsulated[EQP_DECAPSULATED_COUNTERS];
	bool has_socket; /* for the flow of the packet that is decapsulated */
	__u32 backends;
	struct eqp_host_backend backend[EQP_HOST_BACKENDS];
	struct eqp_fragment_key fragment_keys[EQP_HOST_FRAGMENTS];
	struct eqp_fragment fragments[EQP_HOST_FRAGMENTS];
	struct eqp_host_route route[EQP_HOST_ROUTES];
};

extern _Thread_local struct eqp_host *eqp_host;

#define limits (eqp_host->constants)
#define decapsulation (eqp_host->decapsulation_constants)

static inline unsigned char *packet_begin(const struct eqp_context *ctx)
{
	return ctx->data;
}

static inline unsigned char *packet_end(const struct eqp_context *ctx)
{
	return ctx->data_end;
}

static inline int grow_head(struct eqp_context *ctx, int bytes)
{
	if (ctx->data - ctx->room < bytes || ctx->data - bytes > ctx->data_end - 14)
		return -22;
	ctx->data -= bytes;
	return 0;
}

static inline int cut_tail(struct eqp_context *ctx, int bytes)
{
	if (ctx->data_end - bytes < ctx->data + 14)
		return -22;
	ctx->data_end -= bytes;
	return 0;
}

static inline int leave_by(__u32 ifindex)
{
	eqp_host->redirected_to = ifindex;
	return XDP_REDIRECT;
}

static inline __u64 clock_ns(void)
{
	return eqp_host->clock_ns;
}

static inline __u64 clock_coarse_ns(void)
{
	return eqp_host->clock_ns;
}

/* splitmix64 */
static inline __u32 random_32(void)
{
	__u64 x = eqp_host->random += 0x9e3779b97f4a7c15;

	x = (x ^ x >> 30) * 0xbf58476d1ce4e5b9;
	x = (x ^ x >> 27) * 0x94d049bb133111eb;
	return (x ^ x >> 31) >> 32;
}

static inline int copy_frame(struct eqp_context *ctx, void *to, __u32 bytes)
{
	if (ctx->data_end - ctx->data < bytes)
		return -22;
	memcpy(to, ctx->data, bytes);
	return 0;
}

/* Only tests with the kernel's program capture. */
static inline struct eqp_capture *the_capture(void)
{
	return &eqp_host->capture;
}

static inline struct eqp_captured_frame *own_captured_frame(void)
{
	return &eqp_host->captured_frame;
}

static inline bool tell_captured(void *record, __u32 bytes)
{
	return false;
}

static inline void repeat(__u32 times, long (*step)(__u32, void *), void *argument)
{
	for (__u32 i = 0; i < times && !step(i, argument); i++)
		;
}

static inline void store_release(__u32 *word, __u32 value)
{
	__atomic_store_n(word, value, __ATOMIC_RELEASE);
}

static inline unsigned char *tables_memory(void)
{
	return eqp_host->tables;
}

static inline unsigned char *state_memory(void)
{
	return eqp_host->state;
}

static inline unsigned char *ports_memory(void)
{
	return eqp_host->ports;
}

static inline unsigned char *translated_memory(void)
{
	return eqp_host->translated;
}

static inline unsigned char *cpu_memory(void)
{
	if (eqp_host->cpu >= limits.cpus_max)
		return NULL;
	return eqp_host->cpus + (size_t)eqp_host->cpu * limits.cpu_bytes;
}

static inline struct eqp_fragment *fragment_find(const struct eqp_fragment_key *key)
{
	for (int i = 0; i < EQP_HOST_FRAGMENTS; i++)
		if (!memcmp(&eqp_host->fragment_keys[i], key, sizeof(*key)))
			return &eqp_host->fragments[i];
	return NULL;
}

/* Replaces the oldest entry if the table is full. */
static inline void fragment_put(const struct eqp_fragment_key *key, const struct eqp_fragment *fragment)
{
	struct eqp_fragment *found = fragment_find(key);

	if (!found) {
		__u32 place = eqp_host->fragments_written++ % EQP_HOST_FRAGMENTS;

		eqp_host->fragment_keys[place] = *key;
		found = &eqp_host->fragments[place];
	}
	*found = *fragment;
}

static inline struct eqp_counter *decapsulated_counter(__u32 which)
{
	return &eqp_host->decapsulated[which];
}

/* The kernel's program and its tests cover the list of addresses. */
static inline bool address_known(const struct eqp_decapsulation_address *address)
{
	return address->family != 0;
}

static inline bool mac_known(const struct eqp_decapsulation_mac *mac)
{
	return !memcmp(mac, &eqp_host->decapsulation_mac, sizeof(*mac));
}

static inline struct eqp_decapsulation_backend *backend_find(const struct eqp_decapsulation_address *address)
{
	for (__u32 i = 0; i < eqp_host->backends; i++)
		if (!memcmp(&eqp_host->backend[i].address, address, sizeof(*address)))
			return &eqp_host->backend[i].way;
	return NULL;
}

static inline int route_find(struct eqp_context *ctx, struct bpf_fib_lookup *fib)
{
	for (__u32 i = 0; i < eqp_host->routes; i++) {
		const struct eqp_host_route *route = &eqp_host->route[i];
		size_t bytes = fib->family == 2 ? 4 : 16;

		if (route->family != fib->family || memcmp(route->destination, fib->ipv6_dst, bytes))
			continue;
		fib->ifindex = route->ifindex;
		memcpy(fib->dmac, route->destination_mac, sizeof(fib->dmac));
		memcpy(fib->smac, route->source_mac, sizeof(fib->smac));
		return route->result;
	}
	return BPF_FIB_LKUP_RET_NOT_FWDED;
}

#endif
