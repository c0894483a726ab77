// SPDX-License-Identifier: (Apache-2.0 OR GPL-2.0-only)
/*
 * What a backend needs for the forwarding methods tunnel and gue where its kernel has no tunnel device: takes the outer
 * header off and passes the packet on, to the address that the backend has on its loopback.
 *
 *   outer IPv4 or IPv6 to an address in `addresses`, not a fragment, that carries
 *     IPv4 (protocol 4) or IPv6 (41): RFC 2003, RFC 2473, RFC 4213
 *     UDP to options.gue_port, in it GUE: variant 1 (the packet itself) or variant 0 without or with optional fields
 *                             (draft-ietf-intarea-gue-09, sections 3 and 4)
 *   everything else   XDP_PASS, untouched
 *
 * The outer UDP checksum is not looked at: it protects nothing that the inner one does not (RFC 6935, section 5, and
 * RFC 6936). Congestion marks go from the outer to the inner header, RFC 6040, section 4.2.
 */
#include <linux/bpf.h>
#include <linux/if_ether.h>
#include <linux/in.h>
#include <stdbool.h>

#include <bpf/bpf_helpers.h>

#include "decap.h"

#define swap16(x) ((__be16)__builtin_bswap16((__u16)(x)))

#define IPV4_BYTES 20
#define IPV6_BYTES 40
#define UDP_BYTES 8
#define GUE_BYTES 4
#define HEADERS_MAX 0x3ff

const volatile struct eqp_decap_options options = {};

struct {
	__uint(type, BPF_MAP_TYPE_HASH);
	__uint(max_entries, EQP_DECAP_ADDRESSES_MAX);
	__type(key, struct eqp_decap_address);
	__type(value, __u32);
} addresses SEC(".maps");

struct {
	__uint(type, BPF_MAP_TYPE_PERCPU_ARRAY);
	__uint(max_entries, EQP_DECAP_COUNTERS);
	__type(key, __u32);
	__type(value, struct eqp_decap_counter);
} counters SEC(".maps");

struct job {
	struct xdp_md *ctx;
	__u32 l2;    /* bytes before the outer header */
	__u32 inner; /* offset of the inner header */
	__u32 bytes; /* of the frame */
	__u8 outer_ecn;
	__u8 inner_protocol; /* IPPROTO_IPIP, IPPROTO_IPV6 */
	__u8 kind;           /* enum eqp_decap_counters */
};

static __always_inline unsigned char *at(const struct xdp_md *ctx, __u32 offset, __u32 bytes)
{
	unsigned char *begin = (unsigned char *)(long)ctx->data, *found;

	__asm__ volatile("" : "+r"(offset));
	if (offset > HEADERS_MAX)
		return NULL;
	found = begin + offset;
	return found + bytes > (unsigned char *)(long)ctx->data_end ? NULL : found;
}

static __always_inline void count(const struct job *job, __u32 which)
{
	struct eqp_decap_counter *counter = bpf_map_lookup_elem(&counters, &which);

	if (!counter)
		return;
	counter->packets++;
	counter->bytes += job->bytes;
}

static __always_inline bool accepted(const unsigned char *address, __u32 words, __u32 family)
{
	struct eqp_decap_address key = { .family = family };

	for (__u32 i = 0; i < words; i++)
		key.address[i] = ((const __be32 *)address)[i];
	return bpf_map_lookup_elem(&addresses, &key) != NULL;
}

static __always_inline bool inner_is_ip(__u8 protocol)
{
	return protocol == IPPROTO_IPIP || protocol == IPPROTO_IPV6;
}

/* What a UDP datagram carries, if it is GUE. */
static __always_inline bool open_gue(struct job *job, __u32 l4)
{
	const unsigned char *udp = at(job->ctx, l4, UDP_BYTES + GUE_BYTES), *gue;

	if (!udp || *(__be16 *)(udp + 2) != options.gue_port)
		return false;
	gue = udp + UDP_BYTES;
	job->inner = l4 + UDP_BYTES;
	if (gue[0] >> 6 == 1) {
		job->inner_protocol = gue[0] >> 4 == 4 ? IPPROTO_IPIP : IPPROTO_IPV6;
	} else if (gue[0] >> 5 == 0) { /* variant 0, not a control message */
		job->inner_protocol = gue[1];
		job->inner += GUE_BYTES + (gue[0] & 0x1f) * 4;
	} else {
		return false;
	}
	return inner_is_ip(job->inner_protocol);
}

static __always_inline bool open_carried(struct job *job, __u8 protocol, __u32 l4, __u8 kind)
{
	if (inner_is_ip(protocol)) {
		job->inner_protocol = protocol;
		job->inner = l4;
		job->kind = kind + (protocol == IPPROTO_IPV6);
		return true;
	}
	job->kind = EQP_DECAP_GUE;
	return protocol == IPPROTO_UDP && open_gue(job, l4);
}

