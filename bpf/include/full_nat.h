/* SPDX-License-Identifier: (Apache-2.0 OR GPL-2.0-only) */
/*
 * full-nat: the destination becomes the backend, and the source an address and port of the
 * balancer, so that replies return to it on any network. ports.h has the state.
 */
#ifndef EQP_FULL_NAT_H
#define EQP_FULL_NAT_H

#include "nat.h"
#include "port_open.h"

/*
 * Whether replies to the port of the packet's flow are translated. Not if its address is no source
 * any more, or if the VIP came back with another number.
 */
eqp_cold bool port_is_answered(const struct eqp_job *job, const struct eqp_port *port)
{
	const struct eqp_vip *vip = vip_find_at(job, (const __u64 *)port->source, 0, 0);

	return vip && vip->kind == EQP_VIP_SOURCE && port->service == job->service->number;
}

/* Returns the port of the packet's flow; a flow without one gets one. */
eqp_inline struct eqp_port *port_of_flow(struct eqp_context *ctx, struct eqp_job *job, unsigned char *memory)
{
	const struct eqp_packet *packet = &job->packet;
	bool is_later = packet->flags & EQP_PACKET_LATER_FRAGMENT;
	struct eqp_port *port;
	__u64 digest, word, now;

	if (job->service->key != EQP_FIVE_TUPLE && !is_later) {
		job->digest = tuple_digest(job, packet->source64, packet->destination64, packet->ports);
		/* The later fragments find the port by it. */
		if (packet->flags & EQP_PACKET_FIRST_FRAGMENT)
			remember_fragment(job);
	}
	digest = digest_at_slot(job, job->digest, job->slot);
	port = port_find(memory, digest, &word);
	/* A flow that moved to another backend has no connection there, which resets it. */
	if (port && (word >> EQP_PORT_BACKEND_SHIFT & 0xffff) != job->backend->number)
		port = NULL;
	if (packet->flags & (EQP_PACKET_ICMP_ERROR | EQP_PACKET_LATER_FRAGMENT))
		return port && port_is_answered(job, port) ? port : NULL;
	if (port) {
		now = port_now(port_asked(ctx, packet, word));
		if (now == word)
			return port;
		/* Checked when the word changes, about once in a tick, to keep the usual packet fast. */
		if (port_is_answered(job, port))
			__sync_val_compare_and_swap(&port->word, word, now);
		else
			port = NULL;
	}
	if (!port)
		port = port_open(job, memory, digest);
	/* The first packet, and at most one in a tick: rarely overwritten by another client's. */
	note_sender(ctx, job);
	return port;
}

eqp_cold int forward_full_nat(struct eqp_context *ctx, struct eqp_job *job)
{
	const struct eqp_backend *backend = job->backend;
	struct eqp_rewrite to = { .port = backend->port, .source = false, .outside = true };
	/* Not with its value: the compiler would copy a constant, which the loader does not know. */
	struct eqp_rewrite from = {};
	unsigned char *memory = ports_memory(), *ethernet;
	struct eqp_port *port;
	int checked, i;

	checked = check_route_on(ctx, job);
	if (checked != EQP_GO_ON)
		return checked;
	if (!memory)
		return EQP_DROP(EQP_DROP_TABLES);
	port = port_of_flow(ctx, job, memory);
	if (!port && job->packet.flags & EQP_PACKET_LATER_FRAGMENT)
		return EQP_DROP(EQP_DROP_FRAGMENT_UNKNOWN);
	if (!port && job->packet.flags & EQP_PACKET_ICMP_ERROR)
		return leave_unserved(ctx, job);
	if (!port)
		return EQP_DROP(EQP_DROP_PORTS_EXHAUSTED);
	from.source = true;
	from.port = port->source_port;
	from.outside = comes_from(ctx, &job->packet, job->packet.source);
	for (i = 0; i < 4; i++) {
		to.address[i] = backend->address[i];
		from.address[i] = port->source[i];
	}
	ethernet = packet_at(ctx, 0, ETH_HLEN);
	if (!ethernet || !rewrite_packet(ctx, &job->packet, &to) || !rewrite_side(ctx, &job->packet, &from))
		return EQP_DROP(EQP_DROP_HEADER_SHORT);
	set_macs(ethernet, backend);
	return leave(ctx, backend->ifindex);
}

/* Whether the packet is for a source address. */
eqp_inline bool is_for_source(struct eqp_job *job)
{
	const struct eqp_vip *vip;

	if (!(directory(job)->flags & EQP_DIRECTORY_PORTS))
		return false;
	vip = vip_find(job, 0, 0);
	return vip && vip->kind == EQP_VIP_SOURCE;
}

/* The flow of a reply, as it is before another CPU may replace it. */
struct eqp_answered {
	struct eqp_port *port;
	__u64 word;
	__be32 client[4];
	__be16 client_port;
	__be16 vip_port;
	const struct eqp_source_set *set;
};

/* Reads the port at an index. False: it has no flow. */
eqp_inline bool answered_at(struct eqp_job *job, __u64 index, struct eqp_answered *answered)
{
	unsigned char *memory = ports_memory();
	struct eqp_port *port;
	__u16 number;
	int i;

	if (!memory)
		return false;
	port = answered->port = port_at(memory, index);
	answered->word = eqp_read_once(port->word);
	if (!answered->word || port_stage(answered->word) == EQP_PORT_TAKEN)
		return false;
	for (i = 0; i < 4; i++)
		answered->client[i] = eqp_read_once(port->client[i]);
	answered->client_port = eqp_read_once(port->client_port);
	answered->vip_port = eqp_read_once(port->vip_port);
	number = eqp_read_once(port->service);
	answered->set = source_set_at(job, number);
	if (!answered->set || !answered->set->sources)
		return false;
	job->service_index = answered->set->service;
	job->service = service_at(job, job->service_index);
	return job->service && job->service->number == number;
}

