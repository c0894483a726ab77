//! Destination of a backend's connections: an address, a unix socket, or the addresses of a host
//! name.

use std::collections::VecDeque;
use std::future::{Future, poll_fn};
use std::io;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr, UdpSocket};
use std::path::Path;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};
use std::task::{Context, Poll};
use std::time::Duration;

use equipoise_tls::ClientTls;
use rustls::pki_types::ServerName;
use tokio::time::{Sleep, sleep};

/// Destination of a backend's connections.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum Place {
    /// The backend's address.
    #[default]
    Address,
    /// A unix socket; the backend's address is a [`stand_in`]. Not for UDP.
    Socket(Arc<Path>),
    /// A host name; the backend's address is a [`stand_in`].
    Host {
        /// `HOST:PORT`, as configured.
        name: Arc<str>,
        /// Current addresses of the name.
        resolved: Resolved,
    },
}

impl Place {
    /// Whether connections are possible: a host name may have no address.
    pub fn is_reachable(&self) -> bool {
        !matches!(self, Place::Host { resolved, .. } if resolved.addresses().is_empty())
    }

    /// Returns the place as configured; `own` is the backend's address.
    pub fn text(&self, own: SocketAddr) -> String {
        match self {
            Place::Address => own.to_string(),
            Place::Socket(path) => format!("unix:{}", path.display()),
            Place::Host { name, .. } => name.to_string(),
        }
    }

    /// The name that a server at this place, with `ip` as its own address, has to prove.
    pub fn server_name(&self, tls: &ClientTls, ip: IpAddr) -> ServerName<'static> {
        match self {
            Place::Address => tls.server_name(None, Some(ip)),
            Place::Socket(_) => tls.server_name(None, None),
            Place::Host { name, .. } => {
                let host = name.rsplit_once(':').map_or(&**name, |(host, _)| host);
                tls.server_name(Some(host.trim_end_matches('.')), None)
            }
        }
    }

    /// Whether a connection that was opened to `remote` still belongs to this backend: the
    /// addresses of a host name may have changed. `None`: a connection to a unix socket.
    pub fn includes(&self, remote: Option<SocketAddr>) -> bool {
        match self {
            Place::Host { resolved, .. } => {
                remote.is_some_and(|remote| resolved.addresses().contains(&remote))
            }
            Place::Address | Place::Socket(_) => true,
        }
    }

    /// Returns the addresses of a backend with the configured address `own`: those of its host
    /// name, or else `own`.
    pub fn addresses<'p>(&'p self, own: &'p SocketAddr) -> &'p [SocketAddr] {
        match self {
            Place::Host { resolved, .. } => resolved.addresses(),
            Place::Address | Place::Socket(_) => std::slice::from_ref(own),
        }
    }
}

/// Returns an address that identifies a backend without an address. It is in the discard prefix
/// (RFC 6666) and has a hash of `place` (FNV-1a), so it is the same in every process.
pub fn stand_in(place: &[u8], port: u16) -> SocketAddr {
    let mix = |hash: u64, byte: &u8| (hash ^ u64::from(*byte)).wrapping_mul(0x0100_0000_01b3);
    let hash = place.iter().fold(0xcbf2_9ce4_8422_2325, mix);
    let address = (0x0100_u128 << 112) | u128::from(hash);
    (Ipv6Addr::from(address), port).into()
}

/// Whether an address is a [`stand_in`], which is not reachable.
pub fn is_stand_in(address: IpAddr) -> bool {
    matches!(address, IpAddr::V6(address) if address.segments()[..4] == [0x0100, 0, 0, 0])
}

/// Maximum number of addresses of a host name.
const ADDRESSES_MAX: usize = 16;

/// Delay before the next address is tried while the previous attempt is pending (RFC 8305, section
/// 8).
const ATTEMPT_DELAY: Duration = Duration::from_millis(250);

/// The addresses of a host name, and the one that last accepted a connection. Equality compares the
/// addresses only.
#[derive(Clone, Debug, Default)]
pub struct Resolved {
    addresses: Arc<[SocketAddr]>,
    preferred: Arc<AtomicUsize>,
    problem: Option<Arc<str>>,
}

impl PartialEq for Resolved {
    fn eq(&self, other: &Self) -> bool {
        self.addresses == other.addresses
    }
}

