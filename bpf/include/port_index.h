/* SPDX-License-Identifier: (Apache-2.0 OR GPL-2.0-only) */
/* full-nat: from a flow to its place, as ports.h describes. */
#ifndef EQP_PORT_INDEX_H
#define EQP_PORT_INDEX_H

#include "ports.h"

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

/* A search for a word of a full line that another flow may replace. */
struct eqp_port_way {
	const struct eqp_job *job;
	unsigned char *memory;
	__u64 digest;
	__u64 tick;
	__u64 way; /* EQP_PORT_WAYS: none found */
	__u64 seen;
};

/*
 * Looks at one way, from the one that the digest selects on; 1: its word is useless. Else the first
 * word of an unproven flow is found.
 */
static long port_way_step(__u32 step, void *argument)
{
	struct eqp_port_way *search = argument;
	__u64 *line = port_line(search->memory, search->digest);
	__u64 way = ((search->digest >> EQP_PORT_DIGEST_SHIFT) + step) & (EQP_PORT_WAYS - 1);
	__u64 seen = eqp_read_once(line[way]), word;
	const struct eqp_port *port = port_at(search->memory, seen & EQP_PORT_INDEX_MASK);
	bool is_useless;

	word = eqp_read_once(port->word);
	is_useless = !word || !port_is_of(seen, port->digest) || port_is_over(search->job, port, word, search->tick);
	if (!is_useless && (!port_is_unproven(word) || search->way != EQP_PORT_WAYS))
		return 0;
	search->way = way;
	search->seen = seen;
	return is_useless;
}

/*
 * Records the place of a flow. False: the line is full of other flows, all of them established or
 * closing.
 */
eqp_cold bool port_index_put(const struct eqp_job *job, unsigned char *memory, __u64 digest, __u64 index)
{
	struct eqp_port_way search = {
		.job = job,
		.memory = memory,
		.digest = digest,
		.tick = translated_tick(),
		.way = EQP_PORT_WAYS,
	};
	__u64 *line = port_line(memory, digest), free = EQP_PORT_WAYS, seen = 0;
	__u64 word = digest >> EQP_PORT_DIGEST_SHIFT << EQP_PORT_DIGEST_SHIFT | EQP_PORT_INDEX_SET | index;
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
		repeat(EQP_PORT_WAYS, port_way_step, &search);
		free = search.way;
		seen = search.seen;
		if (free == EQP_PORT_WAYS)
			return false;
	}
	return __sync_val_compare_and_swap(&line[free & (EQP_PORT_WAYS - 1)], seen, word) == seen;
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

#endif
