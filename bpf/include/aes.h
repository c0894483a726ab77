/* SPDX-License-Identifier: (Apache-2.0 OR GPL-2.0-only) */
/*
 * AES-128 of one block (FIPS 197), by tables of 32-bit words as in the proposal of Rijmen and
 * Daemen (1999, section 5.2). crates/levels/packet/src/quic/aes.rs expands the keys.
 *
 * A block is two words in the order of memory, a column half a word with its first row lowest. An
 * entry of a table is a column twice in a row: BPF has no instruction that rotates, so the column
 * rotated by n rows is read from another byte.
 *
 * The kernel's own bpf_crypto_decrypt() needs Linux 6.10, and its ecb(aes) is no faster: it
 * encrypts one block at a time, without the instructions of the CPU on many kernels.
 */
#ifndef EQP_AES_H
#define EQP_AES_H

#include "compat.h"

#define EQP_AES_ROUNDS 10

/* The S-box and its inverse (FIPS 197, figures 7 and 14). */
#define EQP_AES_FORWARD(e) \
	e(63) e(7c) e(77) e(7b) e(f2) e(6b) e(6f) e(c5) e(30) e(01) e(67) e(2b) e(fe) e(d7) e(ab) e(76) \
	e(ca) e(82) e(c9) e(7d) e(fa) e(59) e(47) e(f0) e(ad) e(d4) e(a2) e(af) e(9c) e(a4) e(72) e(c0) \
	e(b7) e(fd) e(93) e(26) e(36) e(3f) e(f7) e(cc) e(34) e(a5) e(e5) e(f1) e(71) e(d8) e(31) e(15) \
	e(04) e(c7) e(23) e(c3) e(18) e(96) e(05) e(9a) e(07) e(12) e(80) e(e2) e(eb) e(27) e(b2) e(75) \
	e(09) e(83) e(2c) e(1a) e(1b) e(6e) e(5a) e(a0) e(52) e(3b) e(d6) e(b3) e(29) e(e3) e(2f) e(84) \
	e(53) e(d1) e(00) e(ed) e(20) e(fc) e(b1) e(5b) e(6a) e(cb) e(be) e(39) e(4a) e(4c) e(58) e(cf) \
	e(d0) e(ef) e(aa) e(fb) e(43) e(4d) e(33) e(85) e(45) e(f9) e(02) e(7f) e(50) e(3c) e(9f) e(a8) \
	e(51) e(a3) e(40) e(8f) e(92) e(9d) e(38) e(f5) e(bc) e(b6) e(da) e(21) e(10) e(ff) e(f3) e(d2) \
	e(cd) e(0c) e(13) e(ec) e(5f) e(97) e(44) e(17) e(c4) e(a7) e(7e) e(3d) e(64) e(5d) e(19) e(73) \
	e(60) e(81) e(4f) e(dc) e(22) e(2a) e(90) e(88) e(46) e(ee) e(b8) e(14) e(de) e(5e) e(0b) e(db) \
	e(e0) e(32) e(3a) e(0a) e(49) e(06) e(24) e(5c) e(c2) e(d3) e(ac) e(62) e(91) e(95) e(e4) e(79) \
	e(e7) e(c8) e(37) e(6d) e(8d) e(d5) e(4e) e(a9) e(6c) e(56) e(f4) e(ea) e(65) e(7a) e(ae) e(08) \
	e(ba) e(78) e(25) e(2e) e(1c) e(a6) e(b4) e(c6) e(e8) e(dd) e(74) e(1f) e(4b) e(bd) e(8b) e(8a) \
	e(70) e(3e) e(b5) e(66) e(48) e(03) e(f6) e(0e) e(61) e(35) e(57) e(b9) e(86) e(c1) e(1d) e(9e) \
	e(e1) e(f8) e(98) e(11) e(69) e(d9) e(8e) e(94) e(9b) e(1e) e(87) e(e9) e(ce) e(55) e(28) e(df) \
	e(8c) e(a1) e(89) e(0d) e(bf) e(e6) e(42) e(68) e(41) e(99) e(2d) e(0f) e(b0) e(54) e(bb) e(16)

