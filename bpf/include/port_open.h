/* SPDX-License-Identifier: (Apache-2.0 OR GPL-2.0-only) */
/* full-nat: gives a new flow a source address and port, as ports.h describes. */
#ifndef EQP_PORT_OPEN_H
#define EQP_PORT_OPEN_H

#include "port_index.h"

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

/* One try; 1: no more are needed. */
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
			return search->port && try + 1 >= EQP_PORT_TRIES_FREE;
		search->age = age;
	} else {
		search->age = ~0ull;
	}
	search->key = key;
	search->word = word;
	search->source = index;
	search->port = eqp_htons(port);
	return search->age == ~0ull || try + 1 >= EQP_PORT_TRIES_FREE;
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
	taken |= search.tick;
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
	__sync_val_compare_and_swap(&port->word, taken, port_at_stage(taken, EQP_PORT_OPENING));
	return port;
}

#endif