impl Eq for Resolved {}

impl Resolved {
    /// Sorts and deduplicates the addresses of a name, because resolvers rotate them. The families
    /// alternate, starting with IPv6 (RFC 8305, section 4). Keeps at most 16 addresses.
    pub fn new(addresses: impl IntoIterator<Item = SocketAddr>) -> Resolved {
        let mut addresses: Vec<_> = addresses.into_iter().collect();
        addresses.sort_unstable();
        addresses.dedup();
        let (v6, v4): (Vec<_>, Vec<_>) = addresses.into_iter().partition(SocketAddr::is_ipv6);
        let turns = 0..v6.len().max(v4.len());
        let in_turn = turns.flat_map(|turn| [v6.get(turn), v4.get(turn)]).flatten().copied();
        Resolved { addresses: in_turn.take(ADDRESSES_MAX).collect(), ..Resolved::default() }
    }

    /// Returns the same addresses with the error of the last resolution, if it failed.
    #[must_use]
    pub fn with_problem(&self, problem: Option<Arc<str>>) -> Resolved {
        Resolved { problem, ..self.clone() }
    }

    /// Returns these addresses. Connections prefer the address that `before` preferred, if it is
    /// one of them.
    pub fn succeeding(self, before: &Resolved) -> Resolved {
        if let Some(address) = before.ordered().next() {
            self.prefer(address);
        }
        self
    }

    /// Returns all addresses.
    pub fn addresses(&self) -> &[SocketAddr] {
        &self.addresses
    }

    /// Returns the error of the last resolution, if it failed.
    pub fn problem(&self) -> Option<&Arc<str>> {
        self.problem.as_ref()
    }

    /// Returns the preferred address, then the others in order.
    pub fn ordered(&self) -> impl Iterator<Item = SocketAddr> {
        let preferred = self.preferred.load(Relaxed);
        let others = (0..self.addresses.len()).filter(move |at| *at != preferred);
        std::iter::once(preferred).chain(others).filter_map(|at| self.addresses.get(at).copied())
    }

    /// Makes connections prefer this address, if it is one of these.
    pub(crate) fn prefer(&self, address: SocketAddr) {
        if let Some(at) = self.addresses.iter().position(|it| *it == address) {
            self.preferred.store(at, Relaxed);
        }
    }

    /// Returns the addresses with those in `first` moved to the front, for levels that use the
    /// first of a family.
    pub fn beginning_with(&self, first: &[SocketAddr]) -> Resolved {
        let (first, others): (Vec<_>, Vec<_>) =
            self.addresses.iter().copied().partition(|it| first.contains(it));
        let addresses = first.into_iter().chain(others).collect();
        Resolved { addresses, preferred: Arc::default(), problem: self.problem.clone() }
    }

    /// Opens a connection to the first address that accepts one, starting with the one that last
    /// accepted. Tries the next address when an attempt fails or is pending for 250 ms. The caller
    /// sets the timeout.
    ///
    /// # Errors
    /// The last error that concerns the backend, see [`more_telling`]; `NotFound` if there is no
    /// address.
    pub async fn connect<C, F>(&self, open: impl FnMut(SocketAddr) -> F) -> io::Result<C>
    where
        F: Future<Output = io::Result<C>>,
    {
        let (address, connection) = connect_first(self.ordered(), open).await?;
        self.prefer(address);
        Ok(connection)
    }
}

/// Opens a connection to the first of these addresses that accepts one, see [`Resolved::connect`].
/// Returns that address.
pub(crate) async fn connect_first<C, F>(
    addresses: impl IntoIterator<Item = SocketAddr>,
    mut open: impl FnMut(SocketAddr) -> F,
) -> io::Result<(SocketAddr, C)>
where
    F: Future<Output = io::Result<C>>,
{
    let mut waiting: VecDeque<_> = addresses.into_iter().collect();
    let mut open = |address| {
        let opened = open(address);
        async move { opened.await.map_err(|error| with_cause(error, address)) }
    };
    if let (1, Some(only)) = (waiting.len(), waiting.front().copied()) {
        return Ok((only, open(only).await?));
    }
    let mut race = Race { attempts: Vec::new(), delay: Box::pin(sleep(Duration::ZERO)) };
    let mut failure = io::Error::from(io::ErrorKind::NotFound);
    loop {
        if let Some(address) = waiting.pop_front() {
            race.attempts.push((address, Box::pin(open(address))));
            race.delay = Box::pin(sleep(ATTEMPT_DELAY));
        } else if race.attempts.is_empty() {
            return Err(failure);
        }
        match poll_fn(|cx| race.poll(cx, waiting.is_empty())).await {
            Step::Connected(address, connection) => return Ok((address, connection)),
            Step::Failed(error) => failure = more_telling(failure, error),
            Step::Delayed => {}
        }
    }
}

