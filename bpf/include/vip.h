/* SPDX-License-Identifier: (Apache-2.0 OR GPL-2.0-only) */
/* Maps an address, port and protocol to a service, and recognizes addresses of VIPs. */
#ifndef EQP_VIP_H
#define EQP_VIP_H

#include "tables.h"

#define EQP_ADDRESS_FACTOR 0x9e3779b97f4a7c15ull

/*
 * Hash of the tables of VIPs and replies, as in crates/levels/packet/src/address_hash.rs. The words
 * are in memory order, so the last byte of an address, where neighbours differ, is the highest, and
 * the lower bits of a product do not depend on higher ones. Therefore each step folds the upper
 * half down, and the result is the upper half.
 */
eqp_inline __u32 address_hash(const struct eqp_job *job, const __u64 *address, __be16 port, __u8 protocol)
{
	__u64 hash = (address[0] ^ directory(job)->vip_seed) * EQP_ADDRESS_FACTOR;

	hash = (hash ^ hash >> 32 ^ address[1]) * EQP_ADDRESS_FACTOR;
	hash = (hash ^ hash >> 32 ^ ((__u32)port << 16 | protocol)) * EQP_ADDRESS_FACTOR;
	return hash >> 32;
}

/* Returns the entry of an address of the packet's family with `port` and `protocol`, or NULL. */
eqp_inline struct eqp_vip *vip_find_at(const struct eqp_job *job, const __u64 *wanted, __be16 port, __u8 protocol)
{
	__u32 hash = address_hash(job, wanted, port, protocol);
	/* Port, protocol and family as in an entry. A free entry has family 0 and matches nothing. */
	__u32 rest = port | (__u32)protocol << 16 | (__u32)job->packet.family << 24;
	__u32 mask = directory(job)->vip_mask;
	int i;

	for (i = 0; i < EQP_PROBES_MAX; i++) {
		struct eqp_vip *vip = vip_at(job, (hash + i) & mask);
		const __u64 *address = (const __u64 *)vip->address;

		if (eqp_likely(*(__u32 *)&vip->port == rest && address[0] == wanted[0] && address[1] == wanted[1]))
			return vip;
		if (vip->kind == EQP_VIP_FREE)
			return NULL;
	}
	return NULL;
}

/* Returns the entry of the flow's destination address with `port` and `protocol`, or NULL. */
eqp_inline struct eqp_vip *vip_find(const struct eqp_job *job, __be16 port, __u8 protocol)
{
	return vip_find_at(job, job->packet.destination64, port, protocol);
}

/* Returns the service of the range with the port; EQP_NO_SERVICE: none. */
#define EQP_NO_SERVICE 0xffff

eqp_inline __u32 service_by_range(const struct eqp_job *job, const struct eqp_vip *vip)
{
	__u16 port = eqp_ntohs(job->packet.destination_port);
	int i;

	for (i = 0; i < EQP_RANGES_MAX && i < vip->ranges; i++) {
		const struct eqp_range *range = range_at(job, (__u64)vip->ranges_first + i);

		if (!range)
			break;
		if (range->first <= port && port <= range->last)
			return range->service;
	}
	return EQP_NO_SERVICE;
}

/* The destination has no entry of its own: its port may be in a range. */
eqp_cold __u32 service_of_range(const struct eqp_job *job, __u8 protocol)
{
	const struct eqp_vip *vip = vip_find(job, 0, protocol);

	return vip && vip->kind == EQP_VIP_RANGES ? service_by_range(job, vip) : EQP_NO_SERVICE;
}

/*
 * Finds the service of the flow's destination. False: there is none at this port, and the job does
 * not change. EQP_NO_SERVICE is not a valid index, so corrupt tables end here, too.
 */
eqp_inline bool service_find(struct eqp_job *job)
{
	const struct eqp_packet *packet = &job->packet;
	const struct eqp_vip *vip = vip_find(job, packet->destination_port, packet->protocol);
	struct eqp_service *service;
	__u32 index;

	if (eqp_likely(vip && vip->kind == EQP_VIP_EXACT))
		index = vip->service;
	else
		index = service_of_range(job, packet->protocol);
	service = service_at(job, index);
	if (eqp_unlikely(!service))
		return false;
	job->service_index = index;
	job->service = service;
	return true;
}

/*
 * Returns what the packet's destination address is: a VIP's (EQP_VIP_ADDRESS), a source of full-nat
 * (EQP_VIP_SOURCE), or neither (EQP_VIP_FREE). For a VIP's, the job has the address's first
 * service, so that a packet without a service is counted there.
 */
eqp_cold int address_find(struct eqp_job *job)
{
	const struct eqp_vip *vip = vip_find(job, 0, 0);

	if (!vip)
		return EQP_VIP_FREE;
	if (vip->kind != EQP_VIP_SOURCE)
		job->service = service_at(job, job->packet.protocol == IPPROTO_UDP ? vip->udp_service : vip->service);
	return vip->kind;
}

#endif
