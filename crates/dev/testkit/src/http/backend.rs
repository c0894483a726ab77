use std::io::{Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::ops::ControlFlow;
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::thread;

use crate::acceptor::{Acceptor, Connections, Counts};
use crate::wire::{Lines, Reader, Trailers};
use crate::{Answer, Framing, Head, Intake, PATIENCE, Pattern, Step, WireError, port};

/// A request after its head has arrived, as a script sees it.
#[derive(Debug)]
pub struct Request<'a> {
    /// Its head.
    pub head: &'a Head,
    /// The connection it came on, from 0.
    pub connection: u64,
    /// Its place on that connection, from 0.
    pub on_connection: u64,
    /// Its place among all requests of this backend, from 0.
    pub number: usize,
}

/// A request as the backend received it.
#[derive(Clone, Debug, Default)]
pub struct Received {
    /// Its head.
    pub head: Head,
    /// Its body without framing, where [`Intake`] keeps it.
    pub body: Vec<u8>,
    /// Length of the body without framing.
    pub body_bytes: u64,
    /// Trailers of a chunked body.
    pub trailers: Vec<(String, String)>,
    /// Whether the body came whole, and is the pattern if one was expected.
    pub complete: bool,
    /// The connection it came on, from 0.
    pub connection: u64,
}

#[derive(Default)]
struct Log {
    requests: Vec<Received>,
    in_flight: usize,
    in_flight_max: usize,
    malformed: Vec<String>,
}

#[derive(Default)]
struct Shared {
    log: Mutex<Log>,
    changed: Condvar,
}

impl Shared {
    fn lock(&self) -> MutexGuard<'_, Log> {
        self.log.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn begin(&self, head: &Head, connection: u64) -> usize {
        let mut log = self.lock();
        log.requests.push(Received { head: head.clone(), connection, ..Received::default() });
        log.in_flight += 1;
        log.in_flight_max = log.in_flight_max.max(log.in_flight);
        self.changed.notify_all();
        log.requests.len() - 1
    }

    fn note(&self, error: &WireError) {
        if let WireError::Malformed(what) = error {
            self.update(|log| log.malformed.push(what.clone()));
        }
    }

    fn update(&self, change: impl FnOnce(&mut Log)) {
        change(&mut self.lock());
        self.changed.notify_all();
    }
}

