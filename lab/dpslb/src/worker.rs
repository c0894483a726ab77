//! A worker process: greyscale for images, and so long a wait for everything else.

use std::io::{Read, Write};
use std::sync::Mutex;
use std::time::Duration;

use equipoise_dds::items::DataItem;
use equipoise_slice_runtime::worker::{Options, Threads, Worker};

use crate::cluster::stream;
use crate::image;

#[derive(clap::Args)]
pub(crate) struct Args {
    #[arg(long)]
    pub(crate) name: String,
    #[arg(long)]
    pub(crate) domain: u32,
    #[arg(long)]
    pub(crate) slices: u32,
    /// Each item occupies the thread for so many microseconds
    #[arg(long, default_value_t = 0)]
    pub(crate) work_us: u64,
    /// Lose so many of 1000 packets
    #[arg(long, default_value_t = 0)]
    pub(crate) loss_permille: u16,
    /// A file with the ids of items that were done, 8 bytes each, in order
    #[arg(long)]
    pub(crate) log: std::path::PathBuf,
}

/// Runs until its standard input ends.
pub(crate) fn run(args: Args) -> anyhow::Result<()> {
    let log = std::fs::OpenOptions::new().create(true).append(true).open(&args.log)?;
    let log = Mutex::new(log);
    let work = Duration::from_micros(args.work_us);
    let process = move |item: &DataItem<'_>| {
        if !work.is_zero() {
            std::thread::sleep(work);
        }
        let reply = match image::grey(item.message) {
            Some(grey) => format!("processed {} pixels", grey.len()).into_bytes(),
            None => b"processed".to_vec(),
        };
        // One write of few bytes: whole or not at all, whoever kills us.
        let mut log = log.lock().unwrap_or_else(std::sync::PoisonError::into_inner);
        if let Err(error) = log.write_all(&item.id.to_le_bytes()) {
            eprintln!("cannot note item {}: {error}", item.id);
        }
        reply
    };
    let options = Options::new(&args.name, args.slices);
    let stream = stream(args.domain, args.loss_permille);
    let worker = Worker::start(&stream, options, Threads::start(1, process)?)?;
    std::io::stdin().read_to_end(&mut Vec::new())?;
    worker.stop()?;
    Ok(())
}
