//! Load: at times that were drawn beforehand (open), or so many requests in flight at all times
//! (closed).

use std::cell::RefCell;
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

use crate::seen::{Answer, End};

const REQUEST: &[u8] = b"GET / HTTP/1.1\r\nhost: region\r\n\r\n";
/// A client of open load leaves after this long.
pub(crate) const PATIENCE: Duration = Duration::from_secs(2);
/// Load goes on for this long after a measured window. The requests that wait in a queue when load
/// ends are all served, late, which none of them would be under load.
pub(crate) const AFTER_WINDOW: Duration = PATIENCE;
/// Pause of a client of closed load after a failure.
const AFTER_FAILURE: Duration = Duration::from_millis(20);

/// An open load.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Plan {
    pub(crate) requests_per_second: f64,
    pub(crate) time: Duration,
    pub(crate) seed: u64,
}

impl Plan {
    /// Poisson arrivals, as times since the start.
    fn arrivals(self) -> Vec<Duration> {
        let mut random = StdRng::seed_from_u64(self.seed);
        let (mut at, mut all) = (0.0, Vec::new());
        loop {
            let uniform: f64 = random.random_range(0.0..1.0);
            at -= (1.0 - uniform).ln() / self.requests_per_second;
            if at >= self.time.as_secs_f64() {
                return all;
            }
            all.push(Duration::from_secs_f64(at));
        }
    }
}

/// Sends the requests of `plan`, each when it is due. A request takes an idle connection or opens
/// one.
pub(crate) fn open(address: SocketAddr, plan: Plan) -> Result<Vec<Answer>> {
    let answers = Rc::new(RefCell::new(Vec::new()));
    let idle = Rc::new(RefCell::new(Vec::new()));
    let (local, all) = (LocalSet::new(), answers.clone());
    local.spawn_local(async move {
        let begin = Instant::now();
        for due in plan.arrivals() {
            sleep_until(begin + due).await;
            let (answers, idle) = (all.clone(), idle.clone());
            tokio::task::spawn_local(async move {
                let outcome = timeout_at(begin + due + PATIENCE, ask(address, &idle)).await;
                let end = match outcome {
                    Ok(Ok(200)) => End::Served,
                    Ok(Ok(503)) => End::Refused,
                    Ok(_) => End::Failed,
                    Err(_) => End::GaveUp,
                };
                let (due_s, done_s) = (due.as_secs_f64(), begin.elapsed().as_secs_f64());
                answers.borrow_mut().push(Answer { due_s, done_s, end });
            });
        }
    });
    runtime()?.block_on(local);
    Ok(answers.take())
}

/// `count` requests in flight at all times: answers a second in `window`, after `warm_up`.
pub(crate) fn closed(
    address: SocketAddr,
    count: usize,
    warm_up: Duration,
    window: Duration,
) -> Result<f64> {
    let served = Rc::new(RefCell::new(0_u64));
    let from = Instant::now() + warm_up;
    let until = from + window;
    let local = LocalSet::new();
    for _ in 0..count {
        let served = served.clone();
        local.spawn_local(async move {
            let idle = RefCell::new(Vec::new());
            while let Ok(outcome) = timeout_at(until, ask(address, &idle)).await {
                match outcome {
                    Ok(200) if Instant::now() >= from => *served.borrow_mut() += 1,
                    Ok(200) => {}
                    _ => sleep(AFTER_FAILURE).await,
                }
            }
        });
    }
    runtime()?.block_on(local);
    let served = *served.borrow() as f64;
    Ok(served / window.as_secs_f64())
}

fn runtime() -> Result<tokio::runtime::Runtime> {
    Ok(tokio::runtime::Builder::new_current_thread().enable_all().build()?)
}

/// One request and its status.
async fn ask(address: SocketAddr, idle: &RefCell<Vec<TcpStream>>) -> io::Result<u16> {
    let kept = idle.borrow_mut().pop();
    if let Some(mut stream) = kept
        && let Ok((status, is_open)) = exchange(&mut stream).await
    {
        if is_open {
            idle.borrow_mut().push(stream);
        }
        return Ok(status);
    }
    // None was idle, or the server closed it.
    let mut stream = TcpStream::connect(address).await?;
    stream.set_nodelay(true)?;
    let (status, is_open) = exchange(&mut stream).await?;
    if is_open {
        idle.borrow_mut().push(stream);
    }
    Ok(status)
}