#define EQP_AES_INVERSE(e) \
	e(52) e(09) e(6a) e(d5) e(30) e(36) e(a5) e(38) e(bf) e(40) e(a3) e(9e) e(81) e(f3) e(d7) e(fb) \
	e(7c) e(e3) e(39) e(82) e(9b) e(2f) e(ff) e(87) e(34) e(8e) e(43) e(44) e(c4) e(de) e(e9) e(cb) \
	e(54) e(7b) e(94) e(32) e(a6) e(c2) e(23) e(3d) e(ee) e(4c) e(95) e(0b) e(42) e(fa) e(c3) e(4e) \
	e(08) e(2e) e(a1) e(66) e(28) e(d9) e(24) e(b2) e(76) e(5b) e(a2) e(49) e(6d) e(8b) e(d1) e(25) \
	e(72) e(f8) e(f6) e(64) e(86) e(68) e(98) e(16) e(d4) e(a4) e(5c) e(cc) e(5d) e(65) e(b6) e(92) \
	e(6c) e(70) e(48) e(50) e(fd) e(ed) e(b9) e(da) e(5e) e(15) e(46) e(57) e(a7) e(8d) e(9d) e(84) \
	e(90) e(d8) e(ab) e(00) e(8c) e(bc) e(d3) e(0a) e(f7) e(e4) e(58) e(05) e(b8) e(b3) e(45) e(06) \
	e(d0) e(2c) e(1e) e(8f) e(ca) e(3f) e(0f) e(02) e(c1) e(af) e(bd) e(03) e(01) e(13) e(8a) e(6b) \
	e(3a) e(91) e(11) e(41) e(4f) e(67) e(dc) e(ea) e(97) e(f2) e(cf) e(ce) e(f0) e(b4) e(e6) e(73) \
	e(96) e(ac) e(74) e(22) e(e7) e(ad) e(35) e(85) e(e2) e(f9) e(37) e(e8) e(1c) e(75) e(df) e(6e) \
	e(47) e(f1) e(1a) e(71) e(1d) e(29) e(c5) e(89) e(6f) e(b7) e(62) e(0e) e(aa) e(18) e(be) e(1b) \
	e(fc) e(56) e(3e) e(4b) e(c6) e(d2) e(79) e(20) e(9a) e(db) e(c0) e(fe) e(78) e(cd) e(5a) e(f4) \
	e(1f) e(dd) e(a8) e(33) e(88) e(07) e(c7) e(31) e(b1) e(12) e(10) e(59) e(27) e(80) e(ec) e(5f) \
	e(60) e(51) e(7f) e(a9) e(19) e(b5) e(4a) e(0d) e(2d) e(e5) e(7a) e(9f) e(93) e(c9) e(9c) e(ef) \
	e(a0) e(e0) e(3b) e(4d) e(ae) e(2a) e(f5) e(b0) e(c8) e(eb) e(bb) e(3c) e(83) e(53) e(99) e(61) \
	e(17) e(2b) e(04) e(7e) e(ba) e(77) e(d6) e(26) e(e1) e(69) e(14) e(63) e(55) e(21) e(0c) e(7d)

/* Products in AES's field. */
#define EQP_AES_2(a) (((a) << 1 ^ ((a) >> 7) * 0x1b) & 0xff)
#define EQP_AES_4(a) EQP_AES_2(EQP_AES_2(a))
#define EQP_AES_8(a) EQP_AES_2(EQP_AES_4(a))
#define EQP_AES_TWICE(a, b, c, d) ((0ull + (a) + ((b) << 8) + ((c) << 16) + ((__u64)(d) << 24)) * 0x100000001)

/* The columns into which MixColumns and its inverse turn a byte of the first row. */
#define EQP_AES_MIXED_(s) EQP_AES_TWICE(EQP_AES_2(s), s, s, EQP_AES_2(s) ^ (s)),
#define EQP_AES_UNMIXED_(s)                                                            \
	EQP_AES_TWICE(EQP_AES_8(s) ^ EQP_AES_4(s) ^ EQP_AES_2(s), EQP_AES_8(s) ^ (s),  \
		      EQP_AES_8(s) ^ EQP_AES_4(s) ^ (s), EQP_AES_8(s) ^ EQP_AES_2(s) ^ (s)),
#define EQP_AES_MIXED(digits) EQP_AES_MIXED_(0x##digits)
#define EQP_AES_UNMIXED(digits) EQP_AES_UNMIXED_(0x##digits)
#define EQP_AES_BYTE(digits) 0x##digits,

/* Not in `.rodata`, which userspace writes. */
#define EQP_AES_TABLE SEC(".rodata.aes")

static const __u64 aes_mixed[256] EQP_AES_TABLE = { EQP_AES_FORWARD(EQP_AES_MIXED) };
static const __u64 aes_unmixed[256] EQP_AES_TABLE = { EQP_AES_INVERSE(EQP_AES_UNMIXED) };
static const __u8 aes_inverse[256] EQP_AES_TABLE = { EQP_AES_INVERSE(EQP_AES_BYTE) };

