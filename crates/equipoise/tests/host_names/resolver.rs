//! A DNS server over UDP and TCP with answers that the test decides.

use std::io::{self, Read, Write};
use std::net::{IpAddr, Ipv4Addr, TcpListener, TcpStream, UdpSocket};
use std::sync::Arc;
use std::thread;

use equipoise_testkit::eventually;

use crate::bed::server_address;

pub(crate) const A: u16 = 1;
pub(crate) const AAAA: u16 = 28;
const CNAME: u16 = 5;

/// Largest answer over UDP; a larger one is truncated.
const UDP_BYTES_MAX: usize = 512;

/// A question: the name in lower case, without the final dot, and the type.
pub(crate) struct Question {
    pub(crate) name: String,
    pub(crate) kind: u16,
}

/// The server's reaction to a question.
#[derive(Clone)]
pub(crate) enum Answer {
    /// No answer.
    Silence,
    /// NXDOMAIN.
    NoName,
    /// SERVFAIL.
    Failure,
    /// The addresses of the requested family, with this time to live, at the end of these aliases.
    Addresses { aliases: Vec<String>, addresses: Vec<IpAddr>, ttl: u32 },
}

impl Answer {
    pub(crate) fn of(addresses: &[&str], ttl: u32) -> Answer {
        let addresses = addresses.iter().map(|address| address.parse().unwrap()).collect();
        Answer::Addresses { aliases: Vec::new(), addresses, ttl }
    }
}

pub(crate) struct Resolver {
    pub(crate) address: Ipv4Addr,
}

impl Resolver {
    /// Starts a server that runs until the test ends.
    pub(crate) fn start(answer: impl Fn(&Question) -> Answer + Send + Sync + 'static) -> Resolver {
        let address = server_address();
        let mut sockets = None;
        let is_bound = eventually(|| {
            let udp = UdpSocket::bind((address, 53));
            sockets = udp.and_then(|udp| Ok((udp, TcpListener::bind((address, 53))?))).ok();
            sockets.is_some()
        });
        assert!(is_bound, "port 53 of {address} is taken");
        let (udp, tcp) = sockets.unwrap();
        let answer: Arc<dyn Fn(&Question) -> Answer + Send + Sync> = Arc::new(answer);
        let over_udp = Arc::clone(&answer);
        thread::spawn(move || serve_udp(&udp, &*over_udp));
        thread::spawn(move || {
            for stream in tcp.incoming().flatten() {
                let answer = Arc::clone(&answer);
                thread::spawn(move || serve_tcp(stream, &*answer));
            }
        });
        Resolver { address }
    }
}

type Decide = dyn Fn(&Question) -> Answer + Send + Sync;

fn serve_udp(socket: &UdpSocket, answer: &Decide) {
    let mut query = [0; 2048];
    while let Ok((length, client)) = socket.recv_from(&mut query) {
        let Some(mut response) = respond(&query[..length], answer) else { continue };
        if response.len() > UDP_BYTES_MAX {
            let question_end = 12 + name_length(&query[12..length]) + 4;
            response.truncate(question_end);
            response[2] |= 2;
            response[6..8].fill(0);
        }
        // A client that has ended needs no answer.
        let _ = socket.send_to(&response, client);
    }
}

fn serve_tcp(mut stream: TcpStream, answer: &Decide) -> io::Result<()> {
    loop {
        let mut length = [0; 2];
        stream.read_exact(&mut length)?;
        let mut query = vec![0; usize::from(u16::from_be_bytes(length))];
        stream.read_exact(&mut query)?;
        let Some(response) = respond(&query, answer) else { continue };
        let length = u16::try_from(response.len()).unwrap();
        stream.write_all(&[&length.to_be_bytes(), response.as_slice()].concat())?;
    }
}

/// Length of the name at the start, with the root label, in bytes.
fn name_length(bytes: &[u8]) -> usize {
    let mut at = 0;
    while bytes[at] > 0 {
        at += 1 + usize::from(bytes[at]);
    }
    at + 1
}

fn respond(query: &[u8], answer: &Decide) -> Option<Vec<u8>> {
    let end = 12 + name_length(&query[12..]);
    let (mut labels, mut rest) = (Vec::new(), &query[12..end]);
    while let Some((&length @ 1.., after)) = rest.split_first() {
        let (label, after) = after.split_at(usize::from(length));
        labels.push(String::from_utf8_lossy(label).to_lowercase());
        rest = after;
    }
    let kind = u16::from_be_bytes([query[end], query[end + 1]]);
    let question = Question { name: labels.join("."), kind };
    let (code, aliases, addresses, ttl) = match answer(&question) {
        Answer::Silence => return None,
        Answer::NoName => (3, Vec::new(), Vec::new(), 0),
        Answer::Failure => (2, Vec::new(), Vec::new(), 0),
        Answer::Addresses { aliases, addresses, ttl } => (0, aliases, addresses, ttl),
    };
    let mut records = Vec::new();
    let mut count = 0u16;
    let mut owner = question.name;
    let mut add = |owner: &str, kind: u16, data: &[u8]| {
        records.extend(encoded(owner));
        records.extend(kind.to_be_bytes());
        records.extend([0, 1]);
        records.extend(ttl.to_be_bytes());
        records.extend(u16::try_from(data.len()).unwrap().to_be_bytes());
        records.extend(data);
        count += 1;
    };
    for alias in aliases {
        add(&owner, CNAME, &encoded(&alias));
        owner = alias;
    }
    for address in addresses {
        match address {
            IpAddr::V4(address) if kind == A => add(&owner, A, &address.octets()),
            IpAddr::V6(address) if kind == AAAA => add(&owner, AAAA, &address.octets()),
            _ => {}
        }
    }
    let mut response = query[..2].to_vec();
    response.extend([0x81, 0x80 | code, 0, 1]);
    response.extend(count.to_be_bytes());
    response.extend([0, 0, 0, 0]);
    response.extend(&query[12..end + 4]);
    response.extend(records);
    Some(response)
}

fn encoded(name: &str) -> Vec<u8> {
    let mut bytes = Vec::new();
    for label in name.split('.').filter(|label| !label.is_empty()) {
        bytes.push(u8::try_from(label.len()).unwrap());
        bytes.extend(label.bytes());
    }
    bytes.push(0);
    bytes
}
