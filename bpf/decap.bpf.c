// SPDX-License-Identifier: (Apache-2.0 OR GPL-2.0-only)
/*
 * For backends without a tunnel device in the kernel: removes the outer headers of tunnel and GUE,
 * and passes the inner packet to the kernel. An outer congestion mark is copied to the inner packet
 * (RFC 6040, section 4.2). A packet of a flow that this host does not know may have a second chance
 * at another backend: see pass_on.h.
 */
#include "checksum.h"
#include "compat.h"
#include "parse.h"

#define EQP_ECN_MASK 3
#define EQP_ECN_CONGESTED 3

#ifndef EQP_HOST

const volatile struct eqp_decapsulation decapsulation = {};

struct {
	__uint(type, BPF_MAP_TYPE_PERCPU_ARRAY);
	__uint(max_entries, EQP_DECAPSULATED_COUNTERS);
	__type(key, __u32);
	__type(value, struct eqp_counter);
} decapsulated SEC(".maps");

eqp_inline struct eqp_counter *decapsulated_counter(__u32 which)
{
	return bpf_map_lookup_elem(&decapsulated, &which);
}

/* Outer destinations of this machine; the value is unused. */
struct {
	__uint(type, BPF_MAP_TYPE_HASH);
	__uint(max_entries, 1024);
	__type(key, struct eqp_decapsulation_address);
	__type(value, __u32);
} addresses SEC(".maps");

eqp_inline bool address_known(const struct eqp_decapsulation_address *address)
{
	return bpf_map_lookup_elem(&addresses, address) != NULL;
}

/* Destination MAC addresses of this machine; the value is unused. */
struct {
	__uint(type, BPF_MAP_TYPE_HASH);
	__uint(max_entries, 64);
	__type(key, struct eqp_decapsulation_mac);
	__type(value, __u32);
} macs SEC(".maps");

eqp_inline bool mac_known(const struct eqp_decapsulation_mac *mac)
{
	return bpf_map_lookup_elem(&macs, mac) != NULL;
}

/* Backends to which packets may be passed on. */
struct {
	__uint(type, BPF_MAP_TYPE_HASH);
	__uint(max_entries, 1024);
	__type(key, struct eqp_decapsulation_address);
	__type(value, struct eqp_decapsulation_backend);
} backends SEC(".maps");

eqp_inline struct eqp_decapsulation_backend *backend_find(const struct eqp_decapsulation_address *address)
{
	return bpf_map_lookup_elem(&backends, address);
}

#endif

#include "pass_on.h"

eqp_inline void count(const struct eqp_context *ctx, enum eqp_decapsulated which)
{
	struct eqp_counter *counter = decapsulated_counter(which);

	if (!counter)
		return;
	counter->packets++;
	counter->bytes += packet_end(ctx) - packet_begin(ctx);
}

/* Whether the outer destination, of `words` words, is accepted. */
eqp_inline bool sent_to_us(const __be32 *destination, __u32 words, __u32 family)
{
	struct eqp_decapsulation_address address = { .family = family };
	__u32 i;

	if (!(decapsulation.flags & EQP_DECAPSULATION_ADDRESSES))
		return true;
	for (i = 0; i < words; i++)
		address.address[i] = destination[i];
	return address_known(&address);
}

/*
 * Whether the frame's destination MAC address is accepted: a switch may flood frames to other
 * stations.
 */
eqp_inline bool is_our_frame(const struct eqp_context *ctx)
{
	unsigned char *ethernet = packet_at(ctx, 0, ETH_HLEN);
	struct eqp_decapsulation_mac mac = {};
	int i;

	if (!(decapsulation.flags & EQP_DECAPSULATION_MACS))
		return true;
	if (!ethernet)
		return false;
	for (i = 0; i < ETH_ALEN; i++)
		mac.address[i] = ethernet[i];
	return mac_known(&mac);
}

