//! Persistent connections, each of which repeats requests and records the answering backend.

use std::collections::BTreeMap;
use std::io::{BufRead, BufReader, Write};
use std::net::{SocketAddr, TcpStream};
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread::JoinHandle;

use equipoise_testkit::netns::Host;

use crate::bed::{PATIENCE, soon};

/// The observations of a connection so far.
#[derive(Clone, Debug, Default)]
pub(crate) struct Met {
    /// The backend that answered the first request, and all later ones.
    pub(crate) backend: String,
    pub(crate) answers: usize,
    /// The first error; the connection sends nothing after it.
    pub(crate) failure: Option<String>,
}

type Shared = Arc<Mutex<Vec<Met>>>;

/// Connections from one host to the line service of a VIP.
pub(crate) struct Load {
    stop: Arc<AtomicBool>,
    met: Shared,
    threads: Vec<JoinHandle<()>>,
}

impl Load {
    pub(crate) fn start(client: &Host, vip: SocketAddr, connections: usize) -> Load {
        let mut load = Load { stop: Arc::default(), met: Arc::default(), threads: Vec::new() };
        load.more(client, vip, connections);
        load
    }

    /// Opens further connections, which come last in the result.
    pub(crate) fn more(&mut self, client: &Host, vip: SocketAddr, connections: usize) {
        for _ in 0..connections {
            let (stop, met) = (Arc::clone(&self.stop), Arc::clone(&self.met));
            let place = {
                let mut met = lock(&met);
                met.push(Met::default());
                met.len() - 1
            };
            let work = move || {
                if let Err(failure) = ask_until(vip, &stop, &met, place) {
                    lock(&met)[place].failure = Some(failure);
                }
            };
            self.threads.push(client.spawn_thread(work));
        }
    }

    pub(crate) fn met(&self) -> Vec<Met> {
        lock(&self.met).clone()
    }

    /// Waits until each connection without failure has had `answers` further answers.
    pub(crate) fn wait_for(&self, answers: usize) {
        let before = self.met();
        let done = |(now, before): (&Met, &Met)| {
            now.failure.is_some() || now.answers >= before.answers + answers
        };
        assert!(
            soon(|| self.met().iter().zip(&before).all(done)),
            "the load stands still: {:?}",
            self.met()
        );
    }

    /// The number of connections at each backend.
    pub(crate) fn by_backend(&self) -> BTreeMap<String, usize> {
        let mut counts = BTreeMap::new();
        for met in self.met() {
            *counts.entry(met.backend).or_default() += 1;
        }
        counts
    }

    /// Stops the connections, and returns their observations.
    pub(crate) fn finish(mut self) -> Vec<Met> {
        self.stop.store(true, Relaxed);
        for thread in self.threads.drain(..) {
            thread.join().expect("no connection panics");
        }
        self.met()
    }
}

impl Drop for Load {
    fn drop(&mut self) {
        self.stop.store(true, Relaxed);
    }
}

/// The failures among the observations.
pub(crate) fn failures(met: &[Met]) -> Vec<String> {
    let failed = |met: &Met| met.failure.as_ref().map(|why| format!("{}: {why}", met.backend));
    met.iter().filter_map(failed).collect()
}

fn lock(met: &Mutex<Vec<Met>>) -> MutexGuard<'_, Vec<Met>> {
    met.lock().unwrap_or_else(PoisonError::into_inner)
}

fn ask_until(
    vip: SocketAddr,
    stop: &AtomicBool,
    met: &Mutex<Vec<Met>>,
    place: usize,
) -> Result<(), String> {
    let failed = |what: &str, error: std::io::Error| format!("{what}: {error}");
    let mut stream =
        TcpStream::connect_timeout(&vip, PATIENCE).map_err(|e| failed("connect", e))?;
    stream.set_read_timeout(Some(PATIENCE)).map_err(|e| failed("set up", e))?;
    stream.set_nodelay(true).map_err(|e| failed("set up", e))?;
    let mut answers = BufReader::new(stream.try_clone().map_err(|e| failed("set up", e))?);
    while !stop.load(Relaxed) {
        stream.write_all(b"ask\n").map_err(|e| failed("send", e))?;
        let mut line = String::new();
        answers.read_line(&mut line).map_err(|e| failed("receive", e))?;
        let backend = line.strip_suffix(": ask\n").ok_or(format!("answered `{line}`"))?;
        let met = &mut lock(met)[place];
        if met.backend.is_empty() {
            met.backend = backend.to_owned();
        } else if met.backend != backend {
            return Err(format!("moved to {backend} after {} answers", met.answers));
        }
        met.answers += 1;
    }
    Ok(())
}
