/* SPDX-License-Identifier: (Apache-2.0 OR GPL-2.0-only) */
/*
 * Parses frames like crates/levels/packet/src/packet.rs.
 *
 *   not IP (after at most one 802.1Q tag), or truncated in the IP header   XDP_PASS
 *   IP lengths that are inconsistent with each other or the frame          fault: header_invalid
 *   TCP (20 bytes), UDP, ICMP (8), extension header beyond the IP length   fault: header_short
 *   more than EQP_EXTENSION_HEADERS_MAX extension headers                  fault: extension_headers
 *   TCP or UDP with ports: not fragmented, or a first fragment             EQP_GO_ON
 *   later fragments, ICMP, other protocols                                 EQP_RARE
 *
 * A fault drops the packet only if it is for a VIP, so the addresses are then known.
 */
#ifndef EQP_PARSE_H
#define EQP_PARSE_H

#include "compat.h"

#define EQP_EXTENSION_HEADERS_MAX 6
/* Maximum offset of a header, so that the verifier can bound offsets. */
#define EQP_HEADERS_MAX 0x3fff

#define EQP_RARE 0x200

enum eqp_packet_flags {
	EQP_PACKET_FIRST_FRAGMENT = 1,
	EQP_PACKET_LATER_FRAGMENT = 2,
	EQP_PACKET_ICMP_ERROR = 4, /* the flow is the quoted packet's */
};

enum eqp_tcp_flags { EQP_TCP_FIN = 1, EQP_TCP_SYN = 2, EQP_TCP_RST = 4, EQP_TCP_ACK = 16 };

#define EQP_IPV4_BYTES 20u
#define EQP_IPV6_BYTES 40u
#define EQP_TCP_BYTES 20u
#define EQP_UDP_BYTES 8u
#define EQP_ICMP_BYTES 8u
#define EQP_VLAN_BYTES 4u

/*
 * Offsets are from the start of the frame. Addresses, ports and protocol are those of the flow,
 * client to VIP.
 */
struct eqp_packet {
	union {
		__be32 source[4]; /* IPv4: in [0], the rest zero */
		__u64 source64[2];
	};
	union {
		__be32 destination[4];
		__u64 destination64[2];
	};
	union {
		__u32 ports; /* as in the packet, source first */
		struct {
			__be16 source_port;
			__be16 destination_port;
		};
	};
	__u32 frame;    /* bytes */
	__u32 ip_bytes; /* according to the IP header */
	__be32 fragment_id;
	__u16 l3;
	__u16 l4;
	__u16 inner_l3; /* ICMP errors: of the quoted packet */
	__u16 inner_l4;
	__u8 family; /* 4, 6 */
	__u8 protocol;
	__u8 flags;     /* EQP_PACKET_* */
	__u8 tcp_flags; /* 0 if it is not TCP */
	__u8 outer_protocol; /* of the packet itself; key of fragments */
};

/* TCP with SYN and without ACK. */
eqp_inline bool packet_opens(const struct eqp_packet *packet)
{
	return (packet->tcp_flags & (EQP_TCP_SYN | EQP_TCP_ACK)) == EQP_TCP_SYN;
}

/* Returns `bytes` (a constant) of the packet at an offset, or NULL if it is shorter. */
eqp_inline void *packet_at(const struct eqp_context *ctx, __u64 offset, __u32 bytes)
{
	unsigned char *at;

	if (!__builtin_constant_p(offset)) {
		eqp_opaque(offset);
		if (offset > EQP_HEADERS_MAX)
			return NULL;
	}
	at = packet_begin(ctx) + offset;
	if (at + bytes > packet_end(ctx))
		return NULL;
	/* Otherwise the compiler would use this comparison to remove one that the verifier needs. */
	eqp_opaque(at);
	return at;
}

/* Parses the ports, and the flags of TCP. */
eqp_inline int parse_transport(const struct eqp_context *ctx, struct eqp_packet *packet, __u64 l4)
{
	__u32 ip_end = packet->l3 + packet->ip_bytes;
	unsigned char *at;

	packet->l4 = l4;
	if (packet->flags & EQP_PACKET_LATER_FRAGMENT)
		return EQP_RARE;
	if (eqp_likely(packet->protocol == IPPROTO_TCP)) {
		at = packet_at(ctx, l4, EQP_TCP_BYTES);
		if (!at || l4 + EQP_TCP_BYTES > ip_end)
			return EQP_DROP(EQP_DROP_HEADER_SHORT);
		packet->ports = *(__u32 *)at;
		packet->tcp_flags = at[13];
		return EQP_GO_ON;
	}
	if (packet->protocol == IPPROTO_UDP) {
		at = packet_at(ctx, l4, EQP_UDP_BYTES);
		if (!at || l4 + EQP_UDP_BYTES > ip_end)
			return EQP_DROP(EQP_DROP_HEADER_SHORT);
		packet->ports = *(__u32 *)at;
		return EQP_GO_ON;
	}
	return EQP_RARE;
}

