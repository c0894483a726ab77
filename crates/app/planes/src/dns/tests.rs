use std::sync::atomic::{AtomicUsize, Ordering};

use equipoise_dns::Name;
use equipoise_dns::config::NameServer;

use super::*;

pub(super) fn config() -> DnsConfig {
    let name = |text: &str| Name::vec_from_str(text).unwrap();
    let zone = ZoneConfig {
        origin: name("cluster.example."),
        ttl: 60,
        negative_ttl: 30,
        serial: 1,
        mailbox: name("hostmaster.cluster.example."),
        servers: vec![NameServer { name: name("ns.other.example."), addresses: Vec::new() }],
        nodes: Vec::new(),
        names: Vec::new(),
        records: Vec::new(),
    };
    let listen = vec!["127.0.0.1:0".parse().unwrap()];
    DnsConfig { listen, zones: vec![Arc::new(zone)], ..DnsConfig::default() }
}

#[tokio::test]
async fn each_caller_reads_observations_only_after_it_has_the_lock() {
    let plane = Arc::new(DnsPlane::new(1, None, Default::default(), Challenges::default()));
    let nothing = || (Arc::default(), PlannedShares::new());
    plane.follow(config(), nothing).await.unwrap();
    let asked = Arc::new(AtomicUsize::new(0));
    // Another task is about to publish a snapshot.
    let busy = plane.state.lock().await;
    let telling = [true, false].map(|sync| {
        let (plane, asked) = (Arc::clone(&plane), Arc::clone(&asked));
        let seen = move || {
            asked.fetch_add(1, Ordering::Relaxed);
            nothing()
        };
        tokio::spawn(async move {
            match sync {
                true => plane.sync(seen).await,
                false => plane.follow(config(), seen).await.unwrap(),
            }
        })
    });
    // The test has one thread: both tasks wait for the lock now.
    tokio::task::yield_now().await;
    tokio::task::yield_now().await;
    assert_eq!(
        asked.load(Ordering::Relaxed),
        0,
        "what is read now may be old when it is their turn"
    );
    drop(busy);
    for task in telling {
        task.await.unwrap();
    }
    assert_eq!(asked.load(Ordering::Relaxed), 2);
    plane.stop().await;
}
