/* SPDX-License-Identifier: (Apache-2.0 OR GPL-2.0-only) */
/*
 * Tells userspace of flows: the first packet of each in an interval, and those that end it. Whether a flow was seen in
 * this interval stands in `touched`, as a tag of 32 bits: another flow is taken for it with probability 2^-32 for each of
 * its bucket's other flows. It is then told of in another interval, under another number; with 16 bits, of a million
 * flows some thirty were unknown at any time, and moved with the pool.
 *
 * Tags are stored plainly: what another CPU's store loses is told twice.
 */
#ifndef EQP_LEARN_H
#define EQP_LEARN_H

#include "count.h"

/* The place of a tag in its bucket; EQP_TOUCHED_WAYS: it is not there. */
eqp_inline __u32 tag_place(const __u32 *bucket, __u32 tag)
{
	__u32 place;

	for (place = 0; place < EQP_TOUCHED_WAYS; place++)
		if (eqp_read_once(bucket[place]) == tag)
			break;
	return place;
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
eqp_cold void learn_closing(const struct eqp_job *job, __u32 *bucket, __u32 tag)
{
	__u32 place = tag_place(bucket, tag);

	log_event(job, job->packet.tcp_flags & EQP_TCP_RST ? EQP_RST : EQP_FIN);
	if (place < EQP_TOUCHED_WAYS)
		eqp_write_once(bucket[place], 0);
}

/* The first packet of a flow in this interval. If the bucket is full, it takes the place `way`. */
eqp_cold void learn_touch(const struct eqp_job *job, __u32 *bucket, __u32 tag, __u32 way)
{
	__u32 place = tag_place(bucket, 0);

	if (!log_event(job, EQP_TOUCH))
		return;
	if (place >= EQP_TOUCHED_WAYS)
		place = way & (EQP_TOUCHED_WAYS - 1);
	eqp_write_once(bucket[place], tag);
}

eqp_inline void learn(const struct eqp_job *job)
{
	const struct eqp_state_header *header = (const struct eqp_state_header *)job->state;
	const struct eqp_packet *packet = &job->packet;
	__u64 mixed, at;
	__u32 tag, *bucket;

	if (packet->flags & (EQP_PACKET_ICMP_ERROR | EQP_PACKET_LATER_FRAGMENT) || packet_opens(packet))
		return;
	mixed = job->digest * eqp_read_once(header->interval);
	tag = mixed >> 32;
	tag += !tag;
	at = mixed >> 8 & (limits.touched_buckets - 1);
	bucket = (__u32 *)(job->state + limits.touched_offset) + at * EQP_TOUCHED_WAYS;
	if (eqp_unlikely(packet->tcp_flags & (EQP_TCP_FIN | EQP_TCP_RST)))
		learn_closing(job, bucket, tag);
	else if (tag_place(bucket, tag) == EQP_TOUCHED_WAYS)
		learn_touch(job, bucket, tag, mixed);
}

#endif