eqp_inline int parse_ipv4(const struct eqp_context *ctx, struct eqp_packet *packet, __u64 l3)
{
	unsigned char *ip = packet_at(ctx, l3, EQP_IPV4_BYTES);
	__u32 header_bytes;
	__u16 fragment;

	if (!ip || ip[0] >> 4 != 4)
		return XDP_PASS;
	header_bytes = (ip[0] & 0xf) * 4;
	if (header_bytes < EQP_IPV4_BYTES || l3 + header_bytes > packet->frame)
		return XDP_PASS;
	packet->family = 4;
	packet->protocol = packet->outer_protocol = ip[9];
	packet->source64[0] = *(__u32 *)(ip + 12);
	packet->source64[1] = 0;
	packet->destination64[0] = *(__u32 *)(ip + 16);
	packet->destination64[1] = 0;
	packet->ip_bytes = eqp_ntohs(*(__u16 *)(ip + 2));
	if (packet->ip_bytes < header_bytes || l3 + packet->ip_bytes > packet->frame)
		return EQP_DROP(EQP_DROP_HEADER_INVALID);
	fragment = *(__u16 *)(ip + 6);
	if (eqp_unlikely(fragment & eqp_htons(0x3fff))) {
		packet->flags = fragment & eqp_htons(0x1fff) ? EQP_PACKET_LATER_FRAGMENT : EQP_PACKET_FIRST_FRAGMENT;
		packet->fragment_id = *(__u16 *)(ip + 4);
	}
	return parse_transport(ctx, packet, l3 + header_bytes);
}

/*
 * Hop-by-hop options, routing, fragment, authentication, destination options (RFC 8200, section 4).
 */
eqp_inline bool is_extension_header(__u8 protocol)
{
	return protocol == IPPROTO_HOPOPTS || protocol == IPPROTO_ROUTING || protocol == IPPROTO_FRAGMENT ||
	       protocol == IPPROTO_AH || protocol == IPPROTO_DSTOPTS;
}

/*
 * Skips the extension headers of an IPv6 packet: sets protocol, flags, fragment_id. Returns the
 * offset after them, or a drop.
 */
eqp_cold int walk_extension_headers(const struct eqp_context *ctx, struct eqp_packet *packet, __u32 l4, __u32 ip_end)
{
	unsigned char *header;
	int i;

	for (i = 0; i < EQP_EXTENSION_HEADERS_MAX; i++) {
		__u8 protocol = packet->protocol;

		if (!is_extension_header(protocol))
			return l4;
		header = packet_at(ctx, l4, 8);
		if (!header || l4 + 8 > ip_end)
			return EQP_DROP(EQP_DROP_HEADER_SHORT);
		packet->protocol = header[0];
		if (protocol == IPPROTO_FRAGMENT) {
			__u16 place = *(__u16 *)(header + 2);

			packet->fragment_id = *(__u32 *)(header + 4);
			packet->outer_protocol = header[0];
			if (place & eqp_htons(0xfff8))
				packet->flags |= EQP_PACKET_LATER_FRAGMENT;
			else if (place & eqp_htons(1))
				packet->flags |= EQP_PACKET_FIRST_FRAGMENT;
			l4 += 8;
		} else if (protocol == IPPROTO_AH) {
			l4 += (header[1] + 2) * 4;
		} else {
			l4 += (header[1] + 1) * 8;
		}
		if (packet->flags & EQP_PACKET_LATER_FRAGMENT)
			return l4;
	}
	return is_extension_header(packet->protocol) ? EQP_DROP(EQP_DROP_EXTENSION_HEADERS) : (int)l4;
}

