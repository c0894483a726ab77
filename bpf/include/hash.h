/* SPDX-License-Identifier: (Apache-2.0 OR GPL-2.0-only) */
/*
 * Identification of a flow: SipHash-1-3 of its key (Aumasson and Bernstein, 2012), as in
 * crates/levels/packet/src/digest.rs; and the hash from digests to the POG's cells.
 */
#ifndef EQP_HASH_H
#define EQP_HASH_H

#include "tables.h"

struct eqp_sip {
	__u64 v0, v1, v2, v3;
};

eqp_inline __u64 rotated(__u64 word, __u32 bits)
{
	return word << bits | word >> (64 - bits);
}

eqp_inline void sip_round(struct eqp_sip *sip)
{
	sip->v0 += sip->v1;
	sip->v2 += sip->v3;
	sip->v1 = rotated(sip->v1, 13) ^ sip->v0;
	sip->v3 = rotated(sip->v3, 16) ^ sip->v2;
	sip->v0 = rotated(sip->v0, 32);
	sip->v2 += sip->v1;
	sip->v0 += sip->v3;
	sip->v1 = rotated(sip->v1, 17) ^ sip->v2;
	sip->v3 = rotated(sip->v3, 21) ^ sip->v0;
	sip->v2 = rotated(sip->v2, 32);
}

eqp_inline void sip_word(struct eqp_sip *sip, __u64 word)
{
	sip->v3 ^= word;
	sip_round(sip);
	sip->v0 ^= word;
}

/* Begins a hash with the fleet's seed, and a salt that separates its uses. */
eqp_inline struct eqp_sip sip_salted(const struct eqp_job *job, __u64 salt)
{
	__u64 k0 = directory(job)->digest_k0 ^ salt;
	__u64 k1 = directory(job)->digest_k1;

	return (struct eqp_sip){ k0 ^ 0x736f6d6570736575, k1 ^ 0x646f72616e646f6d, k0 ^ 0x6c7967656e657261,
				 k1 ^ 0x7465646279746573 };
}

eqp_inline struct eqp_sip sip_begin(const struct eqp_job *job)
{
	return sip_salted(job, job->service->salt);
}

/* `word`: the remaining bytes of the message, below its length. */
eqp_inline __u64 sip_end(struct eqp_sip *sip, __u64 word, __u64 length)
{
	sip_word(sip, word | length << 56);
	sip->v2 ^= 0xff;
	sip_round(sip);
	sip_round(sip);
	sip_round(sip);
	return sip->v0 ^ sip->v1 ^ sip->v2 ^ sip->v3;
}

/* Returns the digest of a five-tuple with the packet's protocol and these addresses and ports. */
eqp_cold __u64 tuple_digest(const struct eqp_job *job, const __u64 *source, const __u64 *destination, __u32 ports)
{
	const struct eqp_packet *packet = &job->packet;
	struct eqp_sip sip = sip_begin(job);

	if (packet->family == 4) {
		sip_word(&sip, source[0] | destination[0] << 32);
		return sip_end(&sip, ports | (__u64)packet->protocol << 32, 13);
	}
	sip_word(&sip, source[0]);
	sip_word(&sip, source[1]);
	sip_word(&sip, destination[0]);
	sip_word(&sip, destination[1]);
	return sip_end(&sip, ports | (__u64)packet->protocol << 32, 37);
}

/* Returns the mask of the first `bits` (0 to 64) of a word in network order. */
eqp_inline __u64 prefix_mask(__u32 bits)
{
	return bits ? __builtin_bswap64(~0ull << ((64 - bits) & 63)) : 0;
}

eqp_cold __u64 digest_of_source(const struct eqp_context *ctx, const struct eqp_job *job)
{
	const struct eqp_packet *packet = &job->packet;
	unsigned char *ethernet = packet_at(ctx, 0, ETH_HLEN);
	__u64 source[2] = { packet->source64[0], packet->source64[1] };
	struct eqp_sip sip = sip_begin(job);
	__u32 bits = job->service->key_bits;

	if (job->service->key == EQP_SOURCE_MAC)
		return ethernet ? sip_end(&sip, *(__u64 *)(ethernet + 6) << 16 >> 16, 6) : 0;
	if (job->service->key == EQP_SOURCE_PREFIX) {
		source[0] &= prefix_mask(bits < 64 ? bits : 64);
		source[1] &= prefix_mask(bits > 64 ? bits - 64 : 0);
	}
	if (packet->family == 4)
		return sip_end(&sip, (__u32)source[0], 4);
	sip_word(&sip, source[0]);
	sip_word(&sip, source[1]);
	return sip_end(&sip, 0, 16);
}

/* Returns the digest of the packet's flow, by the key of its service. */
eqp_inline __u64 flow_digest(const struct eqp_context *ctx, const struct eqp_job *job)
{
	const struct eqp_packet *packet = &job->packet;
	struct eqp_sip sip;

	if (eqp_unlikely(job->service->key != EQP_FIVE_TUPLE))
		return digest_of_source(ctx, job);
	if (packet->family != 4)
		return tuple_digest(job, packet->source64, packet->destination64, packet->ports);
	sip = sip_begin(job);
	sip_word(&sip, packet->source[0] | (__u64)packet->destination[0] << 32);
	return sip_end(&sip, packet->ports | (__u64)packet->protocol << 32, 13);
}

/* Hash from a digest to the POG's cells: `DigestHash`. */
eqp_inline __u64 cell_hash(const struct eqp_copy_header *copy, __u64 digest)
{
	__u64 hash = (digest ^ copy->k0) * (copy->k1 | 1);

	hash ^= hash >> 32;
	hash *= 0xbf58476d1ce4e5b9;
	return hash ^ hash >> 31;
}

#endif
