/* SPDX-License-Identifier: (Apache-2.0 OR GPL-2.0-only) */
/*
 * Kernel interface of the programs: a thin layer, so that the same code also compiles for the host
 * (EQP_HOST), with the memory of a process, for tests and fuzzing without privileges. The other
 * side is in bpf/host.
 *
 * An action is an XDP verdict (>= 0), EQP_GO_ON, or a drop: EQP_DROP(reason) < 0.
 */
#ifndef EQP_COMPAT_H
#define EQP_COMPAT_H

#include <linux/bpf.h>
#include <linux/if_ether.h>
#include <linux/in.h>
#include <linux/in6.h>
#include <stdbool.h>
#include <stddef.h>

#include "abi.h"

#if __BYTE_ORDER__ != __ORDER_LITTLE_ENDIAN__
#error "hash.h and the tables' keys are written for little-endian machines"
#endif

#define EQP_GO_ON XDP_ABORTED /* 0; no packet is meant to end so */
#define EQP_DROP(reason) (-(int)(reason) - 1)
/*
 * Added to XDP_TX: the frame has become an answer, so the received packet does not count as
 * forwarded.
 */
#define EQP_ANSWER 0x100
#define EQP_ANSWER_TTL 64

#define eqp_htons(x) ((__be16)__builtin_bswap16((__u16)(x)))
#define eqp_ntohs(x) __builtin_bswap16((__u16)(x))
#define eqp_htonl(x) ((__be32)__builtin_bswap32((__u32)(x)))
#define eqp_ntohl(x) __builtin_bswap32((__u32)(x))

#define eqp_read_once(x) (*(const volatile __typeof__(x) *)&(x))
#define eqp_write_once(x, value) (*(volatile __typeof__(x) *)&(x) = (value))
#define eqp_likely(x) __builtin_expect(!!(x), 1)
#define eqp_unlikely(x) __builtin_expect(!!(x), 0)

/*
 * Hides `x` from the optimizer. The verifier learns the bounds of the register that is compared. A
 * compiler that recomputes the index after the comparison would lose them.
 */
#define eqp_opaque(x) __asm__ volatile("" : "+r"(x))

#ifdef EQP_HOST

#include "host.h"

#define eqp_inline static inline __attribute__((always_inline, unused))
#define eqp_unroll
#define eqp_cold static __attribute__((noinline, cold, unused))

#else

#include <bpf/bpf_helpers.h>

#define eqp_inline static __always_inline __attribute__((unused))
#define eqp_unroll _Pragma("clang loop unroll_count(4)")
/* Separate BPF functions, verified at their calls, out of the way of the fast path. */
#define eqp_cold static __noinline __attribute__((unused))

#define eqp_context xdp_md

eqp_inline unsigned char *packet_begin(const struct eqp_context *ctx)
{
	return (unsigned char *)(long)ctx->data;
}

eqp_inline unsigned char *packet_end(const struct eqp_context *ctx)
{
	return (unsigned char *)(long)ctx->data_end;
}

eqp_inline int grow_head(struct eqp_context *ctx, int bytes)
{
	return bpf_xdp_adjust_head(ctx, -bytes);
}

eqp_inline int cut_tail(struct eqp_context *ctx, int bytes)
{
	return bpf_xdp_adjust_tail(ctx, -bytes);
}

eqp_inline int leave_by(__u32 ifindex)
{
	return (int)bpf_redirect(ifindex, 0);
}

eqp_inline __u64 clock_ns(void)
{
	return bpf_ktime_get_ns();
}

/* The same, up to 10 ms behind: as of the kernel's last tick, without a read of the clock. */
eqp_inline __u64 clock_coarse_ns(void)
{
	return bpf_ktime_get_coarse_ns();
}

eqp_inline __u32 random_32(void)
{
	return bpf_get_prandom_u32();
}

/* Copies the first bytes of the frame; 0: done. */
eqp_inline int copy_frame(struct eqp_context *ctx, void *to, __u32 bytes)
{
	return (int)bpf_xdp_load_bytes(ctx, 0, to, bytes);
}

eqp_inline int route_find(struct eqp_context *ctx, struct bpf_fib_lookup *fib)
{
	return bpf_fib_lookup(ctx, fib, sizeof(*fib), 0);
}

eqp_inline void repeat(__u32 times, long (*step)(__u32, void *), void *argument)
{
	bpf_loop(times, step, argument, 0);
}

/*
 * Publishes earlier writes. x86-64 keeps stores in order, so a compiler barrier is enough.
 * Elsewhere an exchange is the barrier that all kernels from 6.1 on support.
 */
eqp_inline void store_release(__u32 *word, __u32 value)
{
#ifdef __TARGET_ARCH_x86
	__asm__ volatile("" ::: "memory");
	eqp_write_once(*word, value);
#else
	__sync_lock_test_and_set(word, value);
#endif
}

#endif
#endif
