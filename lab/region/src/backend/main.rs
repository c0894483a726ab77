//! A backend: a small HTTP server with a thread for each connection, and one of several ways to
//! serve a request.
//!
//! `GET /set?slots=4` changes a running backend; every other request is served by its work.

mod gate;
mod memory;
mod work;

use std::io::{self, BufRead, BufReader, Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::sync::Arc;
use std::thread;

use anyhow::{Context, Result};
use clap::Parser;
use equipoise_lab_runner::share;
use socket2::{Domain, Socket, Type};

use crate::gate::Gate;
use crate::work::{Kind, Server};

/// A backend of the experiments with overload
#[derive(Parser)]
pub(crate) struct Arguments {
    /// Where it listens
    #[arg(long)]
    listen: SocketAddr,
    /// Name of its control group, below equipoise-region
    #[arg(long)]
    name: String,
    /// Cost of a request
    #[arg(long, value_enum)]
    kind: Kind,
    /// Share of a core that all of it may use
    #[arg(long, default_value_t = 0.5)]
    share: f64,
    /// Memory that all of it may use, MiB
    #[arg(long)]
    memory_mib: Option<u64>,
    /// Requests that are served at once; the others wait in the backend
    #[arg(long, default_value_t = 4)]
    slots: usize,
    /// Time or CPU time of a request, milliseconds
    #[arg(long, default_value_t = 20.0)]
    work_ms: f64,
    /// Connections that have a thread at once; the others wait to be accepted
    #[arg(long, default_value_t = 6000)]
    threads: usize,
}

/// Longest head of a request.
const HEAD_BYTES_MAX: u64 = 16 << 10;
const STACK_BYTES: usize = 64 << 10;
/// Connections that wait to be accepted.
const BACKLOG: i32 = 4096;

fn main() -> Result<()> {
    let arguments = Arguments::parse();
    let context = "cannot make a control group: run it as root, on cgroup v1 or v2";
    share::hold("region", &arguments.name, arguments.share, share::PERIOD).context(context)?;
    if let Some(mib) = arguments.memory_mib {
        share::limit_memory("region", &arguments.name, mib << 20).context(context)?;
    }
    let server = Arc::new(Server::new(&arguments)?);
    let connections = Arc::new(Gate::new(arguments.threads));
    let socket = Socket::new(Domain::for_address(arguments.listen), Type::STREAM, None)?;
    socket.set_reuse_address(true)?;
    socket.bind(&arguments.listen.into())?;
    socket.listen(BACKLOG)?;
    let listener = TcpListener::from(socket);
    loop {
        connections.enter();
        let Ok((stream, _)) = listener.accept() else {
            connections.leave();
            continue;
        };
        let (server, all) = (server.clone(), connections.clone());
        let started = thread::Builder::new().stack_size(STACK_BYTES).spawn(move || {
            serve(stream, &server);
            all.leave();
        });
        if started.is_err() {
            connections.leave();
        }
    }
}

/// Serves a connection until the client closes it or sends no HTTP.
fn serve(stream: TcpStream, server: &Server) {
    let _ = stream.set_nodelay(true);
    let Ok(mut to) = stream.try_clone() else { return };
    let mut from = BufReader::with_capacity(2048, stream);
    while let Ok(Some(path)) = request(&mut from) {
        match path.strip_prefix("/set?") {
            Some(change) => server.change(change),
            None => server.work(),
        }
        if to.write_all(b"HTTP/1.1 200 OK\r\ncontent-length: 2\r\n\r\nok").is_err() {
            return;
        }
    }
}

/// The path of the next request, which has no body; `None` at the end of the connection.
fn request(from: &mut BufReader<TcpStream>) -> io::Result<Option<String>> {
    let mut line = String::new();
    if from.by_ref().take(HEAD_BYTES_MAX).read_line(&mut line)? == 0 {
        return Ok(None);
    }
    let path = line.split(' ').nth(1).unwrap_or_default().to_string();
    loop {
        line.clear();
        if from.by_ref().take(HEAD_BYTES_MAX).read_line(&mut line)? == 0 {
            return Ok(None);
        }
        if line.trim_end().is_empty() {
            return Ok(Some(path));
        }
    }
}
