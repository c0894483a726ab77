/* SPDX-License-Identifier: (Apache-2.0 OR GPL-2.0-only) */
/*
 * Selects the frames for this machine: frames to a MAC address that userspace lists for the
 * interface (its own, and configured ones). A promiscuous interface, or a switch that has not
 * learned an address, also delivers frames to other stations. The kernel drops these frames
 * (PACKET_OTHERHOST), but only after this program.
 */
#ifndef EQP_STATION_H
#define EQP_STATION_H

#include "count.h"
#include "vip.h"

/* The first six bytes of a word. */
eqp_inline __u64 mac_of(__u64 word)
{
	return word << 16 >> 16;
}

/*
 * As crates/levels/packet/src/address_hash.rs. Folds the end of the address, where network cards
 * differ, down.
 */
eqp_inline __u32 station_hash(const struct eqp_job *job, __u64 mac, __u32 ifindex)
{
	return (mac ^ mac >> 32 ^ ifindex ^ directory(job)->vip_seed) * EQP_ADDRESS_FACTOR >> 32;
}

/* Whether the frame is addressed to the interface. */
eqp_inline bool is_for_us(const struct eqp_context *ctx, const struct eqp_job *job)
{
	const __u64 *frame = packet_at(ctx, 0, ETH_HLEN);
	__u32 ifindex = ctx->ingress_ifindex, hash;
	__u64 mac;
	int i;

	if (!frame)
		return false;
	mac = mac_of(*frame);
	hash = station_hash(job, mac, ifindex);
	for (i = 0; i < EQP_PROBES_MAX; i++) {
		const struct eqp_mac *entry = mac_at(job, hash + i);

		if (eqp_likely(entry->ifindex == ifindex && *(const __u64 *)entry->address == mac))
			return true;
		if (!entry->ifindex)
			return false;
	}
	return false;
}

/*
 * Passes a frame to another station unchanged. Counts IP packets to a single station, and those to
 * a multicast MAC address if they are for a VIP: other multicast frames are normal traffic of a
 * link.
 */
eqp_cold int pass_foreign(struct eqp_context *ctx, struct eqp_job *job)
{
	int parsed = parse(ctx, &job->packet);
	unsigned char *frame = packet_at(ctx, 0, ETH_HLEN);

	if (parsed == XDP_PASS || !frame)
		return XDP_PASS;
	if ((parsed == EQP_GO_ON && service_find(job)) || !(frame[0] & 1))
		count_reason(job, EQP_NOTE_FOREIGN_MAC);
	return XDP_PASS;
}

#endif
