/* SPDX-License-Identifier: (Apache-2.0 OR GPL-2.0-only) */
/*
 * The maps, the state of one packet's processing, and bounded access to the arrays. Every index is
 * compared with a constant of `limits`: whatever the memory contains, no access exceeds it.
 */
#ifndef EQP_TABLES_H
#define EQP_TABLES_H

#include "compat.h"
#include "parse.h"

#ifndef EQP_HOST

const volatile struct eqp_limits limits = {};

/* Userspace sets the sizes before it loads the program. */
#define EQP_SHARED_MAP(name)                             \
	struct {                                         \
		__uint(type, BPF_MAP_TYPE_ARRAY);        \
		__uint(map_flags, BPF_F_MMAPABLE);       \
		__uint(max_entries, 1);                  \
		__uint(key_size, sizeof(__u32));         \
		__uint(value_size, 64);                  \
	} name SEC(".maps")

EQP_SHARED_MAP(tables);
EQP_SHARED_MAP(state);
EQP_SHARED_MAP(cpus);
EQP_SHARED_MAP(ports);

/* The map in its entry, if there is one, has a value of limits.translated_lines lines. */
struct {
	__uint(type, BPF_MAP_TYPE_ARRAY_OF_MAPS);
	__uint(max_entries, 1);
	__uint(key_size, sizeof(__u32));
	__uint(value_size, sizeof(__u32));
} translated SEC(".maps");

struct {
	__uint(type, BPF_MAP_TYPE_LRU_HASH);
	__uint(max_entries, 16384);
	__type(key, struct eqp_fragment_key);
	__type(value, struct eqp_fragment);
} fragments SEC(".maps");

eqp_inline unsigned char *tables_memory(void)
{
	__u32 zero = 0;

	return bpf_map_lookup_elem(&tables, &zero);
}

eqp_inline unsigned char *state_memory(void)
{
	__u32 zero = 0;

	return bpf_map_lookup_elem(&state, &zero);
}

eqp_inline unsigned char *ports_memory(void)
{
	__u32 zero = 0;

	return bpf_map_lookup_elem(&ports, &zero);
}

/* NULL: no VIP has had nat. */
eqp_inline unsigned char *translated_memory(void)
{
	__u32 zero = 0;
	void *lines = bpf_map_lookup_elem(&translated, &zero);

	return lines ? bpf_map_lookup_elem(lines, &zero) : NULL;
}

eqp_inline unsigned char *cpu_memory(void)
{
	__u32 cpu = bpf_get_smp_processor_id();

	return bpf_map_lookup_elem(&cpus, &cpu);
}

eqp_inline struct eqp_fragment *fragment_find(const struct eqp_fragment_key *key)
{
	return bpf_map_lookup_elem(&fragments, key);
}

eqp_inline void fragment_put(const struct eqp_fragment_key *key, const struct eqp_fragment *fragment)
{
	bpf_map_update_elem(&fragments, key, fragment, BPF_ANY);
}

#endif

/* State of one packet's processing. */
struct eqp_job {
	unsigned char *copy; /* current copy of the tables */
	unsigned char *state;
	unsigned char *cpu;
	struct eqp_service *service; /* NULL: unknown (yet) */
	struct eqp_backend *backend;
	__u64 digest;
	__u16 slot;
	__u16 service_index;
	__u8 how;
	bool captured; /* the capture takes the packet */
	struct eqp_packet packet;
};

/* Finds the memory; false: there is none, or nothing has been published. */
eqp_inline bool job_begin(struct eqp_job *job)
{
	unsigned char *tables_at = tables_memory();
	struct eqp_tables_header *header = (struct eqp_tables_header *)tables_at;
	__u64 epoch;

	job->service = NULL;
	job->backend = NULL;
	job->how = 0;
	job->captured = false;
	job->state = state_memory();
	job->cpu = cpu_memory();
	if (!tables_at || !job->state || !job->cpu)
		return false;
	/*
	 * The address of everything read below depends on this word, which orders the loads. The copy does
	 * not change while this packet is processed: its publisher does not write to it during a grace
	 * period after the next flip.
	 */
	epoch = eqp_read_once(header->epoch);
	job->copy = tables_at + sizeof(*header) + (epoch & 1) * limits.copy_bytes;
	return epoch != 0;
}

eqp_inline struct eqp_copy_header *copy_header(const struct eqp_job *job)
{
	return (struct eqp_copy_header *)job->copy;
}

eqp_inline struct eqp_directory *directory(const struct eqp_job *job)
{
	return (struct eqp_directory *)(job->copy + limits.directory_offset);
}

/* `count` and `offset` are constants of `limits`; NULL: the index is out of range. */
#define EQP_TABLE(function, type, table)                                                    \
	eqp_inline type *function(const struct eqp_job *job, __u64 index)                   \
	{                                                                                   \
		eqp_opaque(index);                                                          \
		if (index >= limits.table##_max)                                            \
			return NULL;                                                        \
		return (type *)(job->copy + limits.table##_offset + index * sizeof(type));  \
	}

EQP_TABLE(range_at, struct eqp_range, ranges)
EQP_TABLE(service_at, struct eqp_service, services)
EQP_TABLE(backend_at, struct eqp_backend, backends)
EQP_TABLE(access_change_at, struct eqp_access_change, changes)
EQP_TABLE(source_at, struct eqp_source, sources)

/* Returns the sources of a service number, or NULL. */
eqp_inline struct eqp_source_set *source_set_at(const struct eqp_job *job, __u64 number)
{
	eqp_opaque(number);
	if (number >= limits.services_max)
		return NULL;
	return (struct eqp_source_set *)(job->copy + limits.source_sets_offset +
					 number * sizeof(struct eqp_source_set));
}

/* The sizes of these tables are powers of two, and the index is masked. */
eqp_inline struct eqp_vip *vip_at(const struct eqp_job *job, __u64 index)
{
	index &= limits.vips_max - 1;
	return (struct eqp_vip *)(job->copy + limits.vips_offset + index * sizeof(struct eqp_vip));
}

eqp_inline struct eqp_reverse *reverse_at(const struct eqp_job *job, __u64 index)
{
	index &= limits.reverse_max - 1;
	return (struct eqp_reverse *)(job->copy + limits.reverse_offset + index * sizeof(struct eqp_reverse));
}

eqp_inline struct eqp_mac *mac_at(const struct eqp_job *job, __u64 index)
{
	index &= EQP_MACS - 1;
	return (struct eqp_mac *)(job->copy + limits.macs_offset + index * sizeof(struct eqp_mac));
}

/* Returns a slot of a ring; EQP_NO_SLOT: the ring does not exist. */
eqp_inline __u32 ring_at(const struct eqp_job *job, __u32 ring, __u32 position)
{
	__u64 index = (__u64)ring * limits.ring_entries + position;

	eqp_opaque(index);
	if (index >= (__u64)limits.rings_max * limits.ring_entries)
		return EQP_NO_SLOT;
	return *(__u16 *)(job->copy + limits.rings_offset + index * sizeof(__u16));
}

/* Returns the backend of a slot if it may receive packets, else NULL. */
eqp_inline struct eqp_backend *live_backend(const struct eqp_job *job, __u32 slot)
{
	struct eqp_backend *backend;

	if (slot >= job->service->slots)
		return NULL;
	backend = backend_at(job, (__u64)job->service->backends_first + slot);
	return backend && backend->flags & EQP_BACKEND_LIVE ? backend : NULL;
}

#endif
