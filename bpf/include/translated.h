/* SPDX-License-Identifier: (Apache-2.0 OR GPL-2.0-only) */
/*
 * nat: records the flows that clients opened by a VIP, so that only their replies are translated. A
 * client that uses the backend's address directly gets unchanged replies.
 *
 * An exact set in mapped memory, which exists from the first VIP with nat on: lines of
 * EQP_TRANSLATED_WAYS words. The low bits of the digest of the five-tuple (whatever the service's
 * key) select the line. A word has
 *   34 other bits of the digest
 *   12 bits: the slot of the backend
 *   16 bits: time of the last packet, in ticks of 2^31 ns; wraps after 39 hours (timeouts: a day)
 *    2 bits: the stage; 0: the word is free.
 *
 * A new flow replaces an expired flow, else the least established one, else the one idle longest.
 * It never replaces an established flow that was used within EQP_TRANSLATED_KEPT ticks: that flow's
 * replies would reach the client untranslated, and the client would reset the connection.
 *
 * Connection ids can lead one five-tuple to several backends, so each pair is a flow.
 *
 * crates/levels/packet/src/twin makes the same decisions, bit for bit.
 */
#ifndef EQP_TRANSLATED_H
#define EQP_TRANSLATED_H

#include "count.h"
#include "hash.h"

#define EQP_TRANSLATED_DIGEST_SHIFT 30
#define EQP_TRANSLATED_SLOT_SHIFT 18
#define EQP_TRANSLATED_TIME_SHIFT 2
#define EQP_TRANSLATED_TIME_MASK 0xffff
#define EQP_TRANSLATED_STAGE_MASK 3
#define EQP_TRANSLATED_TICK_SHIFT 31
/* About half a minute. */
#define EQP_TRANSLATED_KEPT 16
/* Odd, with bits everywhere: digests of two slots differ in line and word. */
#define EQP_TRANSLATED_SLOT_STEP 0x9e3779b97f4a7c15ull

enum eqp_translated_stage {
	EQP_TRANSLATED_ASKED = 1,    /* client sent a packet, or one side ends the flow */
	EQP_TRANSLATED_ANSWERED = 2, /* the backend answered */
	EQP_TRANSLATED_ESTABLISHED = 3, /* the client sent again */
};

/* Returns the digest of a five-tuple's flow to the backend in a slot. Requires job->service. */
eqp_inline __u64 digest_at_slot(const struct eqp_job *job, __u64 digest, __u32 slot)
{
	if (!(job->service->flags & EQP_SERVICE_QUIC))
		return digest;
	return digest + (slot + 1ull) * EQP_TRANSLATED_SLOT_STEP;
}

/* Returns the line of a digest; NULL: there is no memory for flows. */
eqp_inline __u64 *translated_line(__u64 digest)
{
	__u64 line = digest & (limits.translated_lines - 1);
	__u64 *lines = (__u64 *)translated_memory();

	return lines ? lines + line * EQP_TRANSLATED_WAYS : NULL;
}

eqp_inline __u64 translated_tick(void)
{
	return clock_coarse_ns() >> EQP_TRANSLATED_TICK_SHIFT & EQP_TRANSLATED_TIME_MASK;
}

eqp_inline __u64 translated_word(__u64 digest, __u64 slot, __u64 tick, __u64 stage)
{
	return digest >> EQP_TRANSLATED_DIGEST_SHIFT << EQP_TRANSLATED_DIGEST_SHIFT |
	       (slot & (EQP_SLOTS_MAX - 1)) << EQP_TRANSLATED_SLOT_SHIFT | tick << EQP_TRANSLATED_TIME_SHIFT | stage;
}

eqp_inline bool is_translated(__u64 word, __u64 digest)
{
	return word && !((word ^ digest) >> EQP_TRANSLATED_DIGEST_SHIFT);
}

eqp_inline __u64 translated_slot(__u64 word)
{
	return word >> EQP_TRANSLATED_SLOT_SHIFT & (EQP_SLOTS_MAX - 1);
}

/*
 * Ticks since the flow's last packet. Another CPU may have stored the next tick after this one read
 * the clock.
 */
eqp_inline __u64 translated_age(__u64 word, __u64 tick)
{
	__u64 age = (tick - (word >> EQP_TRANSLATED_TIME_SHIFT)) & EQP_TRANSLATED_TIME_MASK;

	return age == EQP_TRANSLATED_TIME_MASK ? 0 : age;
}

/* Whether the packet's own flow has expired; `word` is the flow's. Requires job->service. */
eqp_inline bool translated_is_over(const struct eqp_job *job, __u64 word, __u64 tick)
{
	const struct eqp_service *service = job->service;
	__u64 life = (word & EQP_TRANSLATED_STAGE_MASK) == EQP_TRANSLATED_ESTABLISHED ? service->translated_tcp :
											  service->translated_closing;

	if (job->packet.protocol == IPPROTO_UDP)
		life = service->translated_udp;
	return translated_age(word, tick) > life;
}

/*
 * Whether another flow of the line, with this `word`, has expired. A word does not have its flow's
 * service and protocol, so the longest timeout applies.
 */
eqp_inline bool translated_may_go(const struct eqp_job *job, __u64 word, __u64 tick)
{
	const struct eqp_directory *local = directory(job);
	__u64 life = (word & EQP_TRANSLATED_STAGE_MASK) == EQP_TRANSLATED_ESTABLISHED ? local->translated_tcp :
											  local->translated_closing;

	if (life < local->translated_udp)
		life = local->translated_udp;
	return translated_age(word, tick) > life;
}

eqp_inline bool packet_ends(const struct eqp_packet *packet)
{
	return packet->tcp_flags & (EQP_TCP_FIN | EQP_TCP_RST);
}

