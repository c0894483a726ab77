//! `equipoise sample-backend`: one small, real server for the demo.
//!
//! It listens on three ports, prints them to standard output (`ready http=A tcp=B udp=C`), and
//! serves until it is killed:
//!
//! - HTTP: `GET /healthz` answers at once. `POST /echo` returns the body. For any other request the
//!   answer comes after the delay: JSON with the names of the backend and the client's address.
//! - TCP: returns each line with the backend's name in front.
//! - UDP: returns each datagram with the backend's name in front.

use std::io::Write;
use std::net::{IpAddr, SocketAddr};
use std::process::ExitCode;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::time::Duration;

use anyhow::Context;
use axum::extract::{ConnectInfo, Request, State};
use axum::response::{IntoResponse, Response};
use axum::routing::{any, get, post};
use axum::{Json, Router};
use tokio::io::{AsyncBufReadExt, AsyncReadExt, AsyncWriteExt, BufReader};
use tokio::net::{TcpListener, TcpStream, UdpSocket};
use tokio::task::JoinSet;

/// Arguments. The operating system chooses a port in place of 0.
#[derive(Clone, Debug, clap::Args)]
pub struct Args {
    #[arg(long)]
    name: String,
    #[arg(long, value_parser = milliseconds, default_value = "0ms")]
    delay: Duration,
    /// CPU time of each HTTP request, in addition to the delay
    #[arg(long, value_parser = milliseconds, default_value = "0ms")]
    work: Duration,
    /// Listen addresses. Datagrams need several, since answers leave from the address of their
    /// socket
    #[arg(long, default_value = "127.0.0.1")]
    listen: Vec<IpAddr>,
    #[arg(long, default_value_t = 0)]
    http: u16,
    #[arg(long, default_value_t = 0)]
    tcp: u16,
    #[arg(long, default_value_t = 0)]
    udp: u16,
}

fn milliseconds(text: &str) -> Result<Duration, String> {
    text.strip_suffix("ms")
        .and_then(|digits| digits.parse().ok())
        .map(Duration::from_millis)
        .ok_or_else(|| format!("`{text}` is not a number of milliseconds such as 20ms"))
}

#[derive(Debug)]
struct Sample {
    name: String,
    delay: Duration,
    work: Duration,
    served: AtomicU64,
}

/// Runs `equipoise sample-backend`.
///
/// # Errors
/// A socket, a process or standard output fails.
pub async fn run(args: Args) -> anyhow::Result<ExitCode> {
    let sample = Arc::new(Sample {
        name: args.name,
        delay: args.delay,
        work: args.work,
        served: AtomicU64::new(0),
    });
    let mut ports = (args.http, args.tcp, args.udp);
    let mut serving = JoinSet::new();
    for address in args.listen {
        let http = listen(address, ports.0).await?;
        let tcp = listen(address, ports.1).await?;
        let udp = UdpSocket::bind((address, ports.2))
            .await
            .with_context(|| format!("cannot listen on UDP port {} of {address}", ports.2))?;
        ports = (http.local_addr()?.port(), tcp.local_addr()?.port(), udp.local_addr()?.port());
        serving.spawn(serve_http(http, Arc::clone(&sample)));
        serving.spawn(serve_tcp(tcp, Arc::clone(&sample)));
        serving.spawn(serve_udp(udp, Arc::clone(&sample)));
    }
    let mut stdout = std::io::stdout();
    writeln!(stdout, "ready http={} tcp={} udp={}", ports.0, ports.1, ports.2)?;
    stdout.flush()?;
    while serving.join_next().await.is_some() {}
    Ok(ExitCode::SUCCESS)
}

async fn listen(address: IpAddr, port: u16) -> anyhow::Result<TcpListener> {
    TcpListener::bind((address, port))
        .await
        .with_context(|| format!("cannot listen on TCP port {port} of {address}"))
}

