use std::net::{Ipv4Addr, SocketAddr, UdpSocket};
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::{self, JoinHandle};

/// Datagrams and their senders.
type Seen = Arc<Mutex<Vec<(SocketAddr, Vec<u8>)>>>;

/// A UDP server that sends every datagram back and remembers it.
pub struct UdpEcho {
    address: SocketAddr,
    seen: Seen,
    stop: Arc<AtomicBool>,
    thread: Option<JoinHandle<()>>,
}

impl UdpEcho {
    /// Starts one.
    pub fn start() -> UdpEcho {
        UdpEcho::answering(|datagram| vec![datagram.to_vec()])
    }

    /// Starts one that answers each datagram with those that `answer` makes of it.
    pub fn answering(answer: impl Fn(&[u8]) -> Vec<Vec<u8>> + Send + 'static) -> UdpEcho {
        let socket = UdpSocket::bind((Ipv4Addr::LOCALHOST, 0)).expect("a loopback port is free");
        let address = socket.local_addr().expect("a bound socket has an address");
        let seen = Seen::default();
        let stop = Arc::<AtomicBool>::default();
        let (log, end) = (seen.clone(), stop.clone());
        let thread = thread::spawn(move || {
            let mut buffer = vec![0; 64 << 10];
            while let Ok((bytes, from)) = socket.recv_from(&mut buffer)
                && !end.load(Relaxed)
            {
                let datagram = buffer[..bytes].to_vec();
                let answers = answer(&datagram);
                log.lock().unwrap_or_else(PoisonError::into_inner).push((from, datagram));
                for datagram in answers {
                    let _ = socket.send_to(&datagram, from);
                }
            }
        });
        UdpEcho { address, seen, stop, thread: Some(thread) }
    }

    /// Where it listens.
    pub fn address(&self) -> SocketAddr {
        self.address
    }

    /// The datagrams received so far, with their senders.
    pub fn seen(&self) -> Vec<(SocketAddr, Vec<u8>)> {
        self.seen.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }
}

impl Drop for UdpEcho {
    fn drop(&mut self) {
        self.stop.store(true, Relaxed);
        let wake = UdpSocket::bind((Ipv4Addr::LOCALHOST, 0))
            .and_then(|socket| socket.send_to(b"", self.address));
        // Without the wake-up the thread would sleep on: then it is left to end with the process.
        if let (Ok(_), Some(thread)) = (wake, self.thread.take()) {
            let _ = thread.join();
        }
    }
}
