//! The same work by plain Cyclone DDS: one topic of items, one of replies, a reader, a working
//! thread, no slices. The slice level's cost is measured against it. A second thread would not be
//! in the way: it takes items and works on them.

use std::io::Read;
use std::path::PathBuf;
use std::time::Duration;

use equipoise_dds::items::{DATA_ITEM, DataItem, REPLY, Reply};
use equipoise_dds::{Domain, Participant, Qos};

use crate::cluster::stream;
use crate::image;
use crate::trace;
use crate::worker::{Log, hold};

#[derive(clap::Args)]
pub(crate) struct Args {
    #[arg(long)]
    name: String,
    #[arg(long)]
    domain: u32,
    #[arg(long, default_value_t = 0)]
    cost_us: u64,
    #[arg(long, default_value_t = 0.0)]
    share: f64,
    #[arg(long)]
    log: Option<PathBuf>,
}

/// Runs until its standard input ends.
pub(crate) fn run(args: &Args) -> anyhow::Result<()> {
    hold(&args.name, args.share)?;
    let log = Log::open(args.log.as_ref())?;
    let cost = Duration::from_micros(args.cost_us);
    let stream = stream(args.domain, 0);
    let participant = Participant::new(Domain::open(stream.domain, &stream.dds)?, &[])?;
    let items = participant.topic(&stream.items, &DATA_ITEM)?.reader(&Qos::default())?;
    let replies = participant.topic(&stream.replies, &REPLY)?.writer(&Qos::default())?;
    let waitset = participant.waitset()?;
    waitset.attach(&items, 0)?;
    let waker = waitset.waker();
    let ended = std::sync::Arc::new(std::sync::atomic::AtomicBool::new(false));
    let tells = ended.clone();
    std::thread::spawn(move || {
        let _ = std::io::stdin().read_to_end(&mut Vec::new());
        tells.store(true, std::sync::atomic::Ordering::Relaxed);
        waker.wake();
    });
    let (mut samples, mut cdr) = (Vec::new(), Vec::new());
    let way = trace::Way::default();
    while !ended.load(std::sync::atomic::Ordering::Relaxed) {
        waitset.wait(Duration::from_secs(1), &mut Vec::new())?;
        items.take(&mut samples)?;
        for sample in samples.drain(..) {
            let Ok(item) = DataItem::decode(sample.cdr()) else { continue };
            way.note(item.timestamp);
            let message = image::grey_at_cost(item.message, cost);
            log.note(item.id);
            let DataItem { id, timestamp, sender_id, .. } = item;
            Reply { id, timestamp, sender_id, message: &message }.encode(&mut cdr);
            replies.write(&cdr)?;
        }
    }
    Ok(())
}