async fn serve_http(listener: TcpListener, sample: Arc<Sample>) {
    let router = Router::new()
        .route("/healthz", get(|| async { "ok\n" }))
        .route("/echo", post(echo))
        .fallback(any(answer))
        .with_state(sample)
        .into_make_service_with_connect_info::<SocketAddr>();
    if let Err(error) = axum::serve(listener, router).await {
        eprintln!("sample backend: HTTP ended: {error}");
    }
}

async fn answer(
    State(sample): State<Arc<Sample>>,
    ConnectInfo(client): ConnectInfo<SocketAddr>,
    request: Request,
) -> Response {
    tokio::time::sleep(sample.delay).await;
    work(sample.work).await;
    let served = sample.served.fetch_add(1, Relaxed) + 1;
    Json(serde_json::json!({
        "backend": sample.name,
        "client": client.ip().to_canonical(),
        "method": request.method().as_str(),
        "path": request.uri().path(),
        "served": served,
    }))
    .into_response()
}

/// Uses `time` of processor time, however long this takes.
async fn work(time: Duration) {
    use rustix::time::{ClockId, clock_gettime};
    if time.is_zero() {
        return;
    }
    let taken = || {
        let now = clock_gettime(ClockId::ThreadCPUTime);
        Duration::new(now.tv_sec as u64, now.tv_nsec as u32)
    };
    let burnt = tokio::task::spawn_blocking(move || {
        let end = taken() + time;
        while taken() < end {
            std::hint::spin_loop();
        }
    });
    // The task does not panic, and is not cancelled.
    let _ = burnt.await;
}

async fn echo(State(sample): State<Arc<Sample>>, request: Request) -> Response {
    tokio::time::sleep(sample.delay).await;
    sample.served.fetch_add(1, Relaxed);
    ([("x-backend", sample.name.clone())], request.into_body()).into_response()
}

async fn serve_tcp(listener: TcpListener, sample: Arc<Sample>) {
    loop {
        match listener.accept().await {
            Ok((stream, _)) => {
                tokio::spawn(lines(stream, Arc::clone(&sample)));
            }
            // Most likely there are no free descriptors: other connections must close first.
            Err(_) => tokio::time::sleep(Duration::from_millis(50)).await,
        }
    }
}

/// Largest line that is answered; a longer one closes the connection.
const LINE_BYTES_MAX: u64 = 64 << 10;

/// Serves lines until the client closes or resets the connection. Neither is an error.
async fn lines(stream: TcpStream, sample: Arc<Sample>) -> std::io::Result<()> {
    let (reading, mut writing) = stream.into_split();
    let mut reading = BufReader::new(reading);
    loop {
        let mut line = format!("{}: ", sample.name).into_bytes();
        let read = (&mut reading).take(LINE_BYTES_MAX).read_until(b'\n', &mut line).await?;
        if read == 0 || read as u64 == LINE_BYTES_MAX {
            return writing.shutdown().await;
        }
        tokio::time::sleep(sample.delay).await;
        sample.served.fetch_add(1, Relaxed);
        writing.write_all(&line).await?;
    }
}

/// Largest datagram of UDP over IPv4.
const DATAGRAM_BYTES_MAX: usize = 65_507;

async fn serve_udp(socket: UdpSocket, sample: Arc<Sample>) {
    let socket = Arc::new(socket);
    let mut buffer = vec![0; DATAGRAM_BYTES_MAX];
    loop {
        // An error here is the ICMP refusal of an earlier answer: that client has gone.
        let Ok((length, client)) = socket.recv_from(&mut buffer).await else { continue };
        let mut answer = format!("{}: ", sample.name).into_bytes();
        answer.extend_from_slice(&buffer[..length]);
        answer.truncate(DATAGRAM_BYTES_MAX);
        let (socket, sample) = (Arc::clone(&socket), Arc::clone(&sample));
        tokio::spawn(async move {
            tokio::time::sleep(sample.delay).await;
            sample.served.fetch_add(1, Relaxed);
            // A client that has gone, or that has a full queue, loses the datagram, as usual with
            // UDP.
            let _ = socket.send_to(&answer, client).await;
        });
    }
}