/* Returns the byte in `row` of a column. */
eqp_inline __u64 aes_byte(__u64 column, __u32 row)
{
	return column >> 8 * row & 0xff;
}

/* Returns the entry of the byte in `row`, rotated by as many rows. */
eqp_inline __u64 aes_entry(const __u64 *table, __u64 column, __u32 row)
{
	__u64 at = (row ? column >> (8 * row - 3) : column << 3) & 0x7f8;

	return *(const __u32 *)((const unsigned char *)table + at + (-row & 3));
}

/* Returns a column of the next round's state. `a` to `d`: the columns with its rows. */
eqp_inline __u64 aes_column(const __u64 *table, __u64 a, __u64 b, __u64 c, __u64 d)
{
	return aes_entry(table, a, 0) ^ aes_entry(table, b, 1) ^ aes_entry(table, c, 2) ^ aes_entry(table, d, 3);
}

/* The same of the last round, which does not mix. The second byte of an entry is the S-box's. */
eqp_inline __u64 aes_last_column(__u64 a, __u64 b, __u64 c, __u64 d)
{
	const unsigned char *bytes = (const unsigned char *)aes_mixed + 1;

	return bytes[aes_byte(a, 0) * 8] | (__u64)bytes[aes_byte(b, 1) * 8] << 8 |
	       (__u64)bytes[aes_byte(c, 2) * 8] << 16 | (__u64)bytes[aes_byte(d, 3) * 8] << 24;
}

eqp_inline __u64 aes_last_column_inverse(__u64 a, __u64 b, __u64 c, __u64 d)
{
	return aes_inverse[aes_byte(a, 0)] | (__u64)aes_inverse[aes_byte(b, 1)] << 8 |
	       (__u64)aes_inverse[aes_byte(c, 2)] << 16 | (__u64)aes_inverse[aes_byte(d, 3)] << 24;
}

/* Encrypts a block with the round keys in their order. */
eqp_cold void aes_encrypt(const __u64 *keys, __u64 *block)
{
	__u64 low = block[0] ^ keys[0], high = block[1] ^ keys[1];
	__u64 a, b, c, d;
	int round;

	for (round = 1; round < EQP_AES_ROUNDS; round++) {
		a = low & 0xffffffff, b = low >> 32, c = high & 0xffffffff, d = high >> 32;
		low = aes_column(aes_mixed, a, b, c, d) | aes_column(aes_mixed, b, c, d, a) << 32;
		high = aes_column(aes_mixed, c, d, a, b) | aes_column(aes_mixed, d, a, b, c) << 32;
		low ^= keys[2 * round];
		high ^= keys[2 * round + 1];
	}
	a = low & 0xffffffff, b = low >> 32, c = high & 0xffffffff, d = high >> 32;
	block[0] = (aes_last_column(a, b, c, d) | aes_last_column(b, c, d, a) << 32) ^ keys[2 * EQP_AES_ROUNDS];
	block[1] = (aes_last_column(c, d, a, b) | aes_last_column(d, a, b, c) << 32) ^ keys[2 * EQP_AES_ROUNDS + 1];
}

/*
 * Decrypts a block with the equivalent inverse cipher's round keys (FIPS 197, section 5.3.5), the
 * last one first.
 */
eqp_cold void aes_decrypt(const __u64 *keys, __u64 *block)
{
	__u64 low = block[0] ^ keys[0], high = block[1] ^ keys[1];
	__u64 a, b, c, d;
	int round;

	for (round = 1; round < EQP_AES_ROUNDS; round++) {
		a = low & 0xffffffff, b = low >> 32, c = high & 0xffffffff, d = high >> 32;
		low = aes_column(aes_unmixed, a, d, c, b) | aes_column(aes_unmixed, b, a, d, c) << 32;
		high = aes_column(aes_unmixed, c, b, a, d) | aes_column(aes_unmixed, d, c, b, a) << 32;
		low ^= keys[2 * round];
		high ^= keys[2 * round + 1];
	}
	a = low & 0xffffffff, b = low >> 32, c = high & 0xffffffff, d = high >> 32;
	low = aes_last_column_inverse(a, d, c, b) | aes_last_column_inverse(b, a, d, c) << 32;
	high = aes_last_column_inverse(c, b, a, d) | aes_last_column_inverse(d, c, b, a) << 32;
	block[0] = low ^ keys[2 * EQP_AES_ROUNDS];
	block[1] = high ^ keys[2 * EQP_AES_ROUNDS + 1];
}

#endif
