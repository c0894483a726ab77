// SPDX-License-Identifier: (Apache-2.0 OR GPL-2.0-only)
/* The programs, and the functions that lib.rs calls. */
#include <stdlib.h>

#include "../../balancer.bpf.c"
#include "../../decap.bpf.c"

_Thread_local struct eqp_host *eqp_host;

struct eqp_host *eqp_host_new(unsigned char *tables, unsigned char *state, unsigned char *cpus,
			      unsigned char *ports, unsigned char *translated, const unsigned char *constants)
{
	struct eqp_host *host = calloc(1, sizeof(*host));

	if (!host)
		return NULL;
	host->tables = tables;
	host->state = state;
	host->cpus = cpus;
	host->ports = ports;
	host->translated = translated;
	memcpy(&host->constants, constants, sizeof(host->constants));
	return host;
}

void eqp_host_free(struct eqp_host *host)
{
	free(host);
}

void eqp_host_set_clock(struct eqp_host *host, __u64 now_ns)
{
	host->clock_ns = now_ns;
}

void eqp_host_set_decapsulation(struct eqp_host *host, const struct eqp_decapsulation *constants)
{
	host->decapsulation_constants = *constants;
}

void eqp_host_set_decapsulation_mac(struct eqp_host *host, const unsigned char *mac)
{
	memcpy(host->decapsulation_mac.address, mac, sizeof(host->decapsulation_mac.address));
}

/* Returns 0 if the table is full. */
int eqp_host_add_backend(struct eqp_host *host, const struct eqp_host_backend *backend)
{
	if (host->backends == EQP_HOST_BACKENDS)
		return 0;
	host->backend[host->backends++] = *backend;
	return 1;
}

void eqp_host_set_socket(struct eqp_host *host, int has_socket)
{
	host->has_socket = has_socket;
}

/* Returns the number of packets that the decapsulating program counted as `which`. */
__u64 eqp_host_decapsulated(const struct eqp_host *host, enum eqp_decapsulated which)
{
	return host->decapsulated[which].packets;
}

void eqp_host_forget_routes(struct eqp_host *host)
{
	host->routes = 0;
}

/* Returns 0 if the table is full. */
int eqp_host_add_route(struct eqp_host *host, const struct eqp_host_route *route)
{
	if (host->routes == EQP_HOST_ROUTES)
		return 0;
	host->route[host->routes++] = *route;
	return 1;
}

enum eqp_host_program { EQP_HOST_BALANCE, EQP_HOST_REVERSE, EQP_HOST_DECAPSULATE };

/*
 * Runs a program on the packet between the offsets `begin` and `end` of the buffer, and updates
 * both.
 */
__u32 eqp_host_run(struct eqp_host *host, enum eqp_host_program program, __u32 cpu, __u32 ifindex,
		   unsigned char *buffer, size_t bytes, size_t *begin, size_t *end, __u32 *redirected_to)
{
	struct eqp_context ctx = {
		.room = buffer,
		.room_end = buffer + bytes,
		.data = buffer + *begin,
		.data_end = buffer + *end,
		.ingress_ifindex = ifindex,
	};
	__u32 verdict = XDP_ABORTED;

	eqp_host = host;
	host->cpu = cpu;
	host->redirected_to = 0;
	switch (program) {
	case EQP_HOST_BALANCE:
		verdict = balance(&ctx);
		break;
	case EQP_HOST_REVERSE:
		verdict = reverse(&ctx);
		break;
	case EQP_HOST_DECAPSULATE:
		verdict = decapsulate(&ctx);
		break;
	}
	*begin = ctx.data - buffer;
	*end = ctx.data_end - buffer;
	*redirected_to = host->redirected_to;
	return verdict;
}
