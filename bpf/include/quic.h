/* SPDX-License-Identifier: (Apache-2.0 OR GPL-2.0-only) */
/*
 * The server in a QUIC packet's connection id (draft-ietf-quic-load-balancers-21), so that a
 * connection stays at its backend when the client's address changes. Packets without such an id go
 * by their five-tuple, as any flow, and are counted by reason.
 *
 * crates/levels/packet/src/twin/quic.rs makes the same decisions.
 */
#ifndef EQP_QUIC_H
#define EQP_QUIC_H

#include "aes.h"
#include "lookup.h"
#include "vip.h"

/* RFC 8999: the header's first bit; offsets of the destination connection id. */
#define EQP_QUIC_LONG 0x80
#define EQP_QUIC_ID_AT_SHORT 1u
#define EQP_QUIC_ID_AT_LONG 6u
/* RFC 9000, section 17.2. */
#define EQP_QUIC_ID_MAX 20u
/*
 * Bytes from the start of the connection id on that are needed. Behind the shortest id (6 bytes) a
 * packet has at least 20 more (RFC 9001, section 5.4.2).
 */
#define EQP_QUIC_READ 26u

/* A packet's connection id. */
struct eqp_quic_id {
	__u32 at; /* offset in the frame */
	__u32 bytes; /* a short header does not have its length: EQP_QUIC_ID_MAX */
	bool is_long; /* header */
	__u8 first;
	__u16 config; /* index of the configuration */
	__u64 word[2]; /* the 16 bytes behind the first; then the decoded ones */
};

/* Reads the connection id. False: the datagram ends before. */
eqp_inline bool quic_read(const struct eqp_context *ctx, const struct eqp_packet *packet, struct eqp_quic_id *id)
{
	__u32 at = packet->l4 + EQP_UDP_BYTES, end = packet->l3 + packet->ip_bytes, udp_end;
	unsigned char *udp = packet_at(ctx, packet->l4, EQP_UDP_BYTES + EQP_QUIC_ID_AT_LONG), *bytes;

	if (!udp)
		return false;
	udp_end = packet->l4 + eqp_ntohs(*(__u16 *)(udp + 4));
	if (end > udp_end)
		end = udp_end;
	id->is_long = udp[EQP_UDP_BYTES] & EQP_QUIC_LONG;
	id->at = at + (id->is_long ? EQP_QUIC_ID_AT_LONG : EQP_QUIC_ID_AT_SHORT);
	id->bytes = id->is_long ? udp[EQP_UDP_BYTES + EQP_QUIC_ID_AT_LONG - 1] : EQP_QUIC_ID_MAX;
	if (id->at + EQP_QUIC_READ > end || (id->is_long && id->at + id->bytes > end))
		return false;
	bytes = packet_at(ctx, id->at, EQP_QUIC_READ);
	if (!bytes)
		return false;
	id->first = bytes[0];
	id->word[0] = *(__u64 *)(bytes + 1);
	id->word[1] = *(__u64 *)(bytes + 9);
	return true;
}

eqp_inline const struct eqp_quic_config *quic_config(const struct eqp_job *job, struct eqp_quic_id *id)
{
	__u64 index = (__u64)job->service_index * EQP_QUIC_CONFIGS + (id->first >> 5);

	id->config = index;
	eqp_opaque(index);
	if (index >= (__u64)limits.services_max * EQP_QUIC_CONFIGS)
		return NULL;
	return (const struct eqp_quic_config *)(job->copy + limits.quic_configs_offset +
						 index * sizeof(struct eqp_quic_config));
}

/*
 * The Feistel network of section 4.4.2, backwards: each pass encrypts one half, padded, and adds
 * it to the other. A half is up to ten bytes; the halves of an odd number of bytes share the middle
 * one. False: the packet is too short.
 */
eqp_cold bool quic_four_pass(const struct eqp_context *ctx, const struct eqp_quic_config *config,
			     struct eqp_quic_id *id)
{
	__u32 bytes = config->bytes, shift = bytes / 2 * 8 & 0x7f, pass;
	const __u64 *right = packet_at(ctx, (__u64)id->at + 1 + bytes / 2, 16);
	__u64 half[2][2], block[2];

