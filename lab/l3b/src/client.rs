//! Clients: each request on a connection of its own, as the paper's.

use std::cell::{Cell, RefCell};
use std::io;
use std::net::SocketAddr;
use std::rc::Rc;
use std::time::Duration;

use anyhow::Result;
use rand::rngs::StdRng;
use rand::{RngExt, SeedableRng};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;
use tokio::task::LocalSet;
use tokio::time::{Instant, sleep, sleep_until, timeout, timeout_at};

/// Results in a window of time.
#[derive(Clone, Debug, Default)]
pub(crate) struct Seen {
    pub(crate) answered: u64,
    pub(crate) failed: u64,
    /// Sum of response times, seconds.
    pub(crate) response_s: f64,
}

impl Seen {
    /// Mean response time of what was answered, milliseconds.
    pub(crate) fn mean_ms(&self) -> f64 {
        1e3 * self.response_s / self.answered as f64
    }

    /// Part that failed, per cent.
    pub(crate) fn failed_percent(&self) -> f64 {
        100.0 * self.failed as f64 / (self.failed + self.answered).max(1) as f64
    }
}

/// A client that waits longer has given up.
pub(crate) const PATIENCE: Duration = Duration::from_secs(30);
/// After a failure, so that a refused connection is not asked for again at once.
const AFTER_FAILURE: Duration = Duration::from_millis(20);

/// One request on a connection of its own; whether it was answered with 200.
async fn ask(address: SocketAddr, request: &[u8]) -> io::Result<()> {
    let mut stream = TcpStream::connect(address).await?;
    stream.write_all(request).await?;
    let mut answer = Vec::with_capacity(4096);
    stream.read_to_end(&mut answer).await?;
    let head = answer.windows(4).position(|four| four == b"\r\n\r\n");
    let Some(head) = head.filter(|_| answer.starts_with(b"HTTP/1.1 200")) else {
        return Err(io::ErrorKind::InvalidData.into());
    };
    let text = String::from_utf8_lossy(&answer[..head]).to_ascii_lowercase();
    let length = text
        .lines()
        .find_map(|line| line.strip_prefix("content-length:")?.trim().parse::<usize>().ok());
    match length {
        Some(length) if answer.len() - head - 4 == length => Ok(()),
        _ => Err(io::ErrorKind::UnexpectedEof.into()),
    }
}

pub(crate) fn runtime() -> Result<tokio::runtime::Runtime> {
    Ok(tokio::runtime::Builder::new_current_thread().enable_all().build()?)
}

/// `count` requests in flight at all times: what ended in `window`, after `warm_up`.
pub(crate) fn closed(
    address: SocketAddr,
    request: &[u8],
    count: usize,
    warm_up: Duration,
    window: Duration,
) -> Result<Seen> {
    let seen = Rc::new(RefCell::new(Seen::default()));
    let from = Instant::now() + warm_up;
    let until = from + window;
    let request: Rc<[u8]> = request.into();
    let local = LocalSet::new();
    for _ in 0..count {
        let (seen, request) = (seen.clone(), request.clone());
        local.spawn_local(async move {
            while Instant::now() < until {
                let began = Instant::now();
                let outcome = timeout_at(until, ask(address, &request)).await;
                let Ok(outcome) = outcome else { return };
                let now = Instant::now();
                if now >= from {
                    let mut seen = seen.borrow_mut();
                    match outcome {
                        Ok(()) => {
                            seen.answered += 1;
                            seen.response_s += (now - began).as_secs_f64();
                        }
                        Err(_) => seen.failed += 1,
                    }
                }
                if outcome.is_err() {
                    sleep(AFTER_FAILURE).await;
                }
            }
        });
    }
    runtime()?.block_on(local);
    Ok(seen.take())
}

/// Each request is sent up to so much later than in step: a control group's periods are as long,
/// and a rate in step with them would meet all its requests at one moment of theirs.
const JITTER: Duration = Duration::from_millis(20);

/// `rate` requests a second for so long, whether the ones before were answered or not, at each of
/// the addresses.
pub(crate) fn open(
    addresses: &[SocketAddr],
    request: &[u8],
    rate: f64,
    window: Duration,
) -> Result<Vec<Seen>> {
    let seen = Rc::new(RefCell::new(vec![Seen::default(); addresses.len()]));
    let request: Rc<[u8]> = request.into();
    let addresses = addresses.to_vec();
    let (local, all) = (LocalSet::new(), seen.clone());
    local.spawn_local(async move {
        let begin = Instant::now();
        let count = (rate * window.as_secs_f64()) as u32;
        let mut random = StdRng::seed_from_u64(u64::from(count));
        let mut due = |number| {
            let step = Duration::from_secs_f64(f64::from(number) / rate);
            step + JITTER.mul_f64(random.random_range(0.0..1.0))
        };
        let mut dues: Vec<Duration> = (0..count).map(&mut due).collect();
        dues.sort_unstable();
        for due in dues {
            let due = begin + due;
            sleep_until(due).await;
            for (which, address) in addresses.iter().copied().enumerate() {
                let (seen, request) = (all.clone(), request.clone());
                tokio::task::spawn_local(async move {
                    let outcome = timeout(PATIENCE, ask(address, &request)).await;
                    let seen = &mut seen.borrow_mut()[which];
                    match outcome {
                        Ok(Ok(())) => {
                            seen.answered += 1;
                            // From when it was due: a client that is late does not make the answer
                            // earlier.
                            seen.response_s += due.elapsed().as_secs_f64();
                        }
                        _ => seen.failed += 1,
                    }
                });
            }
        }
    });
    runtime()?.block_on(local);
    Ok(seen.take())
}

/// A varying number of clients, and their results since the last query.
#[derive(Default)]
pub(crate) struct Varying {
    /// How many there are to be.
    pub(crate) wanted: Cell<usize>,
    /// From an answer to the client's next request. Without it, few clients ask as much as many:
    /// each the faster.
    pause: Duration,
    pub(crate) seen: RefCell<Seen>,
    running: Cell<usize>,
}

impl Varying {
    /// No clients at first; later ones pause for this long.
    pub(crate) fn new(pause: Duration) -> Varying {
        Varying { pause, ..Varying::default() }
    }

    /// Keeps [`Self::wanted`] clients at work until it is dropped or `until`. To be run on a
    /// [`LocalSet`].
    pub(crate) async fn run(
        self: Rc<Self>,
        address: SocketAddr,
        request: Rc<[u8]>,
        until: Instant,
    ) {
        while Instant::now() < until {
            while self.running.get() < self.wanted.get() {
                self.running.set(self.running.get() + 1);
                let (me, request) = (self.clone(), request.clone());
                tokio::task::spawn_local(async move { me.client(address, &request, until).await });
            }
            sleep(Duration::from_millis(20)).await;
        }
    }

    async fn client(&self, address: SocketAddr, request: &[u8], until: Instant) {
        while self.running.get() <= self.wanted.get() && Instant::now() < until {
            let began = Instant::now();
            let outcome = timeout(PATIENCE, ask(address, request)).await;
            let is_fine = matches!(outcome, Ok(Ok(())));
            {
                let mut seen = self.seen.borrow_mut();
                if is_fine {
                    seen.answered += 1;
                    seen.response_s += began.elapsed().as_secs_f64();
                } else {
                    seen.failed += 1;
                }
            }
            sleep(if is_fine { self.pause } else { AFTER_FAILURE }).await;
        }
        self.running.set(self.running.get() - 1);
    }
}
