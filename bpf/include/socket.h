/* SPDX-License-Identifier: (Apache-2.0 OR GPL-2.0-only) */
/* Asks the kernel whether a socket of this network namespace has a flow of TCP. */
#ifndef EQP_SOCKET_H
#define EQP_SOCKET_H

#include "parse.h"

#ifdef EQP_HOST

eqp_inline bool flow_is_here(const struct eqp_context *ctx, const struct eqp_packet *packet)
{
	return eqp_host->has_socket;
}

#else

/* Whether the packet's acknowledgement is a SYN cookie of this listening socket. */
eqp_inline bool is_cookie(const struct eqp_context *ctx, const struct eqp_packet *packet, struct bpf_sock *socket)
{
	void *ip = packet_at(ctx, packet->l3, EQP_IPV4_BYTES);
	struct tcphdr *tcp = packet_at(ctx, packet->l4, EQP_TCP_BYTES);

	/* An error quotes the other direction. */
	if (!tcp || packet->flags & EQP_PACKET_ICMP_ERROR)
		return false;
	if (packet->family == 4)
		return ip && !bpf_tcp_check_syncookie(socket, ip, EQP_IPV4_BYTES, tcp, EQP_TCP_BYTES);
	ip = packet_at(ctx, packet->l3, EQP_IPV6_BYTES);
	return ip && !bpf_tcp_check_syncookie(socket, ip, EQP_IPV6_BYTES, tcp, EQP_TCP_BYTES);
}

/*
 * Whether a socket has the flow: established, opening or closing. A listening socket has it if the
 * packet completes a handshake by SYN cookie.
 */
eqp_inline bool flow_is_here(struct eqp_context *ctx, const struct eqp_packet *packet)
{
	struct bpf_sock_tuple tuple = {};
	struct bpf_sock *socket;
	bool is_here;
	int i;

	if (packet->family == 4) {
		tuple.ipv4.saddr = packet->source[0];
		tuple.ipv4.daddr = packet->destination[0];
		tuple.ipv4.sport = packet->source_port;
		tuple.ipv4.dport = packet->destination_port;
		socket = bpf_skc_lookup_tcp(ctx, &tuple, sizeof(tuple.ipv4), BPF_F_CURRENT_NETNS, 0);
	} else {
		for (i = 0; i < 4; i++) {
			tuple.ipv6.saddr[i] = packet->source[i];
			tuple.ipv6.daddr[i] = packet->destination[i];
		}
		tuple.ipv6.sport = packet->source_port;
		tuple.ipv6.dport = packet->destination_port;
		socket = bpf_skc_lookup_tcp(ctx, &tuple, sizeof(tuple.ipv6), BPF_F_CURRENT_NETNS, 0);
	}
	if (!socket)
		return false;
	is_here = socket->state != BPF_TCP_LISTEN || is_cookie(ctx, packet, socket);
	bpf_sk_release(socket);
	return is_here;
}

#endif
#endif