	if (!right)
		return false;
	half[0][0] = id->word[0] & config->half_masks[0][0];
	half[0][1] = id->word[1] & config->half_masks[0][1];
	half[1][0] = right[0] & config->half_masks[1][0];
	half[1][1] = right[1] & config->half_masks[1][1];
	for (pass = 4; pass > 0; pass--) {
		__u64 *to = half[pass & 1], *from = half[~pass & 1];

		if (pass < config->last_pass)
			break;
		block[0] = from[0];
		block[1] = from[1] | (__u64)bytes << 48 | (__u64)pass << 56;
		aes_encrypt(config->keys, block);
		to[0] ^= block[0] & config->half_masks[pass & 1][0];
		to[1] ^= block[1] & config->half_masks[pass & 1][1];
	}
	/* Behind the left half; the server id has at most 15 bytes. */
	id->word[0] = half[0][0];
	id->word[1] = half[0][1];
	if (shift < 64) {
		id->word[0] |= half[1][0] << shift;
		id->word[1] |= half[1][0] >> (64 - shift) | half[1][1] << shift;
	} else {
		id->word[1] |= half[1][0] << (shift - 64);
	}
	return true;
}

/* Replaces the id's words by its server id. False: the packet is too short. */
eqp_inline bool quic_decode(const struct eqp_context *ctx, const struct eqp_quic_config *config,
			    struct eqp_quic_id *id)
{
	if (config->form == EQP_QUIC_SINGLE_PASS)
		aes_decrypt(config->keys, id->word);
	else if (config->form == EQP_QUIC_FOUR_PASS && !quic_four_pass(ctx, config, id))
		return false;
	id->word[0] &= config->server_mask[0];
	id->word[1] &= config->server_mask[1];
	return true;
}

/* Returns the slot of the backend with the server id, or EQP_NO_SLOT. */
eqp_inline __u32 quic_slot(const struct eqp_job *job, const struct eqp_quic_id *id)
{
	__u16 config = id->config + 1;
	__u32 hash = address_hash(job, id->word, config, 0), mask = directory(job)->quic_mask;
	int i;

	for (i = 0; i < EQP_PROBES_MAX; i++) {
		__u64 at = (hash + i) & mask & (limits.quic_servers_max - 1);
		const struct eqp_quic_server *server =
			(const struct eqp_quic_server *)(job->copy + limits.quic_servers_offset +
							 at * sizeof(struct eqp_quic_server));

		if (server->config == config && server->id[0] == id->word[0] && server->id[1] == id->word[1])
			return server->slot;
		if (!server->config)
			break;
	}
	return EQP_NO_SLOT;
}

/* Sets slot, backend and how. Otherwise returns the note to count. */
eqp_inline __u32 quic_choose(const struct eqp_context *ctx, struct eqp_job *job)
{
	const struct eqp_quic_config *config;
	struct eqp_backend *backend;
	struct eqp_quic_id id;
	__u32 slot;

	if (!quic_read(ctx, &job->packet, &id))
		return EQP_NOTE_QUIC_ID_SHORT;
	config = quic_config(job, &id);
	if (!config || !config->form)
		return id.is_long ? EQP_NOTE_QUIC_CLIENT_ID : EQP_NOTE_QUIC_CONFIG_UNKNOWN;
	if (id.bytes < 1u + config->bytes || !quic_decode(ctx, config, &id))
		return id.is_long ? EQP_NOTE_QUIC_CLIENT_ID : EQP_NOTE_QUIC_ID_SHORT;
	slot = quic_slot(job, &id);
	backend = live_backend(job, slot);
	if (!backend)
		return id.is_long ? EQP_NOTE_QUIC_CLIENT_ID : EQP_NOTE_QUIC_SERVER_UNKNOWN;
	choose(job, slot, backend, EQP_BY_CONNECTION_ID);
	return 0;
}

/* The service's connection ids have the server. False: this packet has no such id. */
eqp_cold bool decide_by_quic(const struct eqp_context *ctx, struct eqp_job *job)
{
	__u32 note;

	/* The quoted packet has the client's connection id. */
	if (job->packet.flags & EQP_PACKET_ICMP_ERROR)
		return false;
	note = quic_choose(ctx, job);
	if (note)
		count_reason(job, note);
	return !note;
}

eqp_inline bool decide_by_connection_id(const struct eqp_context *ctx, struct eqp_job *job)
{
	return eqp_unlikely(job->service->flags & EQP_SERVICE_QUIC) && decide_by_quic(ctx, job);
}

#endif
