//! Tables of a load balancer: hosts with capacities, flows that keep their host, and a reader that
//! sees each change atomically.
//!
//! cargo run -p equipoise-pog --example load_balancer

use std::error::Error;
use std::sync::Arc;
use std::time::Duration;

use equipoise_pog::publish::{Publisher, Reader, Region, SharedSizes};
use equipoise_pog::{FiveTupleV4, Plain, PogBuilder, Sdlb, SipHash13};

const TABLE_BITS: u32 = 12;
const FLOWS_MAX: usize = 10_000;
const TCP: u8 = 6;

fn flow(client: u32) -> FiveTupleV4 {
    let source = ((0x0a00_0000 + client).into(), 40_000);
    FiveTupleV4::new(source, ([192, 0, 2, 10].into(), 443), TCP)
}

fn main() -> Result<(), Box<dyn Error>> {
    // Host 2 has twice the capacity of the others.
    let hosts = [(1, 100), (2, 200), (3, 100)];
    let mut sdlb = Sdlb::<FiveTupleV4>::new(&PogBuilder::new(), TABLE_BITS, &hosts)?;

    // 5000 connections are established, each on the host that received its first packet.
    for client in 0..5000 {
        sdlb.register_here(flow(client))?;
    }
    let before: Vec<u16> = (0..5000).map(|client| sdlb.host(&flow(client))).collect();

    // The data plane reads shared memory. Another process or a BPF program could do the same.
    let sizes = SharedSizes::new(FLOWS_MAX, Some(TABLE_BITS));
    let region = Arc::new(Region::anonymous(sizes.bytes::<u16>())?);
    let (image, table) = (sdlb.keys().pog(), Some(sdlb.table()));
    let grace = Duration::from_millis(1);
    let mut publisher = Publisher::create(region.clone(), sizes, grace, image, table)?;
    let reader = Reader::<u16, SipHash13, Plain>::open(region, Plain)?;

    // Host 4 joins and host 1 leaves. Flows use most entries of the table, so only few can move at
    // first ...
    sdlb.join(4, 100)?;
    let moved = sdlb.leave(1)?.moved;
    println!("host 1 leaves: {} entries moved, {} are held by flows", moved.moved, moved.held);
    // ... and merging releases entries.
    for host in [1, 2, 3] {
        let moved = sdlb.merge_host(host)?.moved;
        println!("host {host} merged: {} entries went to others", moved.moved);
    }
    publisher.publish(sdlb.keys().pog(), Some(sdlb.table()))?;

    let stayed = (0..5000).filter(|at| reader.host(&flow(*at)) == before[*at as usize]).count();
    println!("{stayed} of 5000 established flows are where they were");
    let mut new_flows = [0; 5];
    for client in 100_000..200_000 {
        new_flows[usize::from(reader.host(&flow(client)))] += 1;
    }
    println!("100000 new flows by host: {:?}", &new_flows[1..]);
    Ok(())
}
