/* SPDX-License-Identifier: (Apache-2.0 OR GPL-2.0-only) */
/*
 * direct-routing: sends the frame unchanged to the backend's MAC address. Also sends any other
 * packet.
 */
#ifndef EQP_DIRECT_H
#define EQP_DIRECT_H

#include "tables.h"
#include "too_big.h"

/* Sends the packet from its ingress interface, or from another. */
eqp_inline int leave(const struct eqp_context *ctx, __u32 ifindex)
{
	return eqp_likely(ifindex == ctx->ingress_ifindex) ? XDP_TX : leave_by(ifindex);
}

/* Sets both MAC addresses of a frame. A backend has them in the order of the frame. */
eqp_inline void set_macs(unsigned char *ethernet, const struct eqp_backend *backend)
{
	const unsigned char *macs = backend->destination_mac;

	*(__u64 *)ethernet = *(const __u64 *)macs;
	*(__u32 *)(ethernet + 8) = *(const __u32 *)(macs + 8);
}

/* Keeps an 802.1Q tag: the backend is in the VLAN of the packet. */
eqp_inline int forward_direct(struct eqp_context *ctx, struct eqp_job *job)
{
	unsigned char *ethernet = packet_at(ctx, 0, ETH_HLEN);

	if (!ethernet)
		return EQP_DROP(EQP_DROP_HEADER_SHORT);
	if (job->backend->family != job->packet.family)
		return EQP_DROP(EQP_DROP_FAMILY);
	if (eqp_unlikely(job->packet.ip_bytes > job->backend->mtu))
		return answer_too_big(ctx, job, job->backend->mtu);
	set_macs(ethernet, job->backend);
	return leave(ctx, job->backend->ifindex);
}

#endif
