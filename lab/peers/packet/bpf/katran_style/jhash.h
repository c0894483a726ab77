/* SPDX-License-Identifier: (Apache-2.0 OR GPL-2.0-only) */
/* Bob Jenkins's lookup3 (2006, public domain) as the kernel uses it, for the two lengths that are needed. */
#ifndef KATRAN_STYLE_JHASH_H
#define KATRAN_STYLE_JHASH_H

#include <linux/types.h>

#define JHASH_INITIAL 0xdeadbeef

static __always_inline __u32 rotated(__u32 word, int bits)
{
	return word << bits | word >> (32 - bits);
}

static __always_inline __u32 jhash_final(__u32 a, __u32 b, __u32 c)
{
	c = (c ^ b) - rotated(b, 14);
	a = (a ^ c) - rotated(c, 11);
	b = (b ^ a) - rotated(a, 25);
	c = (c ^ b) - rotated(b, 16);
	a = (a ^ c) - rotated(c, 4);
	b = (b ^ a) - rotated(a, 14);
	return (c ^ b) - rotated(b, 24);
}

static __always_inline __u32 jhash_2_words(__u32 a, __u32 b, __u32 initial)
{
	initial += JHASH_INITIAL + (2 << 2);
	return jhash_final(a + initial, b + initial, initial);
}

static __always_inline __u32 jhash_16_bytes(const __be32 words[4], __u32 initial)
{
	__u32 a, b, c;

	a = b = c = JHASH_INITIAL + 16 + initial;
	a += words[0];
	b += words[1];
	c += words[2];
	a = (a - c) ^ rotated(c, 4), c += b;
	b = (b - a) ^ rotated(a, 6), a += c;
	c = (c - b) ^ rotated(b, 8), b += a;
	a = (a - c) ^ rotated(c, 16), c += b;
	b = (b - a) ^ rotated(a, 19), a += c;
	c = (c - b) ^ rotated(b, 4), b += a;
	return jhash_final(a + words[3], b, c);
}

#endif
