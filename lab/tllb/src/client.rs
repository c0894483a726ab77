//! A client: resolves, connects, asks.

use std::io;
use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::time::Duration;

use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpStream, UdpSocket};
use tokio::time::timeout;

use crate::site::{NAME, RESOLVERS, resolver};

/// A server of the name that does not answer is left after this.
const ASK_ANOTHER: Duration = Duration::from_millis(500);
/// An address that does not answer is left after this.
const CONNECT: Duration = Duration::from_secs(1);
const ANSWER_BYTES_MAX: usize = 1 << 20;

/// Where a client goes.
#[derive(Clone, Debug)]
pub(crate) enum Way {
    /// To this node.
    Node(SocketAddr),
    /// Where the name leads, by one of these servers and, if that is silent, the next.
    Name(Vec<SocketAddr>),
}

/// Which node it came to, and a connection to it.
pub(crate) async fn connect(way: &Way, turn: usize) -> io::Result<(SocketAddr, TcpStream)> {
    let addresses = match way {
        Way::Node(address) => vec![*address],
        Way::Name(servers) => resolve(servers, turn).await?,
    };
    let mut last = io::ErrorKind::NotFound.into();
    // Refused at one address, it tries the next, as browsers do.
    for address in addresses {
        match timeout(CONNECT, TcpStream::connect(address)).await {
            Ok(Ok(stream)) => {
                stream.set_nodelay(true)?;
                return Ok((address, stream));
            }
            Ok(Err(error)) => last = error,
            Err(_) => last = io::ErrorKind::TimedOut.into(),
        }
    }
    Err(last)
}

async fn resolve(servers: &[SocketAddr], turn: usize) -> io::Result<Vec<SocketAddr>> {
    for at in 0..servers.len() {
        let server = servers[(turn + at) % servers.len()];
        let from = resolver(turn % RESOLVERS);
        let Ok(Ok(found)) = timeout(ASK_ANOTHER, ask_name(server, from, turn as u16)).await else {
            continue;
        };
        if !found.is_empty() {
            return Ok(found);
        }
    }
    Err(io::ErrorKind::NotFound.into())
}

/// One question over UDP from this address, and the addresses of its answer in their order.
async fn ask_name(server: SocketAddr, from: Ipv4Addr, id: u16) -> io::Result<Vec<SocketAddr>> {
    let socket = UdpSocket::bind((from, 0)).await?;
    socket.connect(server).await?;
    socket.send(&question(id)).await?;
    let mut answer = [0; 1500];
    let read = socket.recv(&mut answer).await?;
    addresses(&answer[..read], id).ok_or_else(|| io::ErrorKind::InvalidData.into())
}

/// For the A records of [`NAME`] (RFC 1035, section 4.1).
fn question(id: u16) -> Vec<u8> {
    let mut bytes = id.to_be_bytes().to_vec();
    bytes.extend([0, 0, 0, 1, 0, 0, 0, 0, 0, 0]);
    for label in NAME {
        bytes.push(label.len() as u8);
        bytes.extend(label.as_bytes());
    }
    bytes.extend([0, 0, 1, 0, 1]);
    bytes
}

/// The A records of an answer with all names compressed to the question's, as equipoise writes
/// them.
fn addresses(answer: &[u8], id: u16) -> Option<Vec<SocketAddr>> {
    let count = u16::from_be_bytes(answer.get(6..8)?.try_into().ok()?);
    if answer.get(..2)? != id.to_be_bytes() {
        return None;
    }
    let mut at = question(id).len();
    let mut found = Vec::new();
    for _ in 0..count {
        let record = answer.get(at..at + 12)?;
        let length = usize::from(u16::from_be_bytes([record[10], record[11]]));
        if record[2..4] == [0, 1] && length == 4 {
            let octets: [u8; 4] = answer.get(at + 12..at + 16)?.try_into().ok()?;
            found.push((IpAddr::from(octets), 80).into());
        }
        at += 12 + length;
    }
    Some(found)
}

/// Asks on an open connection; whether it was answered 200, and not refused.
pub(crate) async fn ask(stream: &mut TcpStream, path: &str) -> io::Result<bool> {
    ask_with(stream, path, 0).await
}

/// The same with a body of so many bytes, if any.
pub(crate) async fn ask_with(stream: &mut TcpStream, path: &str, body: usize) -> io::Result<bool> {
    let (method, length) = match body {
        0 => ("GET", String::new()),
        _ => ("POST", format!("Content-Length: {body}\r\n")),
    };
    let head = format!("{method} {path} HTTP/1.1\r\nHost: www.lab.example\r\n{length}\r\n");
    stream.write_all(&[head.as_bytes(), &vec![b'x'; body]].concat()).await?;
    let mut answer = Vec::with_capacity(1024);
    loop {
        if let Some(whole) = is_whole(&answer)? {
            return Ok(whole);
        }
        if stream.read_buf(&mut answer).await? == 0 || answer.len() > ANSWER_BYTES_MAX {
            return Err(io::ErrorKind::UnexpectedEof.into());
        }
    }
}

/// `None`: there is more to come.
fn is_whole(answer: &[u8]) -> io::Result<Option<bool>> {
    let Some(head) = answer.windows(4).position(|four| four == b"\r\n\r\n") else {
        return Ok(None);
    };
    let text = String::from_utf8_lossy(&answer[..head]).to_ascii_lowercase();
    let length = text
        .lines()
        .find_map(|line| line.strip_prefix("content-length:")?.trim().parse::<usize>().ok());
    let length = length.ok_or(io::ErrorKind::InvalidData)?;
    Ok((answer.len() >= head + 4 + length).then(|| text.starts_with("http/1.1 200")))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_answers_addresses_are_read_in_their_order() {
        let mut answer = question(7);
        answer[7] = 2;
        for last in [5, 3] {
            answer.extend([0xc0, 12, 0, 1, 0, 1, 0, 0, 0, 1, 0, 4, 10, 78, 1, last]);
        }
        let found = addresses(&answer, 7).expect("it is one");
        let ips: Vec<_> = found.iter().map(|it| it.ip().to_string()).collect();
        assert_eq!(ips, ["10.78.1.5", "10.78.1.3"]);
        assert_eq!(addresses(&answer, 8), None, "the answer to another question");
        assert_eq!(addresses(&answer[..answer.len() - 1], 7), None);
    }

    #[test]
    fn an_answer_is_whole_with_its_last_byte() {
        let answer = b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok";
        for cut in 0..answer.len() {
            assert_eq!(is_whole(&answer[..cut]).ok(), Some(None));
        }
        assert_eq!(is_whole(answer).ok(), Some(Some(true)));
    }
}
