/* SPDX-License-Identifier: (Apache-2.0 OR GPL-2.0-only) */
/* direct-routing: the frame as it is, to the backend's MAC address. And how any packet leaves. */
#ifndef EQP_DIRECT_H
#define EQP_DIRECT_H

#include "tables.h"
#include "too_big.h"

/* From the interface that a packet came by, or another. */
eqp_inline int leave(const struct eqp_context *ctx, __u32 ifindex)
{
	return eqp_likely(ifindex == ctx->ingress_ifindex) ? XDP_TX : leave_by(ifindex);
}

/* Both addresses of a frame: they lie in the record of a backend as in the frame. */
eqp_inline void set_macs(unsigned char *ethernet, const struct eqp_backend *backend)
{
	const unsigned char *macs = backend->destination_mac;

	*(__u64 *)ethernet = *(const __u64 *)macs;
	*(__u32 *)(ethernet + 8) = *(const __u32 *)(macs + 8);
}

/* An 802.1Q tag stays: the backend is in the VLAN that the packet came by. */
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