/* The index of the flow of a reply's first fragment, with the upper bits of its word above. */
#define EQP_ANSWERED_COUNT_SHIFT 32

eqp_inline bool answered_by_first(struct eqp_job *job, struct eqp_answered *answered)
{
	const struct eqp_fragment *first = first_fragment(&job->packet);

	return first && first->slot == EQP_NO_SLOT && answered_at(job, first->digest & 0xffffffff, answered) &&
	       answered->word >> EQP_PORT_COUNT_SHIFT == first->digest >> EQP_ANSWERED_COUNT_SHIFT;
}

eqp_inline bool answered_by_key(struct eqp_job *job, struct eqp_answered *answered)
{
	const struct eqp_packet *packet = &job->packet;
	__u64 key = port_key(job, packet->source64, packet->destination64, packet->source_port) +
		    eqp_ntohs(packet->destination_port);

	return answered_at(job, key, answered) && eqp_read_once(answered->port->key) == key;
}

/* Sends a reply on to the flow's client: from the VIP, to the client. */
eqp_cold int answer_client(struct eqp_context *ctx, struct eqp_job *job, const struct eqp_answered *answered)
{
	struct eqp_packet *packet = &job->packet;
	struct eqp_rewrite from = { .port = answered->vip_port, .source = true };
	struct eqp_rewrite to = { .port = answered->client_port, .source = false, .outside = true };
	struct bpf_fib_lookup fib = {};
	int route, i;

	if (!ask_route(ctx, packet, answered->set->vip, &fib))
		return EQP_DROP(EQP_DROP_HEADER_SHORT);
	for (i = 0; i < 4; i++) {
		from.address[i] = answered->set->vip[i];
		to.address[i] = answered->client[i];
	}
	if (packet->family == 4)
		fib.ipv4_dst = to.address[0];
	else
		for (i = 0; i < 4; i++)
			fib.ipv6_dst[i] = to.address[i];
	route = route_find(ctx, &fib);
	if (hop_limit(ctx, packet) <= 1)
		return EQP_DROP(EQP_DROP_TTL_EXPIRED);
	from.outside = comes_from(ctx, packet, packet->source);
	if (!rewrite_packet(ctx, packet, &from) || !rewrite_side(ctx, packet, &to))
		return EQP_DROP(EQP_DROP_HEADER_SHORT);
	count_reason(job, EQP_NOTE_REPLY);
	for (i = 0; i < 4; i++)
		packet->destination[i] = to.address[i];
	return leave_by_route(ctx, job, &fib, route);
}

/* Reads the flow that an ICMP packet to a source address is about; returns as parse() does. */
eqp_inline int read_answered(struct eqp_context *ctx, struct eqp_packet *packet, int parsed)
{
	enum eqp_icmp_kind kind;

	if (parsed != EQP_RARE || packet->flags & EQP_PACKET_LATER_FRAGMENT || !is_icmp(packet))
		return parsed;
	kind = icmp_kind(ctx, packet);
	if (kind == EQP_ICMP_SHORT)
		return EQP_DROP(EQP_DROP_HEADER_SHORT);
	if (kind != EQP_ICMP_ERROR || packet->flags & EQP_PACKET_FIRST_FRAGMENT)
		return parsed;
	return read_quoted(ctx, packet);
}

/*
 * Handles a packet to a source address. `parsed`: result of parse(). Packets of no flow belong to
 * this machine, if it has the address.
 */
eqp_cold int handle_full_nat_reply(struct eqp_context *ctx, struct eqp_job *job, int parsed)
{
	struct eqp_packet *packet = &job->packet;
	bool is_later = parsed == EQP_RARE && packet->flags & EQP_PACKET_LATER_FRAGMENT;
	struct eqp_answered answered = {};
	__u64 index, now;

	parsed = read_answered(ctx, packet, parsed);
	if (parsed < 0)
		return parsed;
	if (!is_later && parsed != EQP_GO_ON)
		return leave_unserved(ctx, job);
	if (!(is_later ? answered_by_first(job, &answered) : answered_by_key(job, &answered)) ||
	    !port_is_same(answered.word, eqp_read_once(answered.port->word))) {
		job->service = NULL;
		return leave_unserved(ctx, job);
	}
	if (packet->flags & EQP_PACKET_FIRST_FRAGMENT) {
		index = answered.port->key & (limits.ports_max - 1);
		job->digest = index | answered.word >> EQP_PORT_COUNT_SHIFT << EQP_ANSWERED_COUNT_SHIFT;
		job->slot = EQP_NO_SLOT;
		remember_fragment(job);
	}
	if (!(packet->flags & (EQP_PACKET_ICMP_ERROR | EQP_PACKET_LATER_FRAGMENT))) {
		now = port_now(port_answered(ctx, packet, answered.word));
		/* Unless another CPU is faster. */
		if (now != answered.word)
			__sync_val_compare_and_swap(&answered.port->word, answered.word, now);
	}
	return answer_client(ctx, job, &answered);
}

#endif
