//! A connection between two balancers that know the fleet's secret.
//!
//! Each side sends a random number. Both derive a key for each direction from the secret and the
//! two numbers (HKDF-SHA-256), and encrypt and authenticate every record (AES-256-GCM, the nonce is
//! the record's number). A stranger can neither read, alter, repeat nor insert a record. The first
//! record of each side names its node.

use std::io::{self, Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::time::{Duration, Instant};

use aws_lc_rs::aead::{AES_256_GCM, Aad, LessSafeKey, Nonce, UnboundKey};
use aws_lc_rs::hkdf::{HKDF_SHA256, Salt};
use aws_lc_rs::rand;

use crate::config::FleetSecret;
use crate::control::UnreadableMessage;

/// First bytes of a connection; the last two are the version.
const HEAD: &[u8; 8] = b"EQPFLT01";
const RANDOM_BYTES: usize = 32;
const LENGTH_BYTES: usize = 4;
const TAG_BYTES: usize = 16;
const NODE_BYTES: usize = 8;
/// Largest record.
const RECORD_MAX: usize = 1 << 20;

/// A connection failed.
#[derive(Debug, thiserror::Error)]
pub enum PeerError {
    /// The connection ended, or nothing came in time.
    #[error(transparent)]
    Io(#[from] io::Error),
    /// The other side speaks another protocol, or another version.
    #[error("the other side does not share flows, or by another version of equipoise")]
    Foreign,
    /// The other side has another secret, or a third party changed records.
    #[error("the other side has another [flows] seed")]
    Secret,
    /// The other side sent a record that cannot be read.
    #[error(transparent)]
    Message(#[from] UnreadableMessage),
}

/// The keys of one direction.
struct Key {
    key: LessSafeKey,
    records: u64,
}

impl Key {
    fn nonce(&mut self) -> Nonce {
        let mut nonce = [0; 12];
        nonce[4..].copy_from_slice(&self.records.to_be_bytes());
        self.records += 1;
        Nonce::assume_unique_for_key(nonce)
    }
}

/// An authenticated connection.
pub(super) struct Channel {
    stream: TcpStream,
    timeout: Duration,
    sends: Key,
    receives: Key,
    /// The other side's node.
    pub(super) node: u64,
}

impl Channel {
    /// Connects to a peer. Every step may take `timeout`.
    pub(super) fn call(
        peer: SocketAddr,
        secret: &FleetSecret,
        node: u64,
        timeout: Duration,
    ) -> Result<Channel, PeerError> {
        let stream = TcpStream::connect_timeout(&peer, timeout)?;
        Channel::open(stream, secret, node, true, timeout)
    }

    /// Answers a connection.
    pub(super) fn answer(
        stream: TcpStream,
        secret: &FleetSecret,
        node: u64,
        timeout: Duration,
    ) -> Result<Channel, PeerError> {
        Channel::open(stream, secret, node, false, timeout)
    }

    fn open(
        mut stream: TcpStream,
        secret: &FleetSecret,
        node: u64,
        calls: bool,
        timeout: Duration,
    ) -> Result<Channel, PeerError> {
        let deadline = Instant::now() + timeout;
        stream.set_nodelay(true)?;
        stream.set_write_timeout(Some(timeout))?;
        let mut own = [0; RANDOM_BYTES];
        rand::fill(&mut own).map_err(|_| io::Error::other("no random numbers"))?;
        stream.write_all(&[&HEAD[..], &own].concat())?;
        let mut head = [0; HEAD.len() + RANDOM_BYTES];
        read_exact(&mut stream, &mut head, deadline)?;
        let (theirs, random) = head.split_at(HEAD.len());
        if theirs != HEAD {
            return Err(PeerError::Foreign);
        }
        let (caller, callee) = if calls { (&own[..], random) } else { (random, &own[..]) };
        let salt = [caller, callee].concat();
        let (from_caller, from_callee) =
            (key(secret, &salt, "caller"), key(secret, &salt, "callee"));
        let (sends, receives) =
            if calls { (from_caller, from_callee) } else { (from_callee, from_caller) };
        let mut channel = Channel { stream, timeout, sends, receives, node: 0 };
        // The callee proves that it knows the secret after the caller did.
        if calls {
            channel.send(&node.to_be_bytes())?;
        }
        let greeting = channel.receive_by(deadline, NODE_BYTES)?;
        channel.node = greeting[..].try_into().map(u64::from_be_bytes).unwrap_or_default();
        if !calls {
            channel.send(&node.to_be_bytes())?;
        }
        Ok(channel)
    }

    /// Sends a record.
    pub(super) fn send(&mut self, record: &[u8]) -> Result<(), PeerError> {
        let mut sealed = vec![0; LENGTH_BYTES];
        sealed[..].copy_from_slice(&((record.len() + TAG_BYTES) as u32).to_be_bytes());
        let mut text = record.to_vec();
        let nonce = self.sends.nonce();
        let sealing = self.sends.key.seal_in_place_append_tag(nonce, Aad::empty(), &mut text);
        sealing.map_err(|_| io::Error::other("a record cannot be encrypted"))?;
        sealed.append(&mut text);
        Ok(self.stream.write_all(&sealed)?)
    }

    /// Receives a record.
    pub(super) fn receive(&mut self) -> Result<Vec<u8>, PeerError> {
        self.receive_by(Instant::now() + self.timeout, RECORD_MAX)
    }

    fn receive_by(&mut self, deadline: Instant, max: usize) -> Result<Vec<u8>, PeerError> {
        let mut length = [0; LENGTH_BYTES];
        // A side that refuses the other's first record closes the connection.
        read_exact(&mut self.stream, &mut length, deadline).map_err(|error| {
            let is_first = self.receives.records == 0 && is_closed(&error);
            if is_first { PeerError::Secret } else { error.into() }
        })?;
        let length = u32::from_be_bytes(length) as usize;
        if !(TAG_BYTES..=max + TAG_BYTES).contains(&length) {
            return Err(PeerError::Secret);
        }
        let mut sealed = vec![0; length];
        read_exact(&mut self.stream, &mut sealed, deadline)?;
        let nonce = self.receives.nonce();
        let opened = self.receives.key.open_in_place(nonce, Aad::empty(), &mut sealed);
        let bytes = opened.map_err(|_| PeerError::Secret)?.len();
        sealed.truncate(bytes);
        Ok(sealed)
    }
}

fn is_closed(error: &io::Error) -> bool {
    matches!(error.kind(), io::ErrorKind::UnexpectedEof | io::ErrorKind::ConnectionReset)
}

fn key(secret: &FleetSecret, salt: &[u8], direction: &str) -> Key {
    let info = [b"equipoise flows 1", direction.as_bytes()];
    let derived = Salt::new(HKDF_SHA256, salt).extract(secret.bytes());
    let derived = derived.expand(&info, &AES_256_GCM).expect("a key is not longer than 255 hashes");
    Key { key: LessSafeKey::new(UnboundKey::from(derived)), records: 0 }
}

/// Reads until the buffer is full, but not beyond the deadline.
fn read_exact(stream: &mut TcpStream, buffer: &mut [u8], deadline: Instant) -> io::Result<()> {
    let mut at = 0;
    while at < buffer.len() {
        let left = deadline.saturating_duration_since(Instant::now());
        if left.is_zero() {
            return Err(io::ErrorKind::TimedOut.into());
        }
        stream.set_read_timeout(Some(left))?;
        match stream.read(&mut buffer[at..]) {
            Ok(0) => return Err(io::ErrorKind::UnexpectedEof.into()),
            Ok(bytes) => at += bytes,
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => {
                return Err(io::ErrorKind::TimedOut.into());
            }
            Err(error) => return Err(error),
        }
    }
    Ok(())
}