/// Distinguishes two causes of `EADDRNOTAVAIL`: no free port, or no local address of the family.
/// The second is reported as an unreachable network. It also occurs with UDP, which has separate
/// ports.
fn with_cause(error: io::Error, to: SocketAddr) -> io::Error {
    if error.kind() != io::ErrorKind::AddrNotAvailable {
        return error;
    }
    let any: IpAddr = match to {
        SocketAddr::V4(_) => Ipv4Addr::UNSPECIFIED.into(),
        SocketAddr::V6(_) => Ipv6Addr::UNSPECIFIED.into(),
    };
    match UdpSocket::bind((any, 0)).map(|socket| socket.connect(to)) {
        Ok(Err(_)) => io::Error::from_raw_os_error(libc::ENETUNREACH),
        Ok(Ok(())) | Err(_) => error,
    }
}

/// Selects the error to report of two attempts at one backend: the later, unless its cause is
/// local. For example, a machine without IPv6 cannot use a name's IPv6 addresses, which is not the
/// backend's fault.
pub fn more_telling(before: io::Error, now: io::Error) -> io::Error {
    use io::ErrorKind::{AddrNotAvailable, NetworkUnreachable, NotFound};
    let is_local = |error: &io::Error| {
        matches!(error.kind(), AddrNotAvailable | NetworkUnreachable | NotFound)
            || error.raw_os_error() == Some(libc::EAFNOSUPPORT)
    };
    if is_local(&now) && !is_local(&before) { before } else { now }
}

/// Pending connection attempts.
struct Race<F> {
    attempts: Vec<(SocketAddr, Pin<Box<F>>)>,
    delay: Pin<Box<Sleep>>,
}

enum Step<C> {
    Connected(SocketAddr, C),
    Failed(io::Error),
    /// No attempt ended within the delay.
    Delayed,
}

impl<C, F: Future<Output = io::Result<C>>> Race<F> {
    /// Polls for the next event. `is_last`: there is no further address to try.
    fn poll(&mut self, cx: &mut Context<'_>, is_last: bool) -> Poll<Step<C>> {
        for place in 0..self.attempts.len() {
            let (address, attempt) = &mut self.attempts[place];
            let address = *address;
            if let Poll::Ready(ended) = attempt.as_mut().poll(cx) {
                drop(self.attempts.swap_remove(place));
                return Poll::Ready(match ended {
                    Ok(connection) => Step::Connected(address, connection),
                    Err(error) => Step::Failed(error),
                });
            }
        }
        if is_last {
            return Poll::Pending;
        }
        self.delay.as_mut().poll(cx).map(|()| Step::Delayed)
    }
}

/// Returns the IP addresses of `place`.
pub fn ips<'p>(place: &'p Place, own: &'p SocketAddr) -> impl Iterator<Item = IpAddr> + 'p {
    place.addresses(own).iter().map(|address| address.ip().to_canonical())
}

#[cfg(test)]
mod tests {
    use std::future::pending;

    use tokio::time::Instant;

    use super::*;

    fn address(last: u8) -> SocketAddr {
        ([192, 0, 2, last], 80).into()
    }

    /// A backend's addresses: 1 refuses, 2 never answers, others accept.
    async fn open(address: SocketAddr) -> io::Result<SocketAddr> {
        match address.ip() {
            IpAddr::V4(ip) if ip.octets()[3] == 1 => Err(io::ErrorKind::ConnectionRefused.into()),
            IpAddr::V4(ip) if ip.octets()[3] == 2 => pending().await,
            _ => Ok(address),
        }
    }

