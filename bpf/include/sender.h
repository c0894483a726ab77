/* SPDX-License-Identifier: (Apache-2.0 OR GPL-2.0-only) */
/*
 * nat: remembers from which MAC address a client's packets come, so that a reply can leave while
 * the kernel does not know the MAC address of the next hop. The kernel would resolve it, but it
 * drops replies from a VIP that is its own address, and then never resolves it.
 */
#ifndef EQP_SENDER_H
#define EQP_SENDER_H

#include "vip.h"

eqp_inline struct eqp_sender *sender_at(const struct eqp_job *job, const __u64 *address)
{
	__u64 index = address_hash(job, address, 0, 0) & (EQP_SENDERS - 1);

	return (struct eqp_sender *)(job->state + limits.senders_offset) + index;
}

eqp_inline bool is_sender(const struct eqp_sender *sender, const __u64 *address)
{
	const __u64 *known = (const __u64 *)sender->address;

	return known[0] == address[0] && known[1] == address[1];
}

/* Records the way back to the client. Requires its frame, unchanged. */
eqp_inline void note_sender(const struct eqp_context *ctx, const struct eqp_job *job)
{
	const struct eqp_packet *packet = &job->packet;
	struct eqp_sender *sender = sender_at(job, packet->source64);
	const __u32 *frame = packet_at(ctx, 0, ETH_HLEN);
	__u32 *macs = (__u32 *)sender->own_mac;

	/* A router on the path sends ICMP errors. */
	if (!frame || packet->flags & (EQP_PACKET_ICMP_ERROR | EQP_PACKET_LATER_FRAGMENT))
		return;
	if (is_sender(sender, packet->source64) && macs[0] == frame[0] && macs[1] == frame[1] &&
	    macs[2] == frame[2] && sender->ifindex == ctx->ingress_ifindex)
		return;
	((__u64 *)sender->address)[0] = packet->source64[0];
	((__u64 *)sender->address)[1] = packet->source64[1];
	macs[0] = frame[0];
	macs[1] = frame[1];
	macs[2] = frame[2];
	sender->ifindex = ctx->ingress_ifindex;
}

/* Addresses a reply's frame to the sender of its client's. False: unknown on that interface. */
eqp_inline bool return_to_sender(const struct eqp_job *job, unsigned char *ethernet, __u32 ifindex)
{
	const struct eqp_sender *sender = sender_at(job, job->packet.destination64);
	int i;

	if (sender->ifindex != ifindex || !is_sender(sender, job->packet.destination64))
		return false;
	for (i = 0; i < ETH_ALEN; i++) {
		ethernet[i] = sender->sender_mac[i];
		ethernet[ETH_ALEN + i] = sender->own_mac[i];
	}
	return true;
}

#endif
