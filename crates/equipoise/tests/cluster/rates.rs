//! Three nodes of a cluster share the rate of a limit on clients.

use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering::Relaxed};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

use equipoise_testkit::{Client, HttpBackend};

use crate::bed::{Machine, Site, reporting, soon};
use crate::seen::controller;

/// The rate of the limit, a second.
const RATE: usize = 100;
/// Time over which admitted requests are counted.
const WINDOW: Duration = Duration::from_secs(10);

/// Requests at a constant rate, over one connection.
struct Offer {
    stop: Arc<AtomicBool>,
    admitted: Arc<AtomicUsize>,
    refused: Arc<AtomicUsize>,
    thread: Option<JoinHandle<()>>,
}

impl Offer {
    fn start(address: SocketAddr, per_second: u32) -> Offer {
        let (stop, admitted, refused) = (Arc::default(), Arc::default(), Arc::default());
        let mut offer = Offer { stop, admitted, refused, thread: None };
        let (stop, admitted, refused) =
            (Arc::clone(&offer.stop), Arc::clone(&offer.admitted), Arc::clone(&offer.refused));
        offer.thread = Some(thread::spawn(move || {
            let (mut client, begun) = (Client::connect(address), Instant::now());
            for number in 0.. {
                let due = begun + Duration::from_secs(1) * number / per_second;
                thread::sleep(due.saturating_duration_since(Instant::now()));
                if stop.load(Relaxed) {
                    return;
                }
                let response = client.ask("GET / HTTP/1.1\r\nHost: localhost\r\n\r\n");
                match response.expect("an answer").status() {
                    200 => admitted.fetch_add(1, Relaxed),
                    429 => refused.fetch_add(1, Relaxed),
                    other => panic!("{other}"),
                };
            }
        }));
        offer
    }

    fn admitted(&self) -> usize {
        self.admitted.load(Relaxed)
    }
}

impl Drop for Offer {
    fn drop(&mut self) {
        self.stop.store(true, Relaxed);
        let _ = self.thread.take().map(JoinHandle::join);
    }
}

/// Requests that were admitted in this time, by offer.
fn admitted_in(time: Duration, offers: &[Offer]) -> Vec<usize> {
    let before: Vec<usize> = offers.iter().map(Offer::admitted).collect();
    thread::sleep(time);
    offers.iter().zip(before).map(|(offer, before)| offer.admitted() - before).collect()
}

/// Waits until the nodes together admit about the rate, and then counts for a whole window.
fn settled(what: &str, offers: &[Offer]) -> Vec<usize> {
    let near = |count: usize, seconds: usize| {
        (85 * seconds * RATE..=115 * seconds * RATE).contains(&(100 * count))
    };
    soon(what, || near(admitted_in(Duration::from_secs(2), offers).iter().sum(), 2));
    let admitted = admitted_in(WINDOW, offers);
    println!("{what}: {admitted:?} of {RATE}/s in {WINDOW:?}");
    assert!(near(admitted.iter().sum(), WINDOW.as_secs() as usize), "{what}: {admitted:?}");
    admitted
}

#[test]
fn nodes_admit_the_rate_together_by_demand_and_keep_their_shares_without_controllers() {
    let backend = HttpBackend::named("served");
    let Some(site) = Site::new("cluster-rates") else { return };
    let mut one = controller(&site, &backend);
    let mut nodes = ["n1", "n2", "n3"].map(|name| {
        let node = site.node(name, backend.address(), std::slice::from_ref(&one));
        let text = std::fs::read_to_string(&node.file).unwrap();
        let limit = format!(
            "[[session]]\nname = \"door\"\nlimit = [{{ by = \"front-door\", rate = \"{RATE}/s\", \
             burst = 10, shared = true }}]\n"
        );
        std::fs::write(&node.file, text.replace("[[session]]\n", &limit)).unwrap();
        node
    });
    nodes.iter_mut().for_each(Machine::start);
    one.until("all report", |status| reporting(status).len() == 4);
    let offer = |node: usize, per_second| Offer::start(nodes[node].door.address(), per_second);

    // 300 a second in all, three times the rate.
    let mut offers = vec![offer(0, 180), offer(1, 90), offer(2, 30)];
    let admitted = settled("by demand", &offers);
    assert!(admitted[0] > admitted[1] && admitted[1] > admitted[2], "{admitted:?}");
    assert!(offers.iter().all(|offer| offer.refused.load(Relaxed) > 0));

    // The clients of the first node go to the third.
    offers[0] = offer(2, 180);
    let admitted = settled("after a move", &offers);
    assert!(admitted[0] + admitted[2] > admitted[1], "{admitted:?}");

    // Nodes keep their shares when no controller answers any more.
    one.kill();
    thread::sleep(Duration::from_secs(5));
    settled("without controllers", &offers);
}