type Script = dyn Fn(&Request<'_>) -> Answer + Send + Sync;

/// An HTTP/1.1 server that does what a script tells it, and remembers what it was asked.
pub struct HttpBackend {
    acceptor: Acceptor,
    shared: Arc<Shared>,
}

impl HttpBackend {
    /// Starts one; `script` is asked once per request, when its head has come.
    pub fn start(script: impl Fn(&Request<'_>) -> Answer + Send + Sync + 'static) -> HttpBackend {
        let shared = Arc::<Shared>::default();
        let (ours, script): (_, Arc<Script>) = (shared.clone(), Arc::new(script));
        let acceptor = Acceptor::start(move |stream, connection, connections| {
            let _ = stream.set_write_timeout(Some(PATIENCE));
            Conversation { stream: &stream, connection, connections, shared: &ours }.serve(&script);
        });
        HttpBackend { acceptor, shared }
    }

    /// One that gives every request the same answer.
    pub fn always(answer: Answer) -> HttpBackend {
        HttpBackend::start(move |_| answer.clone())
    }

    /// One that answers 200 with its name.
    pub fn named(name: &str) -> HttpBackend {
        HttpBackend::always(Answer::ok(name))
    }

    /// One that answers 200 with the request as it received it.
    pub fn echo() -> HttpBackend {
        HttpBackend::always(Answer::echo())
    }

    /// Where it listens.
    pub fn address(&self) -> SocketAddr {
        self.acceptor.address()
    }

    /// Its listener and connections: counts, stop, restart.
    pub fn acceptor(&self) -> &Acceptor {
        &self.acceptor
    }

    /// Its connections now.
    pub fn counts(&self) -> Counts {
        self.acceptor.counts()
    }

    /// Every request with a complete head, in the order of their heads.
    pub fn requests(&self) -> Vec<Received> {
        self.shared.lock().requests.clone()
    }

    /// How many requests came whole.
    pub fn completed(&self) -> usize {
        self.shared.lock().requests.iter().filter(|r| r.complete).count()
    }

    /// Received bytes that even a lenient reader does not accept as HTTP/1.x: the sender took them
    /// for something else.
    pub fn malformed(&self) -> Vec<String> {
        self.shared.lock().malformed.clone()
    }

    /// Most requests in flight at once, from the head to the end of the answer.
    pub fn in_flight_max(&self) -> usize {
        self.shared.lock().in_flight_max
    }

    /// Waits until `condition` holds of the requests; `false` if it did not within [`PATIENCE`].
    pub fn wait(&self, mut condition: impl FnMut(&[Received]) -> bool) -> bool {
        let log = self.shared.lock();
        let waited =
            self.shared.changed.wait_timeout_while(log, PATIENCE, |l| !condition(&l.requests));
        !waited.unwrap_or_else(PoisonError::into_inner).1.timed_out()
    }
}

struct Counted<'a>(&'a TcpStream, &'a Connections);

impl Read for Counted<'_> {
    fn read(&mut self, buffer: &mut [u8]) -> std::io::Result<usize> {
        let bytes = self.0.read(buffer)?;
        self.1.count_bytes(bytes);
        Ok(bytes)
    }
}

/// Takes a request off the count of those in flight, however its conversation ends.
struct InFlight<'a>(&'a Shared);

impl Drop for InFlight<'_> {
    fn drop(&mut self) {
        self.0.update(|log| log.in_flight -= 1);
    }
}

struct Conversation<'a> {
    stream: &'a TcpStream,
    connection: u64,
    connections: &'a Connections,
    shared: &'a Shared,
}

type Next = ControlFlow<()>;

