/* SPDX-License-Identifier: (Apache-2.0 OR GPL-2.0-only) */
/*
 * full-nat: the source address and port of each flow, in mapped memory that only this program
 * writes.
 *
 * A source port at a backend has one place in the map: its index is the hash of (backend, its port,
 * source address, protocol) plus the source port. So two flows can never have the same source at
 * one backend, and a reply finds its flow with one access. All ports of an address at a backend
 * have different places. Ports of two addresses or backends may share one; then one of them can be
 * used at a time. A new flow tries EQP_PORT_TRIES sources, which depend on its
 * digest and the time, and takes the first whose place is free or has an expired flow. If there is
 * none, it replaces the oldest flow of them that is unproven: a flood of forged SYNs does not
 * occupy the ports. It never replaces an established or closing flow before it expires.
 *
 * Lines of EQP_PORT_WAYS words lead from a flow to its place, by the digest of the five-tuple
 * (whatever the service's key). A word has the upper 34 bits of the digest, a set bit, and the
 * index. The place has the whole digest, and decides.
 *
 * The word of a place has
 *   16 bits: time of the last packet, in ticks of 2^31 ns
 *    3 bits: the stage
 *    1 bit:  UDP
 *    1 bit:  set
 *   16 bits: number of the backend, at 32
 *   16 bits: changes with each flow, at 48
 *
 * crates/levels/packet/src/twin makes the same decisions, bit for bit.
 */
#ifndef EQP_PORTS_H
#define EQP_PORTS_H

#include "count.h"
#include "hash.h"
#include "translated.h"

/* With 90 % of a backend's ports in use, 0.9^64 = 0.1 % of new flows find none; with 95 %, 4 %. */
#define EQP_PORT_TRIES 64
/* Lifetime of a flow that is unproven or was reset, in ticks: 10 s. */
#define EQP_PORT_SHORT 5
/* Of one packet of UDP and its answer, as in Linux (nf_conntrack_udp_timeout): 30 s. */
#define EQP_PORT_ONE_ANSWER 14

#define EQP_PORT_STAGE_SHIFT 16
#define EQP_PORT_STAGE_MASK 7
#define EQP_PORT_UDP (1ull << 19)
#define EQP_PORT_SET (1ull << 20)
#define EQP_PORT_BACKEND_SHIFT 32
#define EQP_PORT_COUNT_SHIFT 48

#define EQP_PORT_INDEX_SET (1ull << 29)
#define EQP_PORT_INDEX_MASK (EQP_PORT_INDEX_SET - 1)
#define EQP_PORT_DIGEST_SHIFT 30

/* Separates the hash of places from those of flows. */
#define EQP_PORT_SALT 0x6571705f706f7274ull

enum eqp_port_stage {
	EQP_PORT_TAKEN = 0,    /* its fields are being written */
	EQP_PORT_OPENING = 1,  /* the client sent a packet */
	EQP_PORT_ANSWERED = 2, /* the backend answered */
	EQP_PORT_ESTABLISHED = 3, /* the client sent again */
	EQP_PORT_CLOSING = 4,  /* one side sent a FIN, or the client a RST */
	EQP_PORT_RESET = 5,    /* the backend sent a RST: it has no connection */
};

eqp_inline struct eqp_port *port_at(unsigned char *memory, __u64 index)
{
	index &= limits.ports_max - 1;
	memory += limits.ports_offset;
	/* As in translated_line(). */
	eqp_opaque(memory);
	return (struct eqp_port *)memory + index;
}

eqp_inline __u64 *port_line(unsigned char *memory, __u64 digest)
{
	return (__u64 *)memory + (digest & (limits.port_lines - 1)) * EQP_PORT_WAYS;
}

eqp_inline __u64 port_stage(__u64 word)
{
	return word >> EQP_PORT_STAGE_SHIFT & EQP_PORT_STAGE_MASK;
}

eqp_inline __u64 port_age(__u64 word, __u64 tick)
{
	__u64 age = (tick - word) & EQP_TRANSLATED_TIME_MASK;

	return age == EQP_TRANSLATED_TIME_MASK ? 0 : age;
}

/* The word of the same flow, at another time and stage. */
eqp_inline __u64 port_word(__u64 word, __u64 tick, __u64 stage)
{
	word &= ~((__u64)EQP_TRANSLATED_TIME_MASK | (__u64)EQP_PORT_STAGE_MASK << EQP_PORT_STAGE_SHIFT);
	return word | tick | stage << EQP_PORT_STAGE_SHIFT;
}

/* Whether two words are of the same flow. */
eqp_inline bool port_is_same(__u64 word, __u64 other)
{
	return !((word ^ other) >> EQP_PORT_COUNT_SHIFT);
}

/* Whether the flow may lose its port to another one before it expires. */
eqp_inline bool port_is_unproven(__u64 word)
{
	return port_stage(word) == EQP_PORT_OPENING || port_stage(word) == EQP_PORT_ANSWERED;
}

