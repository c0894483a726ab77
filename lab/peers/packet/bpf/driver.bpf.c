// SPDX-License-Identifier: (Apache-2.0 OR GPL-2.0-only)
/*
 * Runs a program under test on packets of flows drawn at random.
 *
 * BPF_PROG_TEST_RUN repeats with one buffer, and what a balancer does to a packet stays done. So each run gives the
 * packet its length, place and bytes again, writes the next flow's source into it, and calls the program under test by
 * a tail call. `nothing` as the program under test costs what all of this costs; the figures are net of it.
 *
 * With live frames (BPF_F_TEST_XDP_LIVE_FRAMES) `send` is what sends: it makes the packet and redirects it.
 */
#include <linux/bpf.h>
#include <linux/if_ether.h>
#include <linux/ip.h>
#include <linux/ipv6.h>

#include <bpf/bpf_endian.h>
#include <bpf/bpf_helpers.h>

#ifndef NULL
#define NULL ((void *)0)
#endif
#define FRAME_WORDS_MAX 12
#define V4_BYTES 64
#define V6_BYTES 88
#define DRAWS (1 << 21) /* a power of two */
#define TCP_FLAGS_AT 13

/* What is sent, and to whom. Userspace writes it between runs. */
struct traffic {
	__u64 frame[FRAME_WORDS_MAX]; /* headers and payload; what follows is written over them */
	__u64 source[2];              /* of no flow: its bits are zero; IPv4: the lower half of [1] */
	__u64 destination[2];         /* of the first VIP */
	__u64 random;                 /* state of the generator; never 0 */
	__u64 runs;
	__u32 ports; /* as they lie in the packet; the source is zero */
	__u32 flows;
	__u32 in_order; /* not at random: next, next + 1, ... */
	__u32 next;
	__u32 vip_mask; /* VIPs less one */
	__u32 ifindex;  /* send: where to */
	__u32 apart;    /* see arrived() */
	__u32 drawn;    /* flows come from draws[next], draws[next + 1], ... */
	__u32 strangers; /* IPv4: so many of 65536 packets have a source address and port at random... */
	__u32 stranger_flags; /* ... and these TCP flags */
};

struct traffic traffic;
/* Flows that userspace has drawn. A packet reads four bytes, in order. */
__u32 draws[DRAWS];

struct {
	__uint(type, BPF_MAP_TYPE_PROG_ARRAY);
	__uint(max_entries, 1);
	__type(key, __u32);
	__type(value, __u32);
} contender SEC(".maps");

/* xorshift */
static __always_inline __u64 random_word(void)
{
	__u64 x = traffic.random;

	x ^= x << 13;
	x ^= x >> 7;
	x ^= x << 17;
	traffic.random = x;
	return x;
}

static __always_inline __u32 next_flow(void)
{
	if (traffic.in_order)
		return traffic.next++;
	if (traffic.drawn)
		return draws[traffic.next++ & (DRAWS - 1)];
	return (random_word() >> 32) * traffic.flows >> 32;
}

/* 32 bits of source address and port, different for each flow: multiplication by an odd number is a bijection. */
static __always_inline __u32 scattered(__u32 flow)
{
	return flow * 0x9e3779b1;
}

/*
 * Keeps packets apart if that is asked for: an atomic operation waits until what was stored has left the store buffer,
 * and lets no load of this packet begin before the last packet's are done.
 */
static __always_inline void arrived(void)
{
	if (traffic.apart)
		__sync_fetch_and_add(&traffic.runs, 1);
}

/* Length and place as in the beginning. */
static __always_inline int reset(struct xdp_md *ctx, int bytes)
{
	long length = (void *)(long)ctx->data_end - (void *)(long)ctx->data;

	barrier_var(length); /* or clang subtracts the lower halves, which the verifier refuses of pointers */
	return length != bytes ? bpf_xdp_adjust_head(ctx, length - bytes) : 0;
}

/*
 * The frame, then the fields that programs load, each by a store of the field's own width: a packet from a network card
 * has been in memory for long, but this one is still in the store buffer, and a load that needs two of its entries waits.
 */
static __always_inline void *restore(struct xdp_md *ctx, int bytes)
{
	if (reset(ctx, bytes))
		return NULL;
	__u64 *words = (void *)(long)ctx->data;
	if ((void *)words + bytes > (void *)(long)ctx->data_end)
		return NULL;
#pragma unroll
	for (int at = 0; at < bytes / 8; at++)
		words[at] = traffic.frame[at];
	return words;
}

/* Turns some packets into those of strangers: each of a flow that has not been seen. */
static __always_inline void estrange(struct iphdr *ip)
{
	__u64 x = random_word();

	if ((x & 0xffff) >= traffic.strangers)
		return;
	ip->saddr = x >> 32;
	*(__u32 *)(ip + 1) = traffic.ports | (x >> 16 & 0xffff);
	((__u8 *)(ip + 1))[TCP_FLAGS_AT] = traffic.stranger_flags;
}

static __always_inline int restore4(struct xdp_md *ctx)
{
	void *frame = restore(ctx, V4_BYTES);

	if (!frame)
		return -1;
	struct iphdr *ip = frame + sizeof(struct ethhdr);
	__u32 flow = next_flow(), source = scattered(flow);
	ip->saddr = (__u32)traffic.source[1] | (source & 0xffff0000);
	ip->daddr = (__u32)traffic.destination[1] | bpf_htonl(flow & traffic.vip_mask);
	*(__u32 *)(ip + 1) = traffic.ports | (source & 0xffff);
	if (traffic.strangers)
		estrange(ip);
	arrived();
	return 0;
}

static __always_inline int restore6(struct xdp_md *ctx)
{
	void *frame = restore(ctx, V6_BYTES);

	if (!frame)
		return -1;
	struct ipv6hdr *ip = frame + sizeof(struct ethhdr);
	__u64 *addresses = (void *)&ip->saddr;
	__u32 flow = next_flow(), source = scattered(flow);
	addresses[0] = traffic.source[0];
	addresses[1] = traffic.source[1] | (__u64)(source >> 16) << 32;
	addresses[2] = traffic.destination[0];
	addresses[3] = traffic.destination[1] | (__u64)bpf_htonl(flow & traffic.vip_mask) << 32;
	*(__u32 *)(ip + 1) = traffic.ports | (source & 0xffff);
	arrived();
	return 0;
}

SEC("xdp")
int drive4(struct xdp_md *ctx)
{
	if (restore4(ctx))
		return XDP_ABORTED;
	bpf_tail_call(ctx, &contender, 0);
	return XDP_ABORTED;
}

SEC("xdp")
int drive6(struct xdp_md *ctx)
{
	if (restore6(ctx))
		return XDP_ABORTED;
	bpf_tail_call(ctx, &contender, 0);
	return XDP_ABORTED;
}

/* Puts packets on the wire. */
SEC("xdp")
int send4(struct xdp_md *ctx)
{
	if (restore4(ctx))
		return XDP_ABORTED;
	return bpf_redirect(traffic.ifindex, 0);
}

/* The program under test that does nothing. */
SEC("xdp")
int nothing(struct xdp_md *ctx)
{
	return XDP_TX;
}

char _license[] SEC("license") = "Dual BSD/GPL";
