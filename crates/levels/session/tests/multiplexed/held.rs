//! A backend that collects the requests of each session before it answers them.

use std::io::{Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::sync::{Arc, Condvar, Mutex};
use std::thread;

use equipoise_testkit::{Gate, ReservedPort, free_port};

/// A backend that answers nothing until its gate opens, and shows the requests that arrived before.
/// Scripts of `HttpBackend` see a request only when the previous one is answered.
pub(crate) struct Held {
    port: ReservedPort,
    pub(crate) gate: Gate,
    pub(crate) held: Arc<Mutex<Vec<String>>>,
    deepest: Arc<Mutex<usize>>,
}

impl Held {
    pub(crate) fn start() -> Held {
        let held = Held {
            port: free_port(),
            gate: Gate::new(),
            held: Arc::default(),
            deepest: Arc::default(),
        };
        let listener: TcpListener = held.port.listen();
        let (gate, all, deepest) = (held.gate.clone(), held.held.clone(), held.deepest.clone());
        thread::spawn(move || {
            while let Ok((stream, _)) = listener.accept() {
                let (gate, all, deepest) = (gate.clone(), all.clone(), deepest.clone());
                thread::spawn(move || hold(stream, &gate, &all, &deepest));
            }
        });
        held
    }

    pub(crate) fn address(&self) -> SocketAddr {
        self.port.address()
    }

    pub(crate) fn deepest(&self) -> usize {
        *self.deepest.lock().expect("no holder panics")
    }
}

/// Collects the requests of one connection, and answers them when the gate is open.
fn hold(mut stream: TcpStream, gate: &Gate, all: &Mutex<Vec<String>>, deepest: &Mutex<usize>) {
    let place = {
        let mut all = all.lock().expect("no holder panics");
        all.push(String::new());
        all.len() - 1
    };
    let answers = Arc::new(Answers::default());
    let (writer, ours) = (stream.try_clone().expect("a descriptor is free"), answers.clone());
    let gate = gate.clone();
    thread::spawn(move || {
        gate.wait();
        ours.write(writer);
    });
    let mut buffer = [0; 4096];
    while let Ok(bytes) = stream.read(&mut buffer)
        && bytes > 0
    {
        let mut all = all.lock().expect("no holder panics");
        all[place].push_str(&String::from_utf8_lossy(&buffer[..bytes]));
        let unanswered = answers.seen(all[place].matches("HTTP/1.1").count());
        let mut deepest = deepest.lock().expect("no holder panics");
        *deepest = unanswered.max(*deepest);
    }
    answers.seen(usize::MAX);
}

/// Numbers of requests that arrived and were answered on a connection.
#[derive(Default)]
struct Answers {
    counts: Mutex<(usize, usize)>,
    changed: Condvar,
}

impl Answers {
    /// Records the number of requests that arrived; returns the number without an answer.
    fn seen(&self, seen: usize) -> usize {
        let mut counts = self.counts.lock().expect("no holder panics");
        counts.0 = seen;
        self.changed.notify_all();
        seen - counts.1
    }

    /// Answers all requests until writing fails.
    fn write(&self, mut stream: TcpStream) {
        let mut counts = self.counts.lock().expect("no holder panics");
        loop {
            counts = self
                .changed
                .wait_while(counts, |(seen, answered)| seen == answered)
                .expect("no holder panics");
            if stream.write_all(b"HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n").is_err() {
                return;
            }
            counts.1 += 1;
        }
    }
}
