use std::collections::BTreeSet;
use std::net::{IpAddr, SocketAddr, TcpListener};
use std::sync::{Arc, Mutex, MutexGuard};

use equipoise_basics::lock;

use super::ProcessError;
use super::options::Ports;

/// The ports of a pool's processes.
///
/// The allotment binds a port for a moment to learn that it is free. Another program may take the
/// port before the process does. Then the process ends, and the next attempt uses another port.
#[derive(Debug)]
pub(super) struct PortAllotment {
    address: IpAddr,
    ports: Ports,
    state: Mutex<State>,
}

#[derive(Debug, Default)]
struct State {
    taken: BTreeSet<u16>,
    /// Where the next search in a range begins, so that a port is not reused at once.
    next: u16,
}

/// A port that returns to the allotment when this is dropped.
#[derive(Debug)]
pub(super) struct Taken {
    allotment: Arc<PortAllotment>,
    port: u16,
}

/// Attempts to get a port from the kernel that no process of this pool has.
const TRIES: usize = 100;

impl PortAllotment {
    pub(super) fn new(address: IpAddr, ports: Ports) -> PortAllotment {
        PortAllotment { address, ports, state: Mutex::new(State::default()) }
    }

    fn state(&self) -> MutexGuard<'_, State> {
        lock(&self.state)
    }

    pub(super) fn take(self: &Arc<Self>) -> Result<Taken, ProcessError> {
        let mut state = self.state();
        let port = match self.ports {
            Ports::Free => self.free(&state)?,
            Ports::Range(first, last) => {
                let count = u32::from(last - first) + 1;
                let begin = u32::from(state.next.clamp(first, last) - first);
                let in_turn = (0..count).map(|step| first + ((begin + step) % count) as u16);
                let is_free = |port: &u16| {
                    !state.taken.contains(port)
                        && TcpListener::bind(SocketAddr::new(self.address, *port)).is_ok()
                };
                let found = in_turn.into_iter().find(is_free);
                let (address, used) = (self.address, state.taken.len());
                let port = found.ok_or(ProcessError::NoPort { address, first, last, used })?;
                state.next = if port == last { first } else { port + 1 };
                port
            }
        };
        state.taken.insert(port);
        Ok(Taken { allotment: self.clone(), port })
    }

    fn free(&self, state: &State) -> Result<u16, ProcessError> {
        let what = || format!("a free port on {}", self.address);
        for _ in 0..TRIES {
            let bound = TcpListener::bind(SocketAddr::new(self.address, 0))
                .and_then(|listener| listener.local_addr())
                .map_err(|source| ProcessError::Prepare { what: what(), source })?;
            if !state.taken.contains(&bound.port()) {
                return Ok(bound.port());
            }
        }
        let source = std::io::ErrorKind::AddrInUse.into();
        Err(ProcessError::Prepare { what: what(), source })
    }
}

impl Taken {
    pub(super) fn address(&self) -> SocketAddr {
        SocketAddr::new(self.allotment.address, self.port)
    }
}

impl Drop for Taken {
    fn drop(&mut self) {
        self.allotment.state().taken.remove(&self.port);
    }
}

#[cfg(test)]
mod tests {
    use std::net::Ipv4Addr;

    use super::*;

    const LOCAL: IpAddr = IpAddr::V4(Ipv4Addr::LOCALHOST);

    #[test]
    fn a_port_of_a_range_is_given_once_and_not_again_at_once() {
        // The search skips ports that another program holds, so the range is a port that was free.
        let held = TcpListener::bind((LOCAL, 0)).unwrap();
        let port = held.local_addr().unwrap().port();
        let only = Arc::new(PortAllotment::new(LOCAL, Ports::Range(port, port)));
        let refused = only.take().unwrap_err().to_string();
        assert!(refused.contains(&format!("no port of {port}-{port} is free")), "{refused}");
        drop(held);
        let taken = only.take().unwrap();
        assert_eq!(taken.address().port(), port);
        assert!(only.take().unwrap_err().to_string().contains("1 are used by this pool"));
        drop(taken);
        assert_eq!(only.take().unwrap().address().port(), port);
    }

    #[test]
    fn free_ports_differ() {
        let free = Arc::new(PortAllotment::new(LOCAL, Ports::Free));
        let taken: Vec<Taken> = (0..50).map(|_| free.take().unwrap()).collect();
        let ports: BTreeSet<u16> = taken.iter().map(|one| one.address().port()).collect();
        assert_eq!(ports.len(), 50);
    }
}
