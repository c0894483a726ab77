//! An endpoint as L3B's: a small HTTP server with a thread for each connection, held to a share of
//! a core.
//!
//! `GET /page` answers a page, `POST /shuffle` the numbers that it was sent, in another order. A
//! connection stays open for further requests unless the client says otherwise: a client that opens
//! one for each request so costs a thread for each request, and a balancer that keeps its sessions
//! open does not.

use std::io::{self, BufRead, BufReader, Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::thread;
use std::time::Duration;

use anyhow::{Context, Result};
use clap::Parser;
use equipoise_lab_runner::share;
use rand::rngs::StdRng;
use rand::{RngExt, SeedableRng};
use socket2::{Domain, Socket, Type};

/// An endpoint of L3B's experiments
#[derive(Parser)]
struct Arguments {
    /// Where it listens
    #[arg(long)]
    listen: SocketAddr,
    /// Share of a core that all of it may use
    #[arg(long, default_value_t = 1.0)]
    share: f64,
    /// Name of its control group, below equipoise-l3b
    #[arg(long)]
    name: String,
    /// CPU time that a page costs, milliseconds: it is filled in again until that is used
    #[arg(long, default_value_t = 0.0)]
    page_ms: f64,
}

/// A head or body that is longer is none of ours.
const REQUEST_BYTES_MAX: usize = 64 << 10;
/// The paper's page.
const PAGE_BYTES: usize = 56 << 10;
/// The paper's computation.
const SWAPS: u32 = 10_000;
/// The threads need little: a thousand of them shall fit anywhere.
const STACK_BYTES: usize = 128 << 10;
/// Connections that wait to be accepted.
const BACKLOG: i32 = 4096;

fn main() -> Result<()> {
    let arguments = Arguments::parse();
    if arguments.share < 1.0 {
        share::hold("l3b", &arguments.name, arguments.share, share::PERIOD)
            .context("cannot make a control group: run it as root, on cgroup v1 or v2")?;
    }
    let socket = Socket::new(Domain::for_address(arguments.listen), Type::STREAM, None)?;
    socket.set_reuse_address(true)?;
    socket.bind(&arguments.listen.into())?;
    socket.listen(BACKLOG)?;
    let cost = Duration::try_from_secs_f64(arguments.page_ms / 1e3).context("--page-ms")?;
    for stream in TcpListener::from(socket).incoming() {
        let Ok(stream) = stream else { continue };
        // No thread, no answer: the client sees its connection closed, as with the paper's server.
        let _ = thread::Builder::new().stack_size(STACK_BYTES).spawn(move || serve(stream, cost));
    }
    Ok(())
}

/// Until the client closes, or says something that is not understood.
fn serve(stream: TcpStream, page_cost: Duration) {
    let _ = stream.set_nodelay(true);
    let Ok(mut to) = stream.try_clone() else { return };
    let mut from = BufReader::new(stream);
    while let Ok(Some(request)) = Request::read(&mut from) {
        let body = match request.path.as_str() {
            "/page" => Some(page(page_cost)),
            "/shuffle" => shuffled(&request.body),
            _ => Some(b"ok".to_vec()),
        };
        let status = if body.is_some() { "200 OK" } else { "400 Bad Request" };
        let body = body.unwrap_or_default();
        let connection = if request.closes { "close" } else { "keep-alive" };
        let mut answer = format!(
            "HTTP/1.1 {status}\r\ncontent-length: {}\r\nconnection: {connection}\r\n\r\n",
            body.len()
        )
        .into_bytes();
        answer.extend_from_slice(&body);
        if to.write_all(&answer).is_err() || request.closes {
            return;
        }
    }
}

struct Request {
    path: String,
    body: Vec<u8>,
    closes: bool,
}

impl Request {
    /// `None` at the end of the connection.
    fn read(from: &mut BufReader<TcpStream>) -> io::Result<Option<Request>> {
        let mut line = String::new();
        if from.by_ref().take(REQUEST_BYTES_MAX as u64).read_line(&mut line)? == 0 {
            return Ok(None);
        }
        let path = line.split(' ').nth(1).unwrap_or_default().to_string();
        let (mut length, mut closes, mut read) = (0, line.trim_end().ends_with("1.0"), line.len());
        loop {
            line.clear();
            read += from.by_ref().take(REQUEST_BYTES_MAX as u64).read_line(&mut line)?;
            let header = line.trim_end().to_ascii_lowercase();
            if header.is_empty() {
                break;
            }
            if let Some(value) = header.strip_prefix("content-length:") {
                length = value.trim().parse().unwrap_or(usize::MAX);
            }
            closes |= header.starts_with("connection:") && header.ends_with("close");
            if length > REQUEST_BYTES_MAX || read > REQUEST_BYTES_MAX {
                return Err(io::ErrorKind::InvalidData.into());
            }
        }
        let mut body = vec![0; length];
        from.read_exact(&mut body)?;
        Ok(Some(Request { path, body, closes }))
    }
}

/// A page of 56 KB. Its fields are filled in repeatedly until it has cost the given CPU time: the
/// cost of the paper's server is unknown, and a page without cost would need a share too small for
/// the kernel to enforce. Measured, not counted, so that it costs the same on every machine.
fn page(cost: Duration) -> Vec<u8> {
    let begun = cpu_time();
    let mut page = Vec::with_capacity(PAGE_BYTES);
    for pass in 0_u32.. {
        page.clear();
        let mut row = 0_u32;
        while page.len() < PAGE_BYTES {
            row += 1;
            // Writing to a vector cannot fail.
            let _ = write!(page, "<tr><td>{row:08}</td><td>{:08x}</td></tr>", row ^ pass);
        }
        page.truncate(PAGE_BYTES);
        if cpu_time().saturating_sub(begun) >= cost {
            break;
        }
    }
    page
}

/// CPU time of this thread.
fn cpu_time() -> Duration {
    let mut time = libc::timespec { tv_sec: 0, tv_nsec: 0 };
    // SAFETY: the clock exists on Linux, and `time` is a timespec to write to.
    let result = unsafe { libc::clock_gettime(libc::CLOCK_THREAD_CPUTIME_ID, &raw mut time) };
    assert_eq!(result, 0, "a thread has a CPU clock");
    // The kernel's times are not negative.
    Duration::new(time.tv_sec as u64, time.tv_nsec as u32)
}

/// The numbers, with two random ones swapped 10,000 times; `None` if they are no numbers.
fn shuffled(body: &[u8]) -> Option<Vec<u8>> {
    let text = std::str::from_utf8(body).ok()?;
    let numbers: Result<Vec<i32>, _> = text.split(',').map(str::parse).collect();
    let mut numbers = numbers.ok()?;
    let mix = |sum: u64, one: &i32| sum.wrapping_mul(31) ^ u64::from(one.unsigned_abs());
    let mut random = StdRng::seed_from_u64(numbers.iter().fold(1, mix));
    for _ in 0..SWAPS {
        let (a, b) = (random.random_range(0..numbers.len()), random.random_range(0..numbers.len()));
        numbers.swap(a, b);
    }
    Some(numbers.iter().map(i32::to_string).collect::<Vec<_>>().join(",").into_bytes())
}