/* Whether the port's flow has expired. A flow of a removed service has. */
eqp_inline bool port_is_over(const struct eqp_job *job, const struct eqp_port *port, __u64 word, __u64 tick)
{
	const struct eqp_source_set *set = source_set_at(job, port->service);
	__u64 stage = port_stage(word), life = EQP_PORT_SHORT;
	bool udp = word & EQP_PORT_UDP;

	if (!set)
		return true;
	if (stage == EQP_PORT_ANSWERED && udp)
		life = set->udp < EQP_PORT_ONE_ANSWER ? set->udp : EQP_PORT_ONE_ANSWER;
	if (stage == EQP_PORT_ESTABLISHED)
		life = udp ? set->udp : set->tcp;
	if (stage == EQP_PORT_CLOSING)
		life = set->closing;
	return port_age(word, tick) > life;
}

/* Stores another time and stage, unless another CPU was faster. */
eqp_inline bool port_touch(struct eqp_port *port, __u64 word, __u64 stage)
{
	__u64 now = port_word(word, translated_tick(), stage);

	if (now == word)
		return false;
	__sync_val_compare_and_swap(&port->word, word, now);
	return true;
}

/* The hash of a source address at a backend and its port. A port of the source is added. */
eqp_cold __u64 port_key(const struct eqp_job *job, const __u64 *backend, const __u64 *source, __be16 port)
{
	const struct eqp_packet *packet = &job->packet;
	struct eqp_sip sip = sip_salted(job, EQP_PORT_SALT);

	if (packet->family == 4) {
		sip_word(&sip, backend[0] | source[0] << 32);
		return sip_end(&sip, port | (__u64)packet->protocol << 32, 13);
	}
	sip_word(&sip, backend[0]);
	sip_word(&sip, backend[1]);
	sip_word(&sip, source[0]);
	sip_word(&sip, source[1]);
	return sip_end(&sip, port | (__u64)packet->protocol << 32, 37);
}

eqp_inline bool port_is_of(__u64 word, __u64 digest)
{
	return word && !((word ^ digest) >> EQP_PORT_DIGEST_SHIFT);
}

/* Returns the word in its line that leads to the flow's place; 0: none. */
eqp_inline __u64 port_index_find(unsigned char *memory, __u64 digest)
{
	const __u64 *line = port_line(memory, digest);
	int i;

	for (i = 0; i < EQP_PORT_WAYS; i++) {
		__u64 word = eqp_read_once(line[i]);

		if (port_is_of(word, digest))
			return word;
	}
	return 0;
}

/* Removes the word that leads from a replaced flow to its place. */
eqp_cold void port_index_remove(unsigned char *memory, __u64 digest, __u64 index)
{
	__u64 *line = port_line(memory, digest);
	__u64 word = digest >> EQP_PORT_DIGEST_SHIFT << EQP_PORT_DIGEST_SHIFT | EQP_PORT_INDEX_SET | index;
	int i;

	for (i = 0; i < EQP_PORT_WAYS; i++)
		if (eqp_read_once(line[i]) == word)
			__sync_val_compare_and_swap(&line[i], word, 0);
}

/*
 * Records the place of a flow. False: the line is full of other flows, and the one that the digest
 * selects is not expired or unproven.
 */
eqp_cold bool port_index_put(const struct eqp_job *job, unsigned char *memory, __u64 digest, __u64 index)
{
	__u64 *line = port_line(memory, digest), tick = translated_tick(), free = EQP_PORT_WAYS, seen = 0;
	__u64 word = digest >> EQP_PORT_DIGEST_SHIFT << EQP_PORT_DIGEST_SHIFT | EQP_PORT_INDEX_SET | index;
	const struct eqp_port *port;
	int i;

	/* From the last to the first, so that the first match stays. */
	for (i = EQP_PORT_WAYS; i-- > 0;) {
		__u64 other = eqp_read_once(line[i]);

		if (!other || port_is_of(other, digest)) {
			free = i;
			seen = other;
		}
	}
	if (free == EQP_PORT_WAYS) {
		free = digest >> EQP_PORT_DIGEST_SHIFT & (EQP_PORT_WAYS - 1);
		seen = eqp_read_once(line[free]);
		port = port_at(memory, seen & EQP_PORT_INDEX_MASK);
		if (!port_is_over(job, port, port->word, tick) && !port_is_unproven(port->word))
			return false;
	}
	return __sync_val_compare_and_swap(&line[free & (EQP_PORT_WAYS - 1)], seen, word) == seen;
}

/* A search for a free source of a new flow. */
struct eqp_port_search {
	const struct eqp_job *job;
	const struct eqp_source_set *set;
	unsigned char *memory;
	__u64 digest;
	__u64 tick;
	__u64 key;
	__u64 word;      /* of the place, as it was seen */
	__u64 age;       /* of the unproven flow */
	__u32 source;    /* index */
	__be16 port;     /* 0: none found */
	__be16 backend_port;
};

