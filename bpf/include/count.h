/* SPDX-License-Identifier: (Apache-2.0 OR GPL-2.0-only) */
/* Counters of this CPU. Only its program writes them, so nothing is atomic. */
#ifndef EQP_COUNT_H
#define EQP_COUNT_H

#include "tables.h"

/* Counts a drop or a note, in the row of a service number. */
eqp_inline void count_reason_of(const struct eqp_job *job, __u64 row, __u32 reason)
{
	__u64 *counters;

	eqp_opaque(row);
	if (row > limits.services_max)
		row = limits.services_max;
	counters = (__u64 *)(job->cpu + limits.cpu_reasons_offset) + row * EQP_REASONS;
	/*
	 * Two separate additions: the compiler would `or` the sum, and the verifier would lose the bounds.
	 */
	eqp_opaque(counters);
	counters[reason & (EQP_REASONS - 1)]++;
}

/*
 * Counts a drop or a note in the row of the packet's service, or in the last row if that is
 * unknown.
 */
eqp_inline void count_reason(const struct eqp_job *job, __u32 reason)
{
	count_reason_of(job, job->service ? job->service->number : limits.services_max, reason);
}

/* Counts a packet that is dropped after its backend was chosen. */
eqp_inline void count_backend_drop(const struct eqp_job *job)
{
	__u64 backend = job->backend->number;

	eqp_opaque(backend);
	if (backend < limits.backends_max)
		((__u64 *)(job->cpu + limits.cpu_backend_drops_offset))[backend]++;
}

/*
 * Counts a forwarded packet. It has a service and a backend: the check is for the verifier of
 * Linux 6.1, which does not derive that from the action.
 */
eqp_inline void count_forwarded(const struct eqp_job *job)
{
	struct eqp_counter *counter;
	__u64 service, backend;
	__u64 *hows;

	if (eqp_unlikely(!job->service || !job->backend))
		return;
	service = job->service->number;
	backend = job->backend->number;
	eqp_opaque(service);
	eqp_opaque(backend);
	if (service >= limits.services_max || backend >= limits.backends_max)
		return;
	counter = (struct eqp_counter *)(job->cpu + limits.cpu_services_offset) + service;
	counter->packets++;
	counter->bytes += job->packet.frame;
	counter = (struct eqp_counter *)(job->cpu + limits.cpu_backends_offset) + backend;
	counter->packets++;
	counter->bytes += job->packet.frame;
	hows = (__u64 *)(job->cpu + limits.cpu_hows_offset) + service * EQP_HOWS;
	eqp_opaque(hows);
	hows[job->how & (EQP_HOWS - 1)]++;
}

#endif
