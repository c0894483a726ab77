/* SPDX-License-Identifier: (Apache-2.0 OR GPL-2.0-only) */
/*
 * Tells userspace of flows: the first packet of each in an interval, and those that end it. Whether a flow was seen in
 * this interval stands in `touched`, as a tag of 16 bits; two flows have the same word and tag with probability 2^-16
 * for each of a word's other flows, and then the second is told of in another interval, under another number.
 *
 * Words are stored plainly: what another CPU's store loses is told twice.
 */
#ifndef EQP_LEARN_H
#define EQP_LEARN_H

#include "count.h"

#define EQP_TAG_LANES 0x0001000100010001ull
#define EQP_TAG_TOPS 0x8000800080008000ull

/* The top bit of the lowest lane that equals the tag (what is above that one may be set as well), or 0. */
eqp_inline __u64 tag_lanes(__u64 word, __u64 tag)
{
	__u64 difference = word ^ tag * EQP_TAG_LANES;

	return (difference - EQP_TAG_LANES) & ~difference & EQP_TAG_TOPS;
}

/* False: userspace lags, and the log has no room. */
eqp_inline bool log_event(const struct eqp_job *job, enum eqp_event_kind kind)
{
	struct eqp_cpu *cpu = (struct eqp_cpu *)job->cpu;
	__u32 head = cpu->log_head;
	__u64 *event;

	if (head - eqp_read_once(cpu->log_tail) >= limits.log_entries) {
		count_reason(job, EQP_NOTE_LOG_FULL);
		return false;
	}
	event = (__u64 *)(job->cpu + limits.cpu_log_offset) + (__u64)(head & (limits.log_entries - 1)) * 2;
	eqp_write_once(event[0], job->digest);
	eqp_write_once(event[1], job->slot | (__u64)job->service->number << 16 | (__u64)kind << 32 |
					 (__u64)job->how << 40);
	store_release(&cpu->log_head, head + 1);
	return true;
}

/* The last packets of a flow: always told, and so is the next, lest a forged RST makes a living flow look idle. */
eqp_cold void learn_closing(const struct eqp_job *job, __u64 *touched, __u64 tag)
{
	bool reset = job->packet.tcp_flags & EQP_TCP_RST;
	__u64 word = eqp_read_once(*touched);
	__u64 lane = tag_lanes(word, tag);

	log_event(job, reset ? EQP_RST : EQP_FIN);
	if (!lane)
		return;
	/* From the lane's top bit to all of its bits. */
	lane &= -lane;
	eqp_write_once(*touched, word & ~(lane | (lane - (lane >> 15))));
}

/* The first packet of a flow in this interval. */
eqp_cold void learn_touch(const struct eqp_job *job, __u64 *touched, __u64 tag, __u32 way)
{
	__u64 word = eqp_read_once(*touched);
	__u64 free = tag_lanes(word, 0);
	__u64 shift = way * 16;

	if (!log_event(job, EQP_TOUCH))
		return;
	if (free & 0x8000)
		shift = 0;
	else if (free & 0x80000000)
		shift = 16;
	else if (free & 0x800000000000)
		shift = 32;
	else if (free)
		shift = 48;
	eqp_write_once(*touched, (word & ~(0xffffull << shift)) | tag << shift);
}

eqp_inline void learn(const struct eqp_job *job)
{
	const struct eqp_state_header *header = (const struct eqp_state_header *)job->state;
	const struct eqp_packet *packet = &job->packet;
	__u64 mixed, tag, bucket, *touched;

	if (packet->flags & (EQP_PACKET_ICMP_ERROR | EQP_PACKET_LATER_FRAGMENT) || packet_opens(packet))
		return;
	mixed = job->digest * eqp_read_once(header->interval);
	tag = mixed >> 48;
	tag += !tag;
	bucket = mixed >> 16 & (limits.touched_buckets - 1);
	touched = (__u64 *)(job->state + limits.touched_offset) + bucket;
	if (eqp_unlikely(packet->tcp_flags & (EQP_TCP_FIN | EQP_TCP_RST)))
		learn_closing(job, touched, tag);
	else if (!tag_lanes(*touched, tag))
		learn_touch(job, touched, tag, mixed & (EQP_TOUCHED_WAYS - 1));
}

#endif
