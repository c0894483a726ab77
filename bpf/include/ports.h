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
 * none in the first EQP_PORT_TRIES_FREE, it replaces the oldest flow of them that is unproven or
 * was reset, or the next such flow: a flood of forged packets neither occupies the ports nor makes
 * each of its packets expensive. It never replaces an established or closing flow before it
 * expires.
 *
 * A TCP flow is established when the client acknowledges the backend's SYN-ACK: the upper 11 bits
 * of the acknowledgement are those of the SYN-ACK's sequence number plus one, or the next value,
 * since the first ACK may be lost and a later one acknowledges data. A blind guess succeeds once in
 * 1024 packets. Only an established flow can become closing by its client's packets.
 *
 * Lines of EQP_PORT_WAYS words lead from a flow to its place, by the digest of the five-tuple
 * (whatever the service's key). A word has the upper 34 bits of the digest, a set bit, and the
 * index. The place has the whole digest, and decides. The words of expired flows stay until their
 * place or their way is used again, so such a flow may return to its place. It gets another one if
 * replies to the place would not be translated, because its address is no source any more.
 *
 * The word of a place has
 *   16 bits: time of the last packet, in ticks of 2^31 ns
 *    3 bits: the stage
 *    1 bit:  UDP
 *    1 bit:  set
 *   11 bits: answered TCP: the acknowledgement that the client owes, without its lower 21 bits
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
/* After so many tries it no longer looks for a free place if it has found one to replace. */
#define EQP_PORT_TRIES_FREE 8
/* Lifetime of a flow that is unproven or was reset, in ticks: 10 s. */
#define EQP_PORT_SHORT 5
/* Of one packet of UDP and its answer, as in Linux (nf_conntrack_udp_timeout): 30 s. */
#define EQP_PORT_ONE_ANSWER 14

#define EQP_PORT_STAGE_SHIFT 16
#define EQP_PORT_STAGE_MASK 7
#define EQP_PORT_UDP (1ull << 19)
#define EQP_PORT_SET (1ull << 20)
#define EQP_PORT_OWED_SHIFT 21
#define EQP_PORT_OWED_MASK 0x7ff
#define EQP_PORT_BACKEND_SHIFT 32
#define EQP_PORT_COUNT_SHIFT 48

#define EQP_PORT_INDEX_SET (1ull << 29)
#define EQP_PORT_INDEX_MASK (EQP_PORT_INDEX_SET - 1)
#define EQP_PORT_DIGEST_SHIFT 30

#define EQP_TCP_SEQUENCE 4
#define EQP_TCP_ACKNOWLEDGEMENT 8

/* Separates the hash of places from those of flows. */
#define EQP_PORT_SALT 0x6571705f706f7274ull

enum eqp_port_stage {
	EQP_PORT_TAKEN = 0,    /* its fields are being written */
	EQP_PORT_OPENING = 1,  /* the client sent a packet */
	EQP_PORT_ANSWERED = 2, /* the backend answered */
	EQP_PORT_ESTABLISHED = 3, /* the client acknowledged the answer; UDP: it sent again */
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

/* The word of the same flow, at another stage. */
eqp_inline __u64 port_at_stage(__u64 word, __u64 stage)
{
	return (word & ~((__u64)EQP_PORT_STAGE_MASK << EQP_PORT_STAGE_SHIFT)) | stage << EQP_PORT_STAGE_SHIFT;
}

/* Whether two words are of the same flow. */
eqp_inline bool port_is_same(__u64 word, __u64 other)
{
	return !((word ^ other) >> EQP_PORT_COUNT_SHIFT);
}

/*
 * Whether the flow may lose its port to another one before it expires: no client has proved its
 * address, or the backend has no connection.
 */
eqp_inline bool port_is_unproven(__u64 word)
{
	__u64 stage = port_stage(word);

	return stage == EQP_PORT_OPENING || stage == EQP_PORT_ANSWERED || stage == EQP_PORT_RESET;
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

/* The word with the current time. */
eqp_inline __u64 port_now(__u64 word)
{
	return (word & ~(__u64)EQP_TRANSLATED_TIME_MASK) | translated_tick();
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

/* Returns the 32 bits at an offset in the packet's TCP header, in host order. */
eqp_inline __u32 port_tcp_field(const struct eqp_context *ctx, const struct eqp_packet *packet, __u32 field)
{
	__be32 *at = packet_at(ctx, (__u64)packet->l4 + field, sizeof(*at));

	return at ? eqp_ntohl(*at) : 0;
}

/* Whether the client's packet shows that it received the backend's answer. UDP: any does. */
eqp_inline bool port_is_proven(const struct eqp_context *ctx, const struct eqp_packet *packet, __u64 word)
{
	__u32 acknowledged;

	if (packet->protocol != IPPROTO_TCP)
		return true;
	if (!(packet->tcp_flags & EQP_TCP_ACK))
		return false;
	acknowledged = port_tcp_field(ctx, packet, EQP_TCP_ACKNOWLEDGEMENT) >> EQP_PORT_OWED_SHIFT;
	return ((acknowledged - (word >> EQP_PORT_OWED_SHIFT)) & EQP_PORT_OWED_MASK) <= 1;
}

/* The flow's word after a packet of the client, but for the time. */
eqp_inline __u64 port_asked(const struct eqp_context *ctx, const struct eqp_packet *packet, __u64 word)
{
	__u64 stage = port_stage(word);

	if (stage == EQP_PORT_ANSWERED && port_is_proven(ctx, packet, word))
		stage = EQP_PORT_ESTABLISHED;
	if (packet->tcp_flags & (EQP_TCP_FIN | EQP_TCP_RST))
		stage = stage == EQP_PORT_ESTABLISHED ? EQP_PORT_CLOSING : stage;
	else if (packet_opens(packet) && stage > EQP_PORT_ESTABLISHED)
		stage = EQP_PORT_OPENING;
	return port_at_stage(word, stage);
}

/* The flow's word after a packet of the backend, but for the time. */
eqp_inline __u64 port_answered(const struct eqp_context *ctx, const struct eqp_packet *packet, __u64 word)
{
	__u64 stage = port_stage(word), owed;

	if (packet->tcp_flags & EQP_TCP_RST)
		return port_at_stage(word, EQP_PORT_RESET);
	if (packet->tcp_flags & EQP_TCP_FIN)
		return port_at_stage(word, EQP_PORT_CLOSING);
	if (stage != EQP_PORT_OPENING && stage != EQP_PORT_ANSWERED)
		return word;
	if (packet->protocol != IPPROTO_TCP)
		return port_at_stage(word, EQP_PORT_ANSWERED);
	if (~packet->tcp_flags & (EQP_TCP_SYN | EQP_TCP_ACK))
		return word;
	owed = (port_tcp_field(ctx, packet, EQP_TCP_SEQUENCE) + 1) >> EQP_PORT_OWED_SHIFT;
	word &= ~((__u64)EQP_PORT_OWED_MASK << EQP_PORT_OWED_SHIFT);
	return port_at_stage(word | owed << EQP_PORT_OWED_SHIFT, EQP_PORT_ANSWERED);
}

#endif
