/* SPDX-License-Identifier: (Apache-2.0 OR GPL-2.0-only) */
/*
 * Tags of the flows that were seen in this interval, in buckets of EQP_TOUCHED_BYTES. A flow with
 * the tag of another flow of its bucket is hidden: it is reported in a later interval, with another
 * tag. limits.short_tags selects one of two forms:
 *
 *   long   four odd tags of 32 bits; one of 2^31 other flows in the bucket hides a flow
 *   short  six tags of 21 bits, three in a word; one of 2^21 does. The table has half as many
 *          buckets.
 *
 * docs/decisions/packet-touched-flows.md has the number of hidden flows.
 *
 * Tags are stored without atomics. If two CPUs write to one word at once, a tag may be lost, and
 * its flow is reported twice; or a removed tag may return, and stay until the next interval.
 */
#ifndef EQP_TOUCHED_H
#define EQP_TOUCHED_H

#include "tables.h"

#define EQP_LONG_WAYS 4
#define EQP_SHORT_WAYS 6
#define EQP_SHORT_BITS 21
#define EQP_SHORT_MASK ((1u << EQP_SHORT_BITS) - 1)
/* Bit 0 of each short tag of a word. */
#define EQP_SHORT_ONES (1ull | 1ull << EQP_SHORT_BITS | 1ull << 2 * EQP_SHORT_BITS)
/* No place in a bucket has the tag. */
#define EQP_NO_TAG 0xffffffffu

_Static_assert(EQP_LONG_WAYS * sizeof(__u32) == EQP_TOUCHED_BYTES, "a bucket is full of long tags");
_Static_assert(EQP_SHORT_WAYS / 3 * sizeof(__u64) == EQP_TOUCHED_BYTES, "a word has three short tags");

/* Returns 1 or 0, without a branch. */
eqp_inline __u64 not_zero(__u64 word)
{
	__u64 minus = -word;

	/* Otherwise the compiler would see a comparison, and BPF only has branches for it. */
	eqp_opaque(minus);
	return (word | minus) >> 63;
}

/* Mask of the byte offset of a bucket. */
eqp_inline __u64 touched_mask(void)
{
	return (__u64)(limits.touched_buckets - 1) * EQP_TOUCHED_BYTES;
}

/* `mixed` is a flow's digest times the interval's number. */
eqp_inline unsigned char *touched_bucket(const struct eqp_job *job, __u64 mixed)
{
	return job->state + limits.touched_offset + (mixed >> 4 & touched_mask());
}

eqp_inline __u32 long_tag(__u64 mixed)
{
	return mixed >> 32 | 1;
}

/* From 1 to EQP_SHORT_MASK, all equally frequent. */
eqp_inline __u32 short_tag(__u64 mixed)
{
	return ((mixed >> 32) * EQP_SHORT_MASK >> 32) + 1;
}

eqp_inline __u32 touched_tag(__u64 mixed)
{
	return limits.short_tags ? short_tag(mixed) : long_tag(mixed);
}

/*
 * Returns 1 if a long tag is not in its bucket, else 0. It has no branches, because the position is
 * unpredictable. A mispredicted branch that depends on a cache miss delays all later instructions.
 */
eqp_inline __u64 is_long_untouched(const unsigned char *bucket, __u64 mixed)
{
	const __u32 *tags = (const __u32 *)bucket;
	__u64 tag = long_tag(mixed);
	/*
	 * Zero if one factor is zero, or if all factors together have 64 factors of two, which happens
	 * once in 2^45: tags are odd and a free position is 0, so free positions give odd factors.
	 */
	__u64 differs = (eqp_read_once(tags[0]) ^ tag) * (eqp_read_once(tags[1]) ^ tag) *
			(eqp_read_once(tags[2]) ^ tag) * (eqp_read_once(tags[3]) ^ tag);

	return not_zero(differs);
}

/* Returns a word that is not zero if one of the three tags of `word` is zero. */
eqp_inline __u64 zero_tags(__u64 word)
{
	return (word - EQP_SHORT_ONES) & ~word & EQP_SHORT_ONES << (EQP_SHORT_BITS - 1);
}

/* The same for a short tag. */
eqp_inline __u64 is_short_untouched(const unsigned char *bucket, __u64 mixed)
{
	const __u64 *words = (const __u64 *)bucket;
	__u64 all = short_tag(mixed) * EQP_SHORT_ONES;

	return not_zero(zero_tags(eqp_read_once(words[0]) ^ all) | zero_tags(eqp_read_once(words[1]) ^ all)) ^ 1;
}

/* Returns the number of bits below a place of a short tag in its word. */
eqp_inline __u32 short_shift(__u32 place)
{
	return (place < 3 ? place : place - 3) * EQP_SHORT_BITS;
}

/* Returns the first place of a tag in its bucket, or EQP_NO_TAG. */
eqp_inline __u32 tag_place(const unsigned char *bucket, __u32 tag)
{
	const __u64 *words = (const __u64 *)bucket;
	const __u32 *tags = (const __u32 *)bucket;
	__u32 place;

	if (limits.short_tags) {
		for (place = 0; place < EQP_SHORT_WAYS; place++)
			if ((eqp_read_once(words[place >= 3]) >> short_shift(place) & EQP_SHORT_MASK) == tag)
				return place;
		return EQP_NO_TAG;
	}
	for (place = 0; place < EQP_LONG_WAYS; place++)
		if (eqp_read_once(tags[place]) == tag)
			return place;
	return EQP_NO_TAG;
}

/* Returns the place of the tag that a flow replaces in a full bucket. */
eqp_inline __u32 tag_replaced(__u64 mixed)
{
	return limits.short_tags ? (mixed & 0xff) * EQP_SHORT_WAYS >> 8 : mixed & (EQP_LONG_WAYS - 1);
}

eqp_inline void tag_write(unsigned char *bucket, __u32 place, __u32 tag)
{
	__u64 *word = (__u64 *)bucket + (place >= 3);
	__u32 shift = short_shift(place);

	if (!limits.short_tags) {
		eqp_write_once(((__u32 *)bucket)[place & (EQP_LONG_WAYS - 1)], tag);
		return;
	}
	eqp_write_once(*word, (eqp_read_once(*word) & ~((__u64)EQP_SHORT_MASK << shift)) | (__u64)tag << shift);
}

#endif
