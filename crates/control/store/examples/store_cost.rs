//! Measures a store's throughput, and how long an office is vacant after its leader dies.
//!
//!     cargo run --profile dist -p equipoise-store --example store_cost -- FILE [ETCD-ENDPOINT]
//!
//! The example overwrites FILE, which must be on the disk to measure.

use std::sync::Arc;
use std::time::{Duration, Instant};

use equipoise_store::{
    Election, Embedded, EmbeddedOptions, Etcd, EtcdOptions, Key, Prefix, Store, Transaction,
};

type Failed = Box<dyn std::error::Error>;

const SECONDS: f64 = 3.0;

fn key(index: u64) -> Key {
    Key::new(&format!("cost/{}", index % 1000)).expect("segments")
}

/// Writes values of 200 bytes with this many concurrent tasks. Returns writes per second, and the
/// median latency in microseconds.
async fn puts(store: &Arc<dyn Store>, tasks: u64) -> Result<(f64, u128), Failed> {
    let start = Instant::now();
    let work = |task: u64| {
        let store = store.clone();
        tokio::spawn(async move {
            let mut each_us = Vec::new();
            while start.elapsed().as_secs_f64() < SECONDS {
                let asked = Instant::now();
                let put = Transaction::new().put(key(task * 1000 + each_us.len() as u64), [7; 200]);
                let done = store.commit(put).await.map(|committed| committed.done());
                done.expect("the store works").expect("there is no condition");
                each_us.push(asked.elapsed().as_micros());
            }
            each_us
        })
    };
    let mut all_us = Vec::new();
    for task in (0..tasks).map(work).collect::<Vec<_>>() {
        all_us.extend(task.await?);
    }
    all_us.sort_unstable();
    Ok((all_us.len() as f64 / start.elapsed().as_secs_f64(), all_us[all_us.len() / 2]))
}

async fn measure(name: &str, store: Arc<dyn Store>) -> Result<(), Failed> {
    for tasks in [1, 16, 256] {
        let (per_second, median_us) = puts(&store, tasks).await?;
        println!(
            "{name}: {per_second:.0} durable puts/s by {tasks} at once, median {median_us} us"
        );
    }
    let start = Instant::now();
    let mut count = 0;
    while start.elapsed().as_secs_f64() < SECONDS {
        store.get(&key(count)).await?;
        count += 1;
    }
    println!("{name}: {:.0} gets/s", count as f64 / start.elapsed().as_secs_f64());
    let start = Instant::now();
    let entries = store.list(&Prefix::of("cost")?).await?.entries.len();
    println!("{name}: {entries} entries listed in {:?}", start.elapsed());

    let election = Election::new(store, "cost", Duration::from_secs(2))?;
    let mut vacant = Vec::new();
    let mut leader = election.campaign("0").await?;
    for _ in 0..5 {
        let next = election.clone();
        let next = tokio::spawn(async move { next.campaign("next").await });
        tokio::time::sleep(Duration::from_millis(1300)).await;
        drop(leader);
        let died = Instant::now();
        leader = next.await??;
        vacant.push(died.elapsed());
    }
    println!("{name}: vacant after a leader with a 2 s lease died: {vacant:.2?}");
    Ok(())
}

#[tokio::main(flavor = "current_thread")]
async fn main() -> Result<(), Failed> {
    let mut arguments = std::env::args().skip(1);
    let file = arguments.next().ok_or("which file?")?;
    let _ = std::fs::remove_file(&file);
    measure("embedded", Arc::new(Embedded::open(EmbeddedOptions::new(&file)).await?)).await?;
    println!("embedded: the file has {} bytes", std::fs::metadata(&file)?.len());
    if let Some(endpoint) = arguments.next() {
        let mut options = EtcdOptions::new([endpoint]);
        options.namespace = "cost".to_string();
        measure("etcd", Arc::new(Etcd::connect(options).await?)).await?;
    }
    Ok(())
}
