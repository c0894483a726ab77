/* SPDX-License-Identifier: (Apache-2.0 OR GPL-2.0-only) */
/*
 * Captures packets of a service for an operator: the first bytes of the frame as received, with the
 * packet's backend and result, in a ring buffer. Userspace describes the capture in the map
 * `capture`, and then sets `capturing` of every CPU, which is all that packets read otherwise.
 *
 * A capture is bounded here as well: by its number of packets and by its time. So it also ends if
 * the process dies, and the program runs on.
 *
 * The frame is copied before it is rewritten, and sent to userspace with the result.
 */
#ifndef EQP_CAPTURE_H
#define EQP_CAPTURE_H

#include "tables.h"

#ifndef EQP_HOST

struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(max_entries, 1);
	__type(key, __u32);
	__type(value, struct eqp_capture);
} capture SEC(".maps");

/* The ring in its entry exists only during a capture. */
struct {
	__uint(type, BPF_MAP_TYPE_ARRAY_OF_MAPS);
	__uint(max_entries, 1);
	__uint(key_size, sizeof(__u32));
	__array(values, struct {
		__uint(type, BPF_MAP_TYPE_RINGBUF);
		__uint(max_entries, EQP_CAPTURED_BYTES);
	});
} captured SEC(".maps");

/* The packet that a CPU captures. */
struct {
	__uint(type, BPF_MAP_TYPE_PERCPU_ARRAY);
	__uint(max_entries, 1);
	__type(key, __u32);
	__type(value, struct eqp_captured_frame);
} captured_frame SEC(".maps");

eqp_inline struct eqp_capture *the_capture(void)
{
	__u32 zero = 0;

	return bpf_map_lookup_elem(&capture, &zero);
}

eqp_inline struct eqp_captured_frame *own_captured_frame(void)
{
	__u32 zero = 0;

	return bpf_map_lookup_elem(&captured_frame, &zero);
}

/* False: the ring is full, or the capture has ended. */
eqp_inline bool tell_captured(void *record, __u32 bytes)
{
	__u32 zero = 0;
	void *ring = bpf_map_lookup_elem(&captured, &zero);

	return ring && !bpf_ringbuf_output(ring, record, bytes, 0);
}

#endif

/* Whether the capture takes the packet: its filters, its time, its share of packets. */
eqp_inline bool capture_wants(const struct eqp_capture *wanted, const struct eqp_job *job)
{
	const struct eqp_packet *packet = &job->packet;

	if (!wanted->id || wanted->service != job->service->number || clock_ns() > wanted->until_ns)
		return false;
	if (wanted->backend != EQP_ANY_BACKEND && (!job->backend || job->backend->number != wanted->backend))
		return false;
	if ((packet->source64[0] & wanted->source_mask[0]) != wanted->source[0] ||
	    (packet->source64[1] & wanted->source_mask[1]) != wanted->source[1])
		return false;
	return random_32() <= wanted->random_max;
}

/* Takes one of the packets that are left. */
eqp_inline bool capture_takes(struct eqp_capture *wanted)
{
	__s32 left = __sync_fetch_and_add(&wanted->left, -1);

	if (left > 0)
		return true;
	__sync_fetch_and_add(&wanted->left, 1);
	return false;
}

/* Copies the frame if the capture takes the packet. */
eqp_cold void capture_frame(struct eqp_context *ctx, struct eqp_job *job)
{
	struct eqp_capture *wanted = the_capture();
	struct eqp_captured_frame *frame = own_captured_frame();
	__u32 bytes, last;

	if (!wanted || !frame || !job->service || !capture_wants(wanted, job) || !capture_takes(wanted))
		return;
	bytes = wanted->snap_bytes < job->packet.frame ? wanted->snap_bytes : job->packet.frame;
	/* The verifier of Linux 6.1 learns no lower bound from `bytes != 0`. */
	last = bytes - 1;
	eqp_opaque(last);
	if (last >= EQP_CAPTURE_SNAP_MAX || copy_frame(ctx, frame->bytes, last + 1))
		return;
	frame->head.id = wanted->id;
	frame->head.at_ns = clock_ns();
	frame->head.frame_bytes = job->packet.frame;
	frame->head.captured_bytes = last + 1;
	job->captured = true;
}

/* Sends the copy of a captured packet with its result to userspace. */
eqp_cold void capture_result(struct eqp_context *ctx, struct eqp_job *job, int action)
{
	struct eqp_capture *wanted = the_capture();
	struct eqp_captured_frame *frame = own_captured_frame();
	__u32 bytes;

	/* Dropped before it was rewritten. */
	if (action < 0 && !job->backend)
		capture_frame(ctx, job);
	if (!wanted || !frame || !job->captured)
		return;
	frame->head.action = action;
	frame->head.backend = job->backend ? job->backend->number : EQP_ANY_BACKEND;
	frame->head.how = job->how;
	bytes = frame->head.captured_bytes;
	eqp_opaque(bytes);
	if (bytes > EQP_CAPTURE_SNAP_MAX || !tell_captured(frame, sizeof(frame->head) + bytes))
		__sync_fetch_and_add(&wanted->lost, 1);
}

eqp_inline bool is_capturing(const struct eqp_job *job)
{
	return eqp_unlikely(eqp_read_once(((const struct eqp_cpu *)job->cpu)->capturing));
}

#endif
