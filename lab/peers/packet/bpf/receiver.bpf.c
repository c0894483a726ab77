// SPDX-License-Identifier: (Apache-2.0 OR GPL-2.0-only)
/* Counts what comes back from the balancer, and ends it. */
#include <linux/bpf.h>
#include <linux/if_ether.h>
#include <linux/in.h>
#include <linux/ip.h>

#include <bpf/bpf_endian.h>
#include <bpf/bpf_helpers.h>

/* One CPU receives; userspace reads. */
struct received {
	__u64 tunnelled; /* IPIP */
	__u64 direct;    /* to the MAC address of a backend */
	__u64 other;
};

struct received received;

SEC("xdp")
int receive(struct xdp_md *ctx)
{
	struct ethhdr *ethernet = (void *)(long)ctx->data;
	struct iphdr *ip = (void *)(ethernet + 1);

	if ((void *)(ip + 1) > (void *)(long)ctx->data_end || ethernet->h_proto != bpf_htons(ETH_P_IP))
		received.other++;
	else if (ip->protocol == IPPROTO_IPIP)
		received.tunnelled++;
	else if (ethernet->h_dest[3] == 1) /* 02:00:00:01:..., see mac() in katran_style.rs */
		received.direct++;
	else
		received.other++;
	return XDP_DROP;
}

char _license[] SEC("license") = "Dual BSD/GPL";
