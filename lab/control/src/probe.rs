//! Clients that ask at a steady rate, whether those before were answered or not, and note where
//! they were sent.

use std::cell::RefCell;
use std::net::SocketAddr;
use std::rc::Rc;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::time::{Duration, Instant};

use anyhow::Result;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpStream, UdpSocket};
use tokio::task::LocalSet;
use tokio::time::{sleep_until, timeout};

/// The probed level, and the sign that a client was sent to a dead backend.
#[derive(Clone, Debug)]
pub(crate) enum Question {
    /// A request on a connection of its own: it is not answered, or late.
    Http(SocketAddr),
    /// An address of a name: the answer has that of the dead one.
    Dns { server: SocketAddr, name: String, dead: [u8; 4] },
}

/// One client.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Asked {
    /// When it asked.
    pub(crate) at: Instant,
    /// When the question ended.
    pub(crate) ended: Instant,
    pub(crate) outcome: Outcome,
}

/// How a question ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Outcome {
    /// With an answer of the living backend.
    Answered,
    /// With a failure, or an answer that names the dead backend.
    Failed,
    /// Without an answer in time: a backend is silent, or the machine is busy.
    Late,
}

/// An answer that takes longer was not the living backend's: that one answers at once. It is below
/// the kernel's first time-out of a SYN (1 s), after which a connection may reach another backend.
const PATIENCE: Duration = Duration::from_millis(700);

/// Asks each `every` until `stop`. In the order in which they asked.
pub(crate) fn run(
    question: &Question,
    every: Duration,
    stop: &Arc<AtomicBool>,
) -> Result<Vec<Asked>> {
    let asked = Rc::new(RefCell::new(Vec::new()));
    let local = LocalSet::new();
    let (all, question, stop) = (asked.clone(), Rc::new(question.clone()), Arc::clone(stop));
    local.spawn_local(async move {
        let begin = tokio::time::Instant::now();
        let mut number = 0;
        while !stop.load(Relaxed) {
            sleep_until(begin + every * number).await;
            number += 1;
            let (all, question) = (all.clone(), question.clone());
            tokio::task::spawn_local(async move {
                let at = Instant::now();
                let outcome = outcome(&question).await;
                all.borrow_mut().push(Asked { at, ended: Instant::now(), outcome });
            });
        }
    });
    tokio::runtime::Builder::new_current_thread().enable_all().build()?.block_on(local);
    let mut asked = asked.take();
    asked.sort_by_key(|one| one.at);
    Ok(asked)
}

async fn outcome(question: &Question) -> Outcome {
    let is_failed = match question {
        Question::Http(address) => {
            timeout(PATIENCE, get(*address)).await.map(|answer| !matches!(answer, Ok(true)))
        }
        Question::Dns { server, name, dead } => {
            // A server that does not answer has sent the client nowhere.
            let answer = timeout(PATIENCE, resolve(*server, name)).await;
            let names_dead = |answer: Vec<u8>| answer.windows(4).any(|part| part == dead);
            answer.map(|answer| answer.is_ok_and(names_dead))
        }
    };
    match is_failed {
        Ok(true) => Outcome::Failed,
        Ok(false) => Outcome::Answered,
        Err(_) => Outcome::Late,
    }
}

/// Whether it was answered with 200.
pub(crate) async fn get(address: SocketAddr) -> std::io::Result<bool> {
    let mut stream = TcpStream::connect(address).await?;
    stream.write_all(b"GET / HTTP/1.1\r\nhost: control\r\nconnection: close\r\n\r\n").await?;
    let mut answer = Vec::with_capacity(1024);
    stream.read_to_end(&mut answer).await?;
    Ok(answer.starts_with(b"HTTP/1.1 200"))
}

/// The answer's bytes behind the header, to a question for the addresses of `name`.
async fn resolve(server: SocketAddr, name: &str) -> std::io::Result<Vec<u8>> {
    let socket = UdpSocket::bind("0.0.0.0:0").await?;
    socket.connect(server).await?;
    let mut question = vec![7, 7, 1, 0, 0, 1, 0, 0, 0, 0, 0, 0];
    for label in name.split('.').filter(|label| !label.is_empty()) {
        question.push(label.len() as u8);
        question.extend(label.bytes());
    }
    question.extend([0, 0, 1, 0, 1]);
    socket.send(&question).await?;
    let mut answer = vec![0; 1500];
    let length = socket.recv(&mut answer).await?;
    Ok(answer.get(12..length).unwrap_or_default().to_vec())
}
