//! Drains a backend under load.

use std::collections::BTreeMap;
use std::io::{BufRead, BufReader, Write};
use std::net::{SocketAddr, TcpStream};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering::Relaxed};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

use anyhow::{anyhow, bail, ensure};
use equipoise_netns::Host;

use crate::packet::method::TUNNELLED;
use crate::packet::stage::{PATIENCE, Stage};

pub(crate) const TITLE: &str = "A backend drains under load (tunnel over IPv4)";

/// Number of connections: each of three backends should get several.
const CONNECTIONS: usize = 30;

/// Answers on each connection between two checks.
const ANSWERS: usize = 50;

/// Runs the steps, and returns their results. The first failure is the last result.
pub(crate) fn show(stage: &Stage) -> Vec<anyhow::Result<String>> {
    let mut outcomes = Vec::new();
    if let Err(error) = steps(stage, &mut outcomes) {
        outcomes.push(Err(error));
    }
    outcomes
}

fn steps(stage: &Stage, told: &mut Vec<anyhow::Result<String>>) -> anyhow::Result<()> {
    let (client, vip) = (&stage.site().client, TUNNELLED.lines());
    let old = Connections::open(client, vip)?;
    let before = old.by_backend();
    told.push(Ok(format!(
        "{CONNECTIONS} connections to {vip}, each with requests without pause: {}",
        shares(&before)
    )));
    let Some(drained) = before.keys().next().cloned() else { bail!("no backend answers") };
    let name = format!("{}/{drained}", TUNNELLED.lines_pool());
    let printed = stage.command(&["drain", &name])?;
    told.push(Ok(format!("$ equipoise drain {name}\n{}", printed.trim_end())));
    old.wait_for(ANSWERS)?;
    let new = Connections::open(client, vip)?;
    let after = new.by_backend();
    ensure!(!after.contains_key(&drained), "{drained} got new connections: {}", shares(&after));
    told.push(Ok(format!("{CONNECTIONS} further connections: {}", shares(&after))));
    old.wait_for(ANSWERS)?;
    new.close()?;
    let answers = old.close()?;
    told.push(Ok(format!(
        "the first {CONNECTIONS} continued: {answers} answers, none from another backend, none lost"
    )));
    stage.command(&["undrain", &name]).map(drop)
}

fn shares(counts: &BTreeMap<String, usize>) -> String {
    let shares = counts.iter().map(|(name, count)| format!("{name} {count}"));
    shares.collect::<Vec<_>>().join(", ")
}

/// Connections that send requests without pause.
struct Connections {
    stop: Arc<AtomicBool>,
    each: Vec<Connection>,
}

struct Connection {
    backend: String,
    answers: Arc<AtomicUsize>,
    asking: JoinHandle<anyhow::Result<()>>,
}

impl Connections {
    /// Opens the connections, and waits until each had an answer.
    fn open(client: &Host, vip: SocketAddr) -> anyhow::Result<Connections> {
        let stop = Arc::<AtomicBool>::default();
        let mut each = Vec::new();
        for _ in 0..CONNECTIONS {
            let mut line = client.enter(|| Line::open(vip))?;
            let backend = line.ask()?;
            let (ours, answers) = (Arc::clone(&stop), Arc::new(AtomicUsize::new(1)));
            let (counter, expected) = (Arc::clone(&answers), backend.clone());
            let asking = thread::spawn(move || {
                while !ours.load(Relaxed) {
                    let answered = line.ask()?;
                    ensure!(answered == expected, "a connection moved to {answered}");
                    counter.fetch_add(1, Relaxed);
                }
                Ok(())
            });
            each.push(Connection { backend, answers, asking });
        }
        Ok(Connections { stop, each })
    }

    fn by_backend(&self) -> BTreeMap<String, usize> {
        let mut counts = BTreeMap::new();
        for connection in &self.each {
            *counts.entry(connection.backend.clone()).or_default() += 1;
        }
        counts
    }

    /// Waits until each connection has had `answers` more answers.
    fn wait_for(&self, answers: usize) -> anyhow::Result<()> {
        let goals = self.each.iter().map(|c| c.answers.load(Relaxed) + answers);
        let goals = goals.collect::<Vec<_>>();
        let end = Instant::now() + PATIENCE;
        let pairs = || self.each.iter().zip(&goals);
        while !pairs().all(|(c, goal)| c.answers.load(Relaxed) >= *goal || c.asking.is_finished()) {
            ensure!(Instant::now() < end, "connections get no answers");
            thread::sleep(Duration::from_millis(10));
        }
        Ok(())
    }

    /// Closes the connections. Returns the number of answers, or the first error.
    fn close(self) -> anyhow::Result<usize> {
        self.stop.store(true, Relaxed);
        let mut answers = 0;
        for connection in self.each {
            let ended = connection.asking.join().unwrap_or_else(|_| Err(anyhow!("a thread died")));
            ended
                .map_err(|error| error.context(format!("connection to {}", connection.backend)))?;
            answers += connection.answers.load(Relaxed);
        }
        Ok(answers)
    }
}

/// A connection to the line service of a sample backend.
struct Line {
    stream: TcpStream,
    answers: BufReader<TcpStream>,
}

impl Line {
    fn open(vip: SocketAddr) -> anyhow::Result<Line> {
        let stream = TcpStream::connect_timeout(&vip, PATIENCE)?;
        stream.set_read_timeout(Some(PATIENCE))?;
        stream.set_nodelay(true)?;
        Ok(Line { answers: BufReader::new(stream.try_clone()?), stream })
    }

    /// Sends a request; returns the answering backend.
    fn ask(&mut self) -> anyhow::Result<String> {
        self.stream.write_all(b"ask\n")?;
        let mut line = String::new();
        self.answers.read_line(&mut line)?;
        let name = line.strip_suffix(": ask\n");
        name.map(str::to_owned).ok_or_else(|| anyhow!("answered `{line}`"))
    }
}