    #[tokio::test(start_paused = true)]
    async fn the_first_address_that_connects_is_used_and_tried_first_the_next_time() {
        let resolved = Resolved::new((1..=3).map(address));
        let begun = Instant::now();
        assert_eq!(resolved.connect(open).await.unwrap(), address(3));
        assert_eq!(
            begun.elapsed(),
            ATTEMPT_DELAY,
            "the silent one costs a delay, the refusing one none"
        );
        assert_eq!(resolved.clone().connect(open).await.unwrap(), address(3));
        assert_eq!(begun.elapsed(), ATTEMPT_DELAY);
        assert_eq!(resolved.ordered().next(), Some(address(3)));
    }

    #[tokio::test(start_paused = true)]
    async fn a_slow_address_still_wins_when_all_others_refuse() {
        let resolved = Resolved::new([address(1), address(9)]);
        resolved.preferred.store(1, Relaxed);
        let slow = |to: SocketAddr| async move {
            if to == address(9) {
                sleep(ATTEMPT_DELAY * 8).await;
            }
            open(to).await
        };
        assert_eq!(resolved.connect(slow).await.unwrap(), address(9));
    }

    #[tokio::test]
    async fn where_no_address_connects_the_last_error_is_the_answer() {
        let refused = Resolved::new([address(1), "[2001:db8::1]:80".parse().unwrap()]);
        let open = |_| async { Err::<(), _>(io::Error::from(io::ErrorKind::ConnectionRefused)) };
        assert_eq!(
            refused.connect(open).await.unwrap_err().kind(),
            io::ErrorKind::ConnectionRefused
        );
        let none = Resolved::default().connect(open).await;
        assert_eq!(none.unwrap_err().kind(), io::ErrorKind::NotFound);
    }

    #[tokio::test]
    async fn an_address_that_this_machine_cannot_use_hides_no_error_of_the_backend() {
        let resolved = Resolved::new([address(1), "[2001:db8::1]:80".parse().unwrap()]);
        let open = |to: SocketAddr| async move {
            let unusable = io::ErrorKind::AddrNotAvailable;
            let kind = if to.is_ipv6() { unusable } else { io::ErrorKind::ConnectionRefused };
            Err::<(), _>(io::Error::from(kind))
        };
        for preferred in [0, 1] {
            resolved.preferred.store(preferred, Relaxed);
            let error = resolved.connect(open).await.unwrap_err();
            assert_eq!(error.kind(), io::ErrorKind::ConnectionRefused, "{preferred} first");
        }
    }

    #[test]
    fn other_addresses_keep_the_preferred_one_while_it_is_among_them() {
        let before = Resolved::new([address(1), address(2), address(3)]);
        before.preferred.store(2, Relaxed);
        let kept = Resolved::new([address(3), address(4), address(1)]).succeeding(&before);
        assert_eq!(kept.ordered().next(), Some(address(3)));
        let gone = Resolved::new([address(4), address(5)]).succeeding(&before);
        assert_eq!(gone.ordered().next(), Some(address(4)));
    }

    #[test]
    fn a_connection_is_the_backends_while_its_address_is() {
        let resolved = Resolved::new([address(1), address(2)]);
        let host = Place::Host { name: "app.internal:80".into(), resolved };
        assert!(host.includes(Some(address(2))));
        assert!(!host.includes(Some(address(3))) && !host.includes(None));
        assert!(Place::Address.includes(Some(address(3))));
        assert!(Place::Socket(Path::new("/run/app.sock").into()).includes(None));
    }

    #[test]
    fn candidates_are_few_each_once_and_in_an_order_that_answers_do_not_change() {
        let v6: SocketAddr = "[2001:db8::1]:80".parse().unwrap();
        let resolved = Resolved::new([address(2), v6, address(1), address(2)]);
        assert_eq!(resolved.addresses(), [v6, address(1), address(2)]);
        assert_eq!(resolved, Resolved::new([address(1), address(2), v6]));
        assert_eq!(Resolved::new((0..99).map(address)).addresses().len(), ADDRESSES_MAX);
        let many_v6 = (0..99).map(|last| SocketAddr::from(([0x2001, 0, 0, 0, 0, 0, 0, last], 80)));
        let both = Resolved::new(many_v6.chain([address(1)]));
        assert_eq!(both.addresses()[1], address(1), "no family hides the other");
    }
}