/* One try; 1: found. */
static long port_step(__u32 try, void *argument)
{
	struct eqp_port_search *search = argument;
	const struct eqp_job *job = search->job;
	const struct eqp_source_set *set = search->set;
	__u64 x = (search->digest + search->tick + try) * 0xbf58476d1ce4e5b9, key, word, age;
	const struct eqp_source *source;
	const struct eqp_port *at;
	__u32 index;
	__u16 port;

	x = (x ^ x >> 31) * 0x94d049bb133111eb;
	x ^= x >> 31;
	index = set->first + ((x & 0xffff) * set->sources >> 16);
	source = source_at(job, index);
	if (!source)
		return 1;
	port = set->port_first + ((x >> 16 & 0xffff) * set->ports >> 16);
	key = port_key(job, (const __u64 *)job->backend->address, (const __u64 *)source->address,
		       search->backend_port) + port;
	at = port_at(search->memory, key);
	word = eqp_read_once(at->word);
	if (word && !port_is_over(job, at, word, search->tick)) {
		age = port_age(word, search->tick) + 1;
		if (!port_is_unproven(word) || age <= search->age)
			return 0;
		search->age = age;
	} else {
		search->age = ~0ull;
	}
	search->key = key;
	search->word = word;
	search->source = index;
	search->port = eqp_htons(port);
	return search->age == ~0ull;
}

/* Writes the fields of a port that was taken. */
eqp_inline void port_write(struct eqp_port *port, const struct eqp_port_search *search,
			   const struct eqp_source *source)
{
	const struct eqp_packet *packet = &search->job->packet;
	int i;

	port->key = search->key;
	port->digest = search->digest;
	for (i = 0; i < 4; i++) {
		port->client[i] = packet->source[i];
		port->source[i] = source->address[i];
	}
	port->client_port = packet->source_port;
	port->vip_port = packet->destination_port;
	port->source_port = search->port;
	port->service = search->job->service->number;
}

/* Gives a new flow a source at the job's backend. NULL: none is free. */
eqp_cold struct eqp_port *port_open(const struct eqp_job *job, unsigned char *memory, __u64 digest)
{
	struct eqp_port_search search = {
		.job = job,
		.set = source_set_at(job, job->service->number),
		.memory = memory,
		.digest = digest,
		.tick = translated_tick(),
		.backend_port = job->backend->port ? job->backend->port : job->packet.destination_port,
	};
	const struct eqp_source *source;
	struct eqp_port *port;
	__u64 taken;

	if (!search.set || !search.set->sources)
		return NULL;
	repeat(EQP_PORT_TRIES, port_step, &search);
	source = source_at(job, search.source);
	if (!search.port || !source)
		return NULL;
	port = port_at(memory, search.key);
	taken = EQP_PORT_SET | (__u64)job->backend->number << EQP_PORT_BACKEND_SHIFT;
	taken |= ((search.word >> EQP_PORT_COUNT_SHIFT) + 1) << EQP_PORT_COUNT_SHIFT;
	if (job->packet.protocol == IPPROTO_UDP)
		taken |= EQP_PORT_UDP;
	taken = port_word(taken, search.tick, EQP_PORT_TAKEN);
	/* If another CPU is faster, the sender repeats the packet. */
	if (__sync_val_compare_and_swap(&port->word, search.word, taken) != search.word)
		return NULL;
	if (search.word)
		port_index_remove(memory, port->digest, search.key & (limits.ports_max - 1));
	port_write(port, &search, source);
	if (!port_index_put(job, memory, digest, search.key & (limits.ports_max - 1))) {
		__sync_val_compare_and_swap(&port->word, taken, 0);
		return NULL;
	}
	__sync_val_compare_and_swap(&port->word, taken, port_word(taken, search.tick, EQP_PORT_OPENING));
	return port;
}

/* Returns the port of a known flow with its word, or NULL. */
eqp_inline struct eqp_port *port_find(unsigned char *memory, __u64 digest, __u64 *word)
{
	__u64 index = port_index_find(memory, digest);
	struct eqp_port *port = port_at(memory, index & EQP_PORT_INDEX_MASK);

	*word = eqp_read_once(port->word);
	if (!index || !*word || port->digest != digest || port_stage(*word) == EQP_PORT_TAKEN)
		return NULL;
	return port;
}

/* The stage after a packet of the client. */
eqp_inline __u64 port_stage_asked(const struct eqp_packet *packet, __u64 stage)
{
	if (packet->tcp_flags & (EQP_TCP_FIN | EQP_TCP_RST))
		return EQP_PORT_CLOSING;
	if (packet_opens(packet))
		return stage > EQP_PORT_ESTABLISHED ? EQP_PORT_OPENING : stage;
	return stage == EQP_PORT_ANSWERED ? EQP_PORT_ESTABLISHED : stage;
}

/* The stage after a packet of the backend. */
eqp_inline __u64 port_stage_answered(const struct eqp_packet *packet, __u64 stage)
{
	if (packet->tcp_flags & EQP_TCP_RST)
		return EQP_PORT_RESET;
	if (packet->tcp_flags & EQP_TCP_FIN)
		return EQP_PORT_CLOSING;
	return stage == EQP_PORT_OPENING ? EQP_PORT_ANSWERED : stage;
}

#endif