/// Sends the request; the status, and that the connection can be used again.
async fn exchange(stream: &mut TcpStream) -> io::Result<(u16, bool)> {
    stream.write_all(REQUEST).await?;
    let mut received = Vec::with_capacity(512);
    loop {
        if let Some(head) = Head::parse(&received) {
            let Some(length) = head.body_length.filter(|_| !head.closes) else {
                return Ok((head.status, false));
            };
            if received.len() >= head.length + length {
                return Ok((head.status, true));
            }
        }
        if stream.read_buf(&mut received).await? == 0 {
            return Err(io::ErrorKind::UnexpectedEof.into());
        }
    }
}

/// The head of a response.
#[derive(Debug, PartialEq, Eq)]
struct Head {
    status: u16,
    /// With the empty line.
    length: usize,
    body_length: Option<usize>,
    closes: bool,
}

impl Head {
    /// `None` while it is incomplete.
    fn parse(bytes: &[u8]) -> Option<Head> {
        let end = bytes.windows(4).position(|four| four == b"\r\n\r\n")?;
        let text = String::from_utf8_lossy(&bytes[..end]).to_ascii_lowercase();
        let header = |name: &str| {
            text.lines().filter_map(|line| line.split_once(':')).find(|(one, _)| *one == name)
        };
        Some(Head {
            status: text.split(' ').nth(1).and_then(|word| word.parse().ok()).unwrap_or(0),
            length: end + 4,
            body_length: header("content-length").and_then(|(_, value)| value.trim().parse().ok()),
            closes: header("connection").is_some_and(|(_, value)| value.trim() == "close"),
        })
    }
}

/// Changes a backend while it runs, as `slots=4`.
pub(crate) fn set(address: SocketAddr, changes: &str) -> Result<()> {
    let request = format!("GET /set?{changes} HTTP/1.1\r\nhost: region\r\n\r\n");
    let changed = async {
        let mut stream = TcpStream::connect(address).await?;
        stream.write_all(request.as_bytes()).await?;
        let mut answer = [0; 15];
        stream.read_exact(&mut answer).await?;
        io::Result::Ok(())
    };
    runtime()?.block_on(async { timeout(PATIENCE, changed).await })??;
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn arrivals_come_at_the_planned_rate_and_the_same_seed_gives_the_same() {
        let plan = Plan { requests_per_second: 1e4, time: Duration::from_secs(10), seed: 7 };
        let arrivals = plan.arrivals();
        // A Poisson count of mean 100,000 has a standard deviation of 316.
        assert!((98_000..102_000).contains(&arrivals.len()), "{}", arrivals.len());
        assert!(arrivals.is_sorted() && arrivals.iter().all(|at| *at < plan.time));
        assert_eq!(arrivals, plan.arrivals());
    }

    #[test]
    fn a_head_is_parsed_with_body_length_and_connection_close() {
        let head = |text: &str| Head::parse(text.as_bytes());
        let kept = "HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok";
        let parsed = Head { status: 200, length: 38, body_length: Some(2), closes: false };
        assert_eq!(head(kept), Some(parsed));
        let closed = "HTTP/1.1 503 Service Unavailable\r\nconnection: close\r\n\r\n";
        let parsed = Head { status: 503, length: 55, body_length: None, closes: true };
        assert_eq!(head(closed), Some(parsed));
        assert_eq!(head("HTTP/1.1 200 OK\r\n"), None);
    }

    /// Answers every request.
    async fn server(listener: tokio::net::TcpListener) {
        while let Ok((mut stream, _)) = listener.accept().await {
            tokio::task::spawn_local(async move {
                let mut buffer = [0; 512];
                while let Ok(1..) = stream.read(&mut buffer).await {
                    let answer = b"HTTP/1.1 200 OK\r\ncontent-length: 2\r\n\r\nok";
                    if stream.write_all(answer).await.is_err() {
                        return;
                    }
                }
            });
        }
    }

    #[test]
    fn a_connection_is_used_again_and_a_new_one_is_opened_while_it_is_busy() {
        let local = LocalSet::new();
        let asked = async {
            let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await?;
            let address = listener.local_addr()?;
            tokio::task::spawn_local(server(listener));
            let idle = RefCell::new(Vec::new());
            assert_eq!(ask(address, &idle).await?, 200);
            assert_eq!(ask(address, &idle).await?, 200);
            assert_eq!(idle.borrow().len(), 1);
            let both = tokio::join!(ask(address, &idle), ask(address, &idle));
            assert_eq!((both.0?, both.1?), (200, 200));
            assert_eq!(idle.borrow().len(), 2);
            io::Result::Ok(())
        };
        runtime().unwrap().block_on(local.run_until(asked)).expect("the server answers");
    }
}