eqp_inline int parse_ipv6(const struct eqp_context *ctx, struct eqp_packet *packet, __u64 l3)
{
	unsigned char *ip = packet_at(ctx, l3, EQP_IPV6_BYTES);
	int l4 = l3 + EQP_IPV6_BYTES;

	if (!ip || ip[0] >> 4 != 6)
		return XDP_PASS;
	packet->family = 6;
	packet->protocol = packet->outer_protocol = ip[6];
	packet->source64[0] = *(__u64 *)(ip + 8);
	packet->source64[1] = *(__u64 *)(ip + 16);
	packet->destination64[0] = *(__u64 *)(ip + 24);
	packet->destination64[1] = *(__u64 *)(ip + 32);
	packet->ip_bytes = EQP_IPV6_BYTES + eqp_ntohs(*(__u16 *)(ip + 4));
	if (l3 + packet->ip_bytes > packet->frame)
		return EQP_DROP(EQP_DROP_HEADER_INVALID);
	if (eqp_unlikely(is_extension_header(packet->protocol))) {
		l4 = walk_extension_headers(ctx, packet, l4, l3 + packet->ip_bytes);
		if (l4 < 0)
			return l4;
	}
	return parse_transport(ctx, packet, l4);
}

/* Parses any frame. */
eqp_cold int parse_any(const struct eqp_context *ctx, struct eqp_packet *packet)
{
	unsigned char *ethernet = packet_at(ctx, 0, ETH_HLEN);
	__u64 l3 = ETH_HLEN;
	__be16 type;

	if (!ethernet)
		return XDP_PASS;
	type = *(__be16 *)(ethernet + 12);
	if (type == eqp_htons(ETH_P_8021Q)) {
		l3 += EQP_VLAN_BYTES;
		ethernet = packet_at(ctx, 0, ETH_HLEN + EQP_VLAN_BYTES);
		if (!ethernet)
			return XDP_PASS;
		type = *(__be16 *)(ethernet + 16);
	}
	packet->l3 = l3;
	packet->ports = 0;
	if (type == eqp_htons(ETH_P_IP))
		return parse_ipv4(ctx, packet, l3);
	return type == eqp_htons(ETH_P_IPV6) ? parse_ipv6(ctx, packet, l3) : XDP_PASS;
}

/*
 * Parses the most frequent frames: no tag, IPv4 without options, not fragmented, TCP or UDP, with
 * room for the larger header. All offsets are fixed, so one comparison with the frame's end is
 * enough. False: use parse_any().
 */
eqp_inline bool parse_plain(const struct eqp_context *ctx, struct eqp_packet *packet)
{
	unsigned char *frame = packet_at(ctx, 0, ETH_HLEN + EQP_IPV4_BYTES + EQP_TCP_BYTES);
	unsigned char *ip = frame + ETH_HLEN, *l4 = ip + EQP_IPV4_BYTES;
	__u32 ip_bytes;
	__u8 protocol;

	if (!frame || *(__be16 *)(frame + 12) != eqp_htons(ETH_P_IP) || ip[0] != 0x45 ||
	    *(__u16 *)(ip + 6) & eqp_htons(0x3fff))
		return false;
	protocol = ip[9];
	if (protocol != IPPROTO_TCP && protocol != IPPROTO_UDP)
		return false;
	ip_bytes = eqp_ntohs(*(__u16 *)(ip + 2));
	if (ip_bytes < EQP_IPV4_BYTES + EQP_TCP_BYTES || ip_bytes + ETH_HLEN > packet->frame)
		return false;
	packet->ip_bytes = ip_bytes;
	packet->l3 = ETH_HLEN;
	packet->l4 = ETH_HLEN + EQP_IPV4_BYTES;
	packet->family = 4;
	packet->protocol = packet->outer_protocol = protocol;
	packet->source64[0] = *(__u32 *)(ip + 12);
	packet->source64[1] = 0;
	packet->destination64[0] = *(__u32 *)(ip + 16);
	packet->destination64[1] = 0;
	packet->ports = *(__u32 *)l4;
	if (protocol == IPPROTO_TCP)
		packet->tcp_flags = l4[13];
	return true;
}

/* Sets all fields of `packet` that are valid for the result; see above. */
eqp_inline int parse(const struct eqp_context *ctx, struct eqp_packet *packet)
{
	packet->frame = packet_end(ctx) - packet_begin(ctx);
	packet->flags = packet->tcp_flags = 0;
	return eqp_likely(parse_plain(ctx, packet)) ? EQP_GO_ON : parse_any(ctx, packet);
}

#endif
