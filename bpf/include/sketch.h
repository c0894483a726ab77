/* SPDX-License-Identifier: (Apache-2.0 OR GPL-2.0-only) */
/*
 * Estimates the bytes of flows, so that userspace finds the largest ones: a count-min sketch
 * (Cormode and Muthukrishnan, 2005) of sampled packets, with conservative update (Estan and
 * Varghese, 2002), and a table of the flows with the largest estimates.
 *
 * A packet costs a decrement. One of `limits.sample_every` packets is sampled, after a random
 * number of packets, since clients may send in a rhythm. Each CPU has its own sketch, for each of
 * two windows: userspace reads and clears the one that the program does not use. `sample_every` is
 * a constant of the load; 0 removes the code.
 *
 * An estimate is never below the flow's sampled bytes. It is above them by more than e /
 * EQP_SKETCH_COLUMNS of all sampled bytes for at most e^-EQP_SKETCH_ROWS of the flows.
 */
#ifndef EQP_SKETCH_H
#define EQP_SKETCH_H

#include "tables.h"

/* The sketch of the current window. */
eqp_inline struct eqp_sketch *current_sketch(const struct eqp_job *job)
{
	__u64 window = eqp_read_once(((const struct eqp_cpu *)job->cpu)->sketch_window) & 1;

	return (struct eqp_sketch *)(job->cpu + limits.cpu_sketches_offset + window * sizeof(struct eqp_sketch));
}

/* The cell of a digest in a row: other bits of the digest for each row. */
eqp_inline __u32 *sketch_cell(struct eqp_sketch *sketch, __u64 digest, __u32 row)
{
	return &sketch->cells[row][digest >> (16 * row) & (EQP_SKETCH_COLUMNS - 1)];
}

_Static_assert(EQP_SKETCH_ROWS * 16 <= 64 && EQP_SKETCH_COLUMNS <= 1 << 16, "a digest has bits for every row");

/* Adds bytes, and returns the new estimate. A full cell stays full. */
eqp_inline __u32 sketch_add(struct eqp_sketch *sketch, __u64 digest, __u32 bytes)
{
	__u32 estimate = ~0u, row;

	eqp_unroll
	for (row = 0; row < EQP_SKETCH_ROWS; row++) {
		__u32 cell = *sketch_cell(sketch, digest, row);

		if (cell < estimate)
			estimate = cell;
	}
	estimate = estimate + bytes < estimate ? ~0u : estimate + bytes;
	eqp_unroll
	for (row = 0; row < EQP_SKETCH_ROWS; row++) {
		__u32 *cell = sketch_cell(sketch, digest, row);

		if (*cell < estimate)
			*cell = estimate;
	}
	return estimate;
}

/* The place of a flow among the largest ones: its own, else that of the smaller of two. */
eqp_inline struct eqp_heavy *heavy_place(struct eqp_sketch *sketch, __u64 digest)
{
	struct eqp_heavy *one = &sketch->heavy[digest >> 12 & (EQP_HEAVY - 1)];
	struct eqp_heavy *other = &sketch->heavy[digest >> 52 & (EQP_HEAVY - 1)];

	if (one->digest == digest)
		return one;
	if (other->digest == digest)
		return other;
	return one->bytes <= other->bytes ? one : other;
}

/* Adds a packet to the sketch, and chooses the next one. */
eqp_cold void weigh_sample(const struct eqp_context *ctx, const struct eqp_job *job)
{
	const struct eqp_packet *packet = &job->packet;
	struct eqp_cpu *cpu = (struct eqp_cpu *)job->cpu;
	struct eqp_sketch *sketch = current_sketch(job);
	unsigned char *ethernet = packet_at(ctx, 0, ETH_HLEN);
	struct eqp_heavy *heavy;
	__u32 estimate;

	/* Uniform from 0 to twice the mean, which with this packet is `sample_every`. */
	cpu->sample_left = random_32() % (2 * limits.sample_every - 1);
	sketch->bytes += packet->frame;
	estimate = sketch_add(sketch, job->digest, packet->frame);
	heavy = heavy_place(sketch, job->digest);
	if (heavy->digest != job->digest && heavy->bytes >= estimate)
		return;
	heavy->digest = job->digest;
	heavy->source[0] = packet->source[0];
	heavy->source[1] = packet->source[1];
	heavy->source[2] = packet->source[2];
	heavy->source[3] = packet->source[3];
	heavy->source_port = packet->source_port;
	heavy->destination_port = packet->destination_port;
	heavy->service = job->service->number;
	heavy->slot = job->slot;
	if (ethernet)
		__builtin_memcpy(heavy->source_mac, ethernet + 6, sizeof(heavy->source_mac));
	heavy->bytes = estimate;
}

/* Samples some packets of flows. */
eqp_inline void weigh(const struct eqp_context *ctx, const struct eqp_job *job)
{
	struct eqp_cpu *cpu = (struct eqp_cpu *)job->cpu;

	if (!limits.sample_every)
		return;
	if (eqp_likely(cpu->sample_left))
		cpu->sample_left--;
	else
		weigh_sample(ctx, job);
}

#endif