/* Finds the inner packet by the protocol number after the outer IP header. */
eqp_inline void see_protocol(const struct eqp_context *ctx, struct eqp_around *around, __u8 protocol, __u32 l4)
{
	__u16 *udp;

	switch (protocol) {
	case IPPROTO_IPIP:
		around->version = 4;
		around->inner = l4;
		break;
	case IPPROTO_IPV6:
		around->version = 6;
		around->inner = l4;
		break;
	case IPPROTO_UDP:
		udp = packet_at(ctx, l4, EQP_UDP_BYTES);
		if (udp && decapsulation.gue_port && udp[1] == decapsulation.gue_port) {
			around->inner = l4 + EQP_UDP_BYTES;
			around->gue = around->inner;
		}
		break;
	}
}

/* False: the source is not a balancer. */
eqp_inline bool see_ipv4(const struct eqp_context *ctx, struct eqp_around *around)
{
	unsigned char *ip = packet_at(ctx, around->l3, EQP_IPV4_BYTES);
	__u32 header_bytes;

	if (!ip || ip[0] >> 4 != 4 || *(__u16 *)(ip + 6) & eqp_htons(0x3fff))
		return true;
	header_bytes = (ip[0] & 0xf) * 4;
	if (header_bytes < EQP_IPV4_BYTES || !sent_to_us((__be32 *)(ip + 16), 1, 4))
		return true;
	around->family = 4;
	around->tos = ip[1];
	see_protocol(ctx, around, ip[9], around->l3 + header_bytes);
	/* Read again: the verifier has checked other bytes of the packet since. */
	ip = packet_at(ctx, around->l3, EQP_IPV4_BYTES);
	return ip && !((*(__u32 *)(ip + 12) ^ decapsulation.source4) & decapsulation.source4_mask);
}

eqp_inline bool see_ipv6(const struct eqp_context *ctx, struct eqp_around *around)
{
	unsigned char *ip = packet_at(ctx, around->l3, EQP_IPV6_BYTES);
	__u32 differs = 0;
	int i;

	if (!ip || ip[0] >> 4 != 6 || !sent_to_us((__be32 *)(ip + 24), 4, 6))
		return true;
	around->family = 6;
	around->tos = ip[0] << 4 | ip[1] >> 4;
	for (i = 0; i < 4; i++)
		differs |= (*(__u32 *)(ip + 8 + 4 * i) ^ decapsulation.source6[i]) & decapsulation.source6_mask[i];
	see_protocol(ctx, around, ip[6], around->l3 + EQP_IPV6_BYTES);
	return !differs;
}

/*
 * Copies the congestion mark to the inner packet. False: the inner packet cannot carry it and must
 * be dropped.
 */
eqp_inline bool mark_congestion(const struct eqp_context *ctx, const struct eqp_around *around)
{
	__u16 *ip = packet_at(ctx, around->inner, EQP_IPV4_BYTES);
	__u64 difference;

	if ((around->tos & EQP_ECN_MASK) != EQP_ECN_CONGESTED)
		return true;
	if (!ip)
		return false;
	if (around->version == 4) {
		/* Version, length; then DSCP and ECN. */
		if (!(ip[0] >> 8 & EQP_ECN_MASK))
			return false;
		difference = replace16(&ip[0], ip[0] | EQP_ECN_CONGESTED << 8);
		ip[5] = checksum_after(ip[5], difference);
		return true;
	}
	if (!(ip[0] & eqp_htons(EQP_ECN_MASK << 4)))
		return false;
	ip[0] |= eqp_htons(EQP_ECN_CONGESTED << 4);
	return true;
}

/*
 * Moves the Ethernet header and the tag to the end of the outer headers. False: the kernel refuses.
 */
