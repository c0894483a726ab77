/* SPDX-License-Identifier: (Apache-2.0 OR GPL-2.0-only) */
/*
 * Reports flows to userspace: the first packet of each flow in an interval, and packets that end a
 * flow. `touched` has a tag for each flow that was seen in this interval: see touched.h.
 *
 * With many flows the table exceeds a CPU's own caches, and a lookup waits for memory. Therefore a
 * packet only appends an event to its CPU's `recent`. When EQP_RECENT events have accumulated, they
 * are looked up together with overlapping waits, and new flows go to the log. Userspace also reads
 * `recent`, so that it learns the flows of a quiet CPU in time, and records how far it has read.
 * These events are not logged and do not mark a flow as touched: on a quiet CPU, the lookup may
 * happen in a later interval than the packet. CpuMemory::drain is the other side.
 *
 * SYNs are not events, because most SYNs of a flood would be new flows. Each SYN overwrites an
 * entry of `openings` instead, where userspace finds that a flow began with a SYN, and its backend.
 */
#ifndef EQP_LEARN_H
#define EQP_LEARN_H

#include "count.h"
#include "touched.h"

/* Returns the service of an event, from its second word. */
eqp_inline __u64 event_service(__u64 rest)
{
	return rest >> 16 & 0xffff;
}

eqp_inline bool event_ends(__u64 rest)
{
	return (rest >> 32 & 0xff) != EQP_TOUCH;
}

_Static_assert((EQP_RECENT & (EQP_RECENT - 1)) == 0 && EQP_RECENT <= 64, "events have a bit each in a word");

eqp_inline __u64 *recent_event(const struct eqp_job *job, __u32 at)
{
	return (__u64 *)(job->cpu + limits.cpu_recent_offset) + (__u64)(at & (EQP_RECENT - 1)) * 2;
}

/* False: userspace lags, and the log is full. */
eqp_inline bool log_event(const struct eqp_job *job, const __u64 *event)
{
	struct eqp_cpu *cpu = (struct eqp_cpu *)job->cpu;
	__u32 head = cpu->log_head;
	__u64 *logged;

	if (head - eqp_read_once(cpu->log_tail) >= limits.log_entries) {
		count_reason_of(job, event_service(event[1]), EQP_NOTE_LOG_FULL);
		return false;
	}
	logged = (__u64 *)(job->cpu + limits.cpu_log_offset) + (__u64)(head & (limits.log_entries - 1)) * 2;
	eqp_write_once(logged[0], event[0]);
	eqp_write_once(logged[1], event[1]);
	store_release(&cpu->log_head, head + 1);
	return true;
}

/*
 * Logs the first packet of a flow in this interval, and a packet that ends one, unless userspace
 * has already taken the event. Only logged flows become touched: the next packet reports another
 * flow again. An end clears the tag, so that a forged RST does not make a live flow look idle.
 */
eqp_cold void tell(const struct eqp_job *job, const __u64 *event, __u64 mixed, bool is_taken)
{
	unsigned char *bucket = touched_bucket(job, mixed);
	__u32 tag = touched_tag(mixed), place = tag_place(bucket, tag);

	if (event_ends(event[1])) {
		if (!is_taken)
			log_event(job, event);
		if (place != EQP_NO_TAG)
			tag_write(bucket, place, 0);
		return;
	}
	if (place != EQP_NO_TAG || is_taken || !log_event(job, event))
		return;
	place = tag_place(bucket, 0);
	/* If the bucket is full, the tag replaces another. */
	tag_write(bucket, place != EQP_NO_TAG ? place : tag_replaced(mixed), tag);
}

struct eqp_telling {
	const struct eqp_job *job;
	__u64 interval;
	__u64 news; /* bits of the events to report */
	__u32 taken; /* userspace has taken this many of the first events */
};

/*
 * Returns the position of the lowest set bit, as the number of bits below it. BPF has no
 * instruction for that, and with branches the verifier would explore all positions.
 */
eqp_inline __u32 lowest_bit(__u64 bits)
{
	__u64 below = (bits & -bits) - 1;

	below -= below >> 1 & 0x5555555555555555;
	below = (below & 0x3333333333333333) + (below >> 2 & 0x3333333333333333);
	below = (below + (below >> 4)) & 0x0f0f0f0f0f0f0f0f;
	return below * 0x0101010101010101 >> 56;
}

/* Returns the bits of later events of the same flow. */
eqp_inline __u64 same_flow_after(const struct eqp_job *job, __u32 one)
{
	const __u64 *recent = recent_event(job, 0);
	__u64 digest = recent_event(job, one)[0], others = 0;
	__u32 at;

	for (at = EQP_RECENT; at-- > 0;)
		others = others << 1 | not_zero(recent[2 * at] ^ digest);
	return ~others & ((2ull << (EQP_RECENT - 1)) - 1) & ~1ull << (one & (EQP_RECENT - 1));
}

