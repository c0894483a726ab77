//! A simple worker: counts the words of each item, on as many threads as there are cores.
//!
//!     cargo run --example worker -- DOMAIN SLICES NAME
//!
//! It needs a controller: `equipoise run` with a `[[slice]]` table of the same domain and number of
//! slices. When its standard input ends, it hands over its slices and ends.

use std::error::Error;
use std::io::Read;
use std::thread::{available_parallelism, sleep};
use std::time::{Duration, Instant};

use equipoise_slice_dds::worker::{Options, Threads, Worker};
use equipoise_slice_dds::{DataItem, Stream};

fn words(item: &DataItem<'_>) -> Vec<u8> {
    let text = String::from_utf8_lossy(item.message);
    text.split_whitespace().count().to_string().into_bytes()
}

fn main() -> Result<(), Box<dyn Error>> {
    let args: Vec<String> = std::env::args().skip(1).collect();
    let [domain, slices, name] = args.as_slice() else {
        return Err("usage: worker DOMAIN SLICES NAME".into());
    };
    let stream = Stream { domain: domain.parse()?, ..Stream::default() };
    let threads = available_parallelism().map_or(1, usize::from);
    let options = Options { jobs_max: threads, ..Options::new(name, slices.parse()?) };
    let worker = Worker::start(&stream, options, Threads::new(threads, words))?;
    std::io::stdin().read_to_end(&mut Vec::new())?;

    worker.leave();
    let end = Instant::now() + Duration::from_secs(30);
    while worker.slices() + worker.handovers() + worker.queued() > 0 && Instant::now() < end {
        sleep(Duration::from_millis(20));
    }
    println!("{} items done, {} slices left", worker.done(), worker.slices());
    Ok(worker.stop()?)
}