static __always_inline bool open_ipv4(struct job *job)
{
	const unsigned char *ip = at(job->ctx, job->l2, IPV4_BYTES);
	__u32 header_bytes;

	if (!ip || ip[0] >> 4 != 4 || *(__be16 *)(ip + 6) & swap16(0x3fff))
		return false;
	header_bytes = (ip[0] & 0xf) * 4;
	if (header_bytes < IPV4_BYTES || !accepted(ip + 16, 1, 4))
		return false;
	job->outer_ecn = ip[1] & 3;
	return open_carried(job, ip[9], job->l2 + header_bytes, EQP_DECAP_4_IN_4);
}

static __always_inline bool open_ipv6(struct job *job)
{
	const unsigned char *ip = at(job->ctx, job->l2, IPV6_BYTES);

	if (!ip || ip[0] >> 4 != 6 || !accepted(ip + 24, 4, 6))
		return false;
	job->outer_ecn = (ip[1] >> 4) & 3;
	return open_carried(job, ip[6], job->l2 + IPV6_BYTES, EQP_DECAP_4_IN_6);
}

/* One's-complement addition of a changed 16-bit word: RFC 1624, equation 3. */
static __always_inline void update_checksum(unsigned char *ip, __u16 before, __u16 after)
{
	__u32 sum = (__u16)~*(__u16 *)(ip + 10) + (__u32)(__u16)~before + after;

	sum = (sum & 0xffff) + (sum >> 16);
	*(__u16 *)(ip + 10) = ~((sum & 0xffff) + (sum >> 16));
}

/* The inner header is whole; takes over a mark of congestion. false: the packet must be dropped. */
static __always_inline bool mark_ipv4(struct job *job)
{
	unsigned char *ip = at(job->ctx, job->inner, IPV4_BYTES);
	__u16 before;

	if (!ip || ip[0] >> 4 != 4 || job->inner + swap16(*(__be16 *)(ip + 2)) > job->bytes)
		return false;
	if (job->outer_ecn != 3 || (ip[1] & 3) == 3)
		return true;
	if (!(ip[1] & 3))
		return false;
	before = *(__u16 *)ip;
	ip[1] |= 3;
	update_checksum(ip, before, *(__u16 *)ip);
	return true;
}

static __always_inline bool mark_ipv6(struct job *job)
{
	unsigned char *ip = at(job->ctx, job->inner, IPV6_BYTES);

	if (!ip || ip[0] >> 4 != 6)
		return false;
	if (job->inner + IPV6_BYTES + swap16(*(__be16 *)(ip + 4)) > job->bytes)
		return false;
	if (job->outer_ecn == 3) {
		if (!(ip[1] & 0x30))
			return false;
		ip[1] |= 0x30;
	}
	return true;
}

/* Takes what is between the Ethernet header and the inner packet out. */
static __always_inline bool strip(struct job *job, bool v6)
{
	__u8 ethernet[ETH_HLEN + EQP_DECAP_VLAN_BYTES];
	__be16 protocol = swap16(v6 ? ETH_P_IPV6 : ETH_P_IP);
	bool tagged = job->l2 != ETH_HLEN;
	unsigned char *frame = at(job->ctx, 0, sizeof(ethernet));

	if (!frame)
		return false;
	__builtin_memcpy(ethernet, frame, sizeof(ethernet));
	if (bpf_xdp_adjust_head(job->ctx, (int)(job->inner - job->l2)))
		return false;
	frame = at(job->ctx, 0, sizeof(ethernet));
	if (!frame)
		return false;
	if (tagged) {
		__builtin_memcpy(frame, ethernet, sizeof(ethernet));
		*(__be16 *)(frame + 16) = protocol;
	} else {
		__builtin_memcpy(frame, ethernet, ETH_HLEN);
		*(__be16 *)(frame + 12) = protocol;
	}
	return true;
}

SEC("xdp")
int decapsulate(struct xdp_md *ctx)
{
	struct job job = { .ctx = ctx, .l2 = ETH_HLEN, .bytes = (__u32)(ctx->data_end - ctx->data) };
	const unsigned char *ethernet = at(ctx, 0, ETH_HLEN + EQP_DECAP_VLAN_BYTES);
	__be16 protocol;
	bool v6;

	if (!ethernet)
		return XDP_PASS;
	protocol = *(__be16 *)(ethernet + 12);
	if (protocol == swap16(ETH_P_8021Q)) {
		protocol = *(__be16 *)(ethernet + 16);
		job.l2 += EQP_DECAP_VLAN_BYTES;
	}
	if (protocol == swap16(ETH_P_IP)) {
		if (!open_ipv4(&job))
			return XDP_PASS;
	} else if (protocol != swap16(ETH_P_IPV6) || !open_ipv6(&job)) {
		return XDP_PASS;
	}
	v6 = job.inner_protocol == IPPROTO_IPV6;
	if (!(v6 ? mark_ipv6(&job) : mark_ipv4(&job)) || !strip(&job, v6)) {
		count(&job, EQP_DECAP_INVALID);
		return XDP_DROP;
	}
	count(&job, job.kind);
	return XDP_PASS;
}

char LICENSE[] SEC("license") = "GPL";