impl Conversation<'_> {
    fn serve(&self, script: &Arc<Script>) {
        let mut reader = Reader::new(Counted(self.stream, self.connections), Lines::Lenient);
        for on_connection in 0.. {
            let head = match reader.head() {
                Ok(head) => head,
                Err(error) => return self.shared.note(&error),
            };
            let number = self.shared.begin(&head, self.connection);
            let in_flight = InFlight(self.shared);
            let request =
                Request { head: &head, connection: self.connection, on_connection, number };
            let answer = script(&request);
            let next = self.answer(&mut reader, &request, &answer);
            drop(in_flight);
            if next.is_break() {
                return;
            }
        }
    }

    fn answer(
        &self,
        reader: &mut Reader<Counted<'_>>,
        request: &Request<'_>,
        answer: &Answer,
    ) -> Next {
        for step in &answer.before_body {
            self.step(reader, request, step)?;
        }
        self.take_body(reader, request, &answer.intake)?;
        for step in &answer.steps {
            self.step(reader, request, step)?;
        }
        match answer.intake {
            Intake::Ignore if request.head.request_framing() != Framing::Empty => Next::Break(()),
            _ => Next::Continue(()),
        }
    }

    fn take_body(
        &self,
        reader: &mut Reader<Counted<'_>>,
        request: &Request<'_>,
        intake: &Intake,
    ) -> Next {
        let framing = request.head.request_framing();
        let outcome: Result<Trailers, _> = match intake {
            Intake::Ignore => return Next::Continue(()),
            Intake::Check(seed) => self.check_body(reader, request, *seed),
            Intake::After(gate) => {
                gate.wait();
                reader.body(framing, &mut |piece| self.keep(request, piece))
            }
            Intake::Keep => reader.body(framing, &mut |piece| self.keep(request, piece)),
            Intake::Slow(bytes, pause) => reader.body(framing, &mut |piece| {
                for piece in piece.chunks(*bytes) {
                    self.keep(request, piece);
                    thread::sleep(*pause);
                }
            }),
        };
        let trailers = match outcome {
            Ok(trailers) => trailers,
            Err(error) => {
                self.shared.note(&error);
                return Next::Break(());
            }
        };
        self.shared.update(|log| {
            log.requests[request.number].trailers = trailers;
            log.requests[request.number].complete = true;
        });
        Next::Continue(())
    }

    fn keep(&self, request: &Request<'_>, piece: &[u8]) {
        self.shared.update(|log| {
            let received = &mut log.requests[request.number];
            received.body.extend_from_slice(piece);
            received.body_bytes += piece.len() as u64;
        });
    }

    fn check_body(
        &self,
        reader: &mut Reader<Counted<'_>>,
        request: &Request<'_>,
        seed: u64,
    ) -> Result<Trailers, WireError> {
        let mut pattern = Pattern::new(seed);
        let mut verdict = Ok(());
        let trailers = reader.body(request.head.request_framing(), &mut |piece| {
            verdict = verdict.and_then(|()| pattern.check(piece));
            let bytes = piece.len() as u64;
            self.shared.update(|log| log.requests[request.number].body_bytes += bytes);
        })?;
        let wrong = |at| WireError::Malformed(format!("another byte at {at}"));
        verdict.map_err(wrong).map(|()| trailers)
    }

    fn step(&self, reader: &mut Reader<Counted<'_>>, request: &Request<'_>, step: &Step) -> Next {
        let is_head = request.head.method() == "HEAD";
        match step {
            Step::Body(_) | Step::Pattern { .. } if is_head => Next::Continue(()),
            Step::Send(bytes) | Step::Body(bytes) => self.send(bytes),
            Step::Pattern { seed, bytes, chunk } => self.send_pattern(*seed, *bytes, *chunk),
            Step::Echo => self.send(&self.echo(request)),
            Step::Pause(time) => {
                thread::sleep(*time);
                Next::Continue(())
            }
            Step::Open(gate) => {
                gate.open();
                Next::Continue(())
            }
            Step::Wait(gate) if gate.wait() => Next::Continue(()),
            Step::Wait(_) | Step::Close => Next::Break(()),
            Step::EchoTunnel | Step::Hang => {
                while let Ok(piece) = reader.some(64 << 10)
                    && !piece.is_empty()
                {
                    if matches!(step, Step::EchoTunnel) {
                        self.send(&piece)?;
                    }
                }
                Next::Break(())
            }
            Step::Reset => {
                port::reset_on_close(self.stream);
                Next::Break(())
            }
        }
    }

    fn echo(&self, request: &Request<'_>) -> Vec<u8> {
        let body = self.shared.lock().requests[request.number].body.clone();
        let length = request.head.raw.len() + body.len();
        let head = format!("HTTP/1.1 200 OK\r\nContent-Length: {length}\r\n\r\n");
        let seen: &[u8] = if request.head.method() == "HEAD" { b"" } else { &request.head.raw };
        [head.as_bytes(), seen, &body].concat()
    }

    fn send(&self, bytes: &[u8]) -> Next {
        let mut stream = self.stream;
        match stream.write_all(bytes) {
            Ok(()) => Next::Continue(()),
            Err(_) => Next::Break(()),
        }
    }

    fn send_pattern(&self, seed: u64, bytes: u64, chunk: Option<usize>) -> Next {
        let mut pattern = Pattern::new(seed);
        while pattern.offset() < bytes {
            let left = (bytes - pattern.offset()).min(usize::MAX as u64) as usize;
            let piece = pattern.next(left.min(chunk.unwrap_or(usize::MAX)));
            match chunk {
                None => self.send(piece)?,
                Some(_) => {
                    let framed =
                        [format!("{:x}\r\n", piece.len()).as_bytes(), piece, b"\r\n"].concat();
                    self.send(&framed)?;
                }
            }
        }
        Next::Continue(())
    }
}