/* 1: no event is left. */
static long tell_step(__u32 step, void *argument)
{
	struct eqp_telling *telling = argument;
	__u32 at = lowest_bit(telling->news);
	const __u64 *event = recent_event(telling->job, at);

	if (!telling->news)
		return 1;
	telling->news &= telling->news - 1;
	tell(telling->job, event, event[0] * telling->interval, at < telling->taken);
	if (event_ends(event[1]))
		telling->news |= same_flow_after(telling->job, at);
	return 0;
}

/* Reports the events of a full `recent` with set bits, in order. */
eqp_cold void tell_recent(const struct eqp_job *job, __u64 interval, __u64 news)
{
	struct eqp_cpu *cpu = (struct eqp_cpu *)job->cpu;
	__u32 taken = eqp_read_once(cpu->recent_taken) - (cpu->recent_head - EQP_RECENT);
	struct eqp_telling telling = {
		.job = job,
		.interval = interval,
		.news = news,
		/* A larger number belongs to a previous batch. */
		.taken = taken > EQP_RECENT ? 0 : taken,
	};

	cpu->recent_ends = 0;
	repeat(EQP_RECENT, tell_step, &telling);
}

/* Looks up the flows of a full `recent`. */
eqp_cold void check_recent(const struct eqp_job *job)
{
	const struct eqp_state_header *header = (const struct eqp_state_header *)job->state;
	const unsigned char *touched = job->state + limits.touched_offset;
	const __u64 *recent = recent_event(job, 0);
	__u64 interval = eqp_read_once(header->interval), mask = touched_mask(), news = 0, mixed;
	__u32 at;

	/*
	 * Loads from all buckets before the first comparison, so that the waits for memory overlap. With a
	 * single pass, fewer loads fit into the CPU's reorder window: with a million flows a packet took
	 * 25 ns more.
	 */
	eqp_unroll
	for (at = 0; at < EQP_RECENT; at++) {
		mixed = recent[2 * at] * interval;
		(void)eqp_read_once(*(const __u32 *)(touched + (mixed >> 4 & mask)));
	}
	/* From the last to the first, so that the first has the lowest bit. */
	if (limits.short_tags) {
		eqp_unroll
		for (at = EQP_RECENT; at-- > 0;) {
			mixed = recent[2 * at] * interval;
			news = news << 1 | is_short_untouched(touched + (mixed >> 4 & mask), mixed);
		}
	} else {
		eqp_unroll
		for (at = EQP_RECENT; at-- > 0;) {
			mixed = recent[2 * at] * interval;
			news = news << 1 | is_long_untouched(touched + (mixed >> 4 & mask), mixed);
		}
	}
	news |= ((const struct eqp_cpu *)job->cpu)->recent_ends;
	if (news)
		tell_recent(job, interval, news);
}

/* Records the backend of a SYN. If two flows have the same entry, the later one stays. */
eqp_cold void note_opening(const struct eqp_job *job)
{
	const struct eqp_state_header *header = (const struct eqp_state_header *)job->state;
	__u64 interval = eqp_read_once(header->interval), at = job->digest & (limits.openings - 1);
	__u64 *opening = (__u64 *)(job->state + limits.openings_offset) + 2 * at;

	eqp_write_once(opening[0], job->digest);
	eqp_write_once(opening[1], (__u64)job->slot | (__u64)job->service->number << 16 | (__u64)job->how << 32 |
					   interval >> 56 << 40 | job->digest >> 48 << 48);
}

/* Records that a packet's flow was seen, opened or ended. */
eqp_inline void learn(const struct eqp_job *job)
{
	struct eqp_cpu *cpu = (struct eqp_cpu *)job->cpu;
	const struct eqp_packet *packet = &job->packet;
	__u32 head = cpu->recent_head, at = head & (EQP_RECENT - 1);
	struct eqp_event *event = (struct eqp_event *)recent_event(job, at);
	__u8 kind = EQP_TOUCH;

	if (packet->flags & (EQP_PACKET_ICMP_ERROR | EQP_PACKET_LATER_FRAGMENT))
		return;
	if (packet_opens(packet)) {
		note_opening(job);
		return;
	}
	if (eqp_unlikely(packet->tcp_flags & (EQP_TCP_FIN | EQP_TCP_RST))) {
		kind = packet->tcp_flags & EQP_TCP_RST ? EQP_RST : EQP_FIN;
		cpu->recent_ends |= 1ull << at;
	}
	event->digest = job->digest;
	event->slot = job->slot;
	event->service = job->service->number;
	event->kind = kind;
	event->how = job->how;
	/*
	 * Before the lookup: userspace that finds an event in the log then sees that it is not in
	 * `recent`.
	 */
	store_release(&cpu->recent_head, head + 1);
	if (eqp_unlikely(at == EQP_RECENT - 1))
		check_recent(job);
}

#endif