/* Rank for replacement: the lowest is replaced; EQP_TRANSLATED_STAYS: never replaced. */
#define EQP_TRANSLATED_STAYS (1u << 20)

eqp_inline __u32 translated_rank(const struct eqp_job *job, __u64 word, __u64 tick)
{
	__u64 stage = word & EQP_TRANSLATED_STAGE_MASK, age = translated_age(word, tick);

	if (!word)
		return 0;
	if (translated_may_go(job, word, tick))
		return 1;
	if (stage == EQP_TRANSLATED_ESTABLISHED && age < EQP_TRANSLATED_KEPT)
		return EQP_TRANSLATED_STAYS;
	return 2 + (stage << 16) + (EQP_TRANSLATED_TIME_MASK - age);
}

/* The flow's word in its line, or the one to replace. */
struct eqp_translated_search {
	const struct eqp_job *job;
	__u64 *line;
	__u64 digest;
	__u64 tick;
	__u64 word;
	__u32 least; /* rank; 0 for the flow's own; EQP_TRANSLATED_STAYS: none */
	__u32 place;
};

/* Returns 0 for 0, otherwise 1. Hidden from the optimizer, so that it makes no branch. */
eqp_inline __u64 is_not_zero(__u64 number)
{
	__u64 negative = -number;

	eqp_opaque(negative);
	return (number | negative) >> 63;
}

/*
 * Searches the flow's own word in its line, without a branch: the verifier would explore all paths,
 * and a CPU would mispredict.
 */
eqp_inline bool translated_own(struct eqp_translated_search *search)
{
	const __u64 *line = search->line;
	__u64 found = 0, at = 0, place;

	/* From the last to the first, so that the first match stays. */
	eqp_unroll
	for (place = EQP_TRANSLATED_WAYS; place-- > 0;) {
		__u64 word = eqp_read_once(line[place]), other = (word ^ search->digest) >> EQP_TRANSLATED_DIGEST_SHIFT;
		/* All ones if this is the flow's word, which is not 0. */
		__u64 is_own = (is_not_zero(other) | (is_not_zero(word) ^ 1)) - 1;

		found ^= (found ^ word) & is_own;
		at ^= (at ^ place) & is_own;
	}
	if (!found)
		return false;
	search->word = found;
	search->place = at;
	search->least = 0;
	return true;
}

/* One step of the search for the word to replace. */
static long translated_step(__u32 place, void *argument)
{
	struct eqp_translated_search *search = argument;
	const struct eqp_job *job = search->job;
	__u64 word = eqp_read_once(search->line[place & (EQP_TRANSLATED_WAYS - 1)]);
	__u32 rank = translated_rank(job, word, search->tick);

	if (rank < search->least) {
		search->least = rank;
		search->word = word;
		search->place = place;
	}
	return 0;
}

/*
 * Finds the flow's word; if there is none and `any` is set, the word to replace, with a loop of the
 * kernel.
 */
eqp_inline struct eqp_translated_search translated_search(const struct eqp_job *job, __u64 digest, bool any)
{
	struct eqp_translated_search search = {
		.job = job,
		.line = translated_line(digest),
		.digest = digest,
		.tick = translated_tick(),
		.least = EQP_TRANSLATED_STAYS,
	};

	if (search.line && !translated_own(&search) && any)
		repeat(EQP_TRANSLATED_WAYS, translated_step, &search);
	return search;
}

/*
 * Stores the word unless another CPU has changed it; then the flow's next packet tries again.
 * Returns whether the word differs: for each flow's first packet, and at most twice in a tick.
 */
eqp_inline bool translated_store(const struct eqp_translated_search *found, __u64 slot, __u64 stage)
{
	__u64 word = translated_word(found->digest, slot, found->tick, stage);

	if (word == found->word)
		return false;
	__sync_val_compare_and_swap(&found->line[found->place & (EQP_TRANSLATED_WAYS - 1)],
				    found->word, word);
	return true;
}

/*
 * Records a client's packet of the flow to the backend in the job's slot. Returns whether the
 * record changed.
 */
eqp_cold bool translated_put(const struct eqp_job *job, __u64 digest)
{
	struct eqp_translated_search found = translated_search(job, digest, true);
	__u64 stage = EQP_TRANSLATED_ASKED;

	if (!found.line || found.least == EQP_TRANSLATED_STAYS) {
		count_reason(job, EQP_NOTE_REPLIES_FULL);
		return true;
	}
	if (is_translated(found.word, digest) && translated_slot(found.word) == job->slot &&
	    !packet_ends(&job->packet)) {
		stage = found.word & EQP_TRANSLATED_STAGE_MASK;
		if (stage == EQP_TRANSLATED_ANSWERED)
			stage = EQP_TRANSLATED_ESTABLISHED;
	}
	return translated_store(&found, job->slot, stage);
}

/* Whether the reply of the backend in a slot belongs to a flow that a client opened by the VIP. */
eqp_cold bool translated_find(const struct eqp_job *job, __u64 digest, __u32 slot)
{
	struct eqp_translated_search found = translated_search(job, digest, false);
	__u64 stage = found.word & EQP_TRANSLATED_STAGE_MASK;

	if (!found.line || found.least == EQP_TRANSLATED_STAYS || translated_slot(found.word) != slot ||
	    translated_is_over(job, found.word, found.tick))
		return false;
	/* An ICMP error from a router is not a packet of the flow. */
	if (job->packet.flags & EQP_PACKET_ICMP_ERROR)
		return true;
	if (packet_ends(&job->packet))
		stage = EQP_TRANSLATED_ASKED;
	else if (stage == EQP_TRANSLATED_ASKED)
		stage = EQP_TRANSLATED_ANSWERED;
	translated_store(&found, slot, stage);
	return true;
}

#endif