eqp_inline bool take_off(struct eqp_context *ctx, const struct eqp_around *around)
{
	__u16 was[(ETH_HLEN + EQP_VLAN_BYTES) / sizeof(__u16)], type;
	__u16 *ethernet = packet_at(ctx, 0, sizeof(was));
	bool tagged = around->l3 != ETH_HLEN;
	int i;

	if (!ethernet)
		return false;
	for (i = 0; i < 9; i++)
		was[i] = ethernet[i];
	if (grow_head(ctx, -(int)(around->inner - around->l3)))
		return false;
	ethernet = packet_at(ctx, 0, sizeof(was));
	if (!ethernet)
		return false;
	type = around->version == 4 ? eqp_htons(ETH_P_IP) : eqp_htons(ETH_P_IPV6);
	for (i = 0; i < 6; i++)
		ethernet[i] = was[i];
	if (tagged) {
		ethernet[6] = was[6];
		ethernet[7] = was[7];
		ethernet[8] = type;
	} else {
		ethernet[6] = type;
	}
	return true;
}

/* Parses the packet's outer headers. False: not from a balancer. */
eqp_inline bool see(const struct eqp_context *ctx, struct eqp_around *around)
{
	unsigned char *ethernet = packet_at(ctx, 0, ETH_HLEN + EQP_VLAN_BYTES);
	__be16 type;

	if (!ethernet)
		return true;
	type = *(__be16 *)(ethernet + 12);
	if (type == eqp_htons(ETH_P_8021Q)) {
		type = *(__be16 *)(ethernet + 16);
		around->l3 += EQP_VLAN_BYTES;
	}
	if (type == eqp_htons(ETH_P_IP))
		return see_ipv4(ctx, around);
	return type == eqp_htons(ETH_P_IPV6) ? see_ipv6(ctx, around) : true;
}

/*
 * Finds the inner packet behind a GUE header, and its version. False: the headers are inconsistent.
 */
eqp_inline bool see_inner(const struct eqp_context *ctx, struct eqp_around *around)
{
	unsigned char *inner = packet_at(ctx, around->inner, sizeof(__u32));
	__u8 version = inner ? inner[0] >> 4 : 0;

	/* GUE variant 1 begins with the inner packet. */
	if (eqp_unlikely(around->gue && inner && version < 4) && !see_gue_header(ctx, around))
		return false;
	inner = packet_at(ctx, around->inner, EQP_IPV4_BYTES);
	version = inner ? inner[0] >> 4 : 0;
	if ((version != 4 && version != 6) || (around->version && around->version != version))
		return false;
	around->version = version;
	return true;
}

SEC("xdp")
int decapsulate(struct eqp_context *ctx)
{
	struct eqp_around around = { .l3 = ETH_HLEN };
	bool ours = see(ctx, &around);
	__u32 which = EQP_DECAPSULATED_PACKETS;
	int action;

	if (!around.inner)
		return XDP_PASS;
	if (!is_our_frame(ctx)) {
		count(ctx, EQP_DECAPSULATED_FOREIGN_MAC);
		return XDP_PASS;
	}
	if (!ours) {
		count(ctx, EQP_DECAPSULATED_FOREIGN);
		return XDP_PASS;
	}
	if (!see_inner(ctx, &around)) {
		count(ctx, EQP_DECAPSULATED_INVALID);
		return XDP_DROP;
	}
	if (eqp_unlikely(around.hop) && decapsulation.flags & EQP_DECAPSULATION_SECOND_CHANCE) {
		action = pass_on(ctx, &around, &which);
		if (which != EQP_DECAPSULATED_PACKETS)
			count(ctx, which);
		if (action != EQP_GO_ON)
			return action;
	}
	if (!mark_congestion(ctx, &around) || !take_off(ctx, &around)) {
		count(ctx, EQP_DECAPSULATED_INVALID);
		return XDP_DROP;
	}
	count(ctx, EQP_DECAPSULATED_PACKETS);
	if (eqp_unlikely(around.is_second))
		count(ctx, EQP_DECAPSULATED_SECOND);
	return XDP_PASS;
}

#ifndef EQP_HOST
char LICENSE[] SEC("license") = "GPL";
#endif
