//! Checks of a backend with a host name, and the selection of the address to check.

use std::net::SocketAddr;
use std::sync::{Mutex, MutexGuard};

use equipoise_basics::lock;

use crate::checker::Outcome;
use crate::probe::{How, probe_first};
use crate::{ActiveHealth, CheckError, Resolved};

/// The checks of one backend with a host name.
///
/// Checks stay with one address and try others only if it does not accept a connection. Levels that
/// send to one address use the same one. It changes after `fall` consecutive checks that passed
/// elsewhere, or at once if the name no longer has it. Thus a lost SYN moves no flow.
#[derive(Debug, Default)]
pub(crate) struct NamedChecks {
    /// IPv6 and IPv4; only the first is used if families are not checked separately.
    stays: Mutex<[Stay; 2]>,
}

/// The address that the checks of one family use.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct Stay {
    at: Option<SocketAddr>,
    /// Number of consecutive checks that contradict `at`.
    contrary: u32,
}

impl Stay {
    /// Returns the address if it is one of `addresses`.
    fn valid(&self, addresses: &[SocketAddr]) -> Option<SocketAddr> {
        self.at.filter(|at| addresses.contains(at))
    }

    /// Returns the addresses in the order in which a check tries them.
    fn order(&self, addresses: &[SocketAddr]) -> Vec<SocketAddr> {
        let first = self.valid(addresses);
        let others = addresses.iter().copied().filter(|it| Some(*it) != first);
        first.into_iter().chain(others).collect()
    }

    /// Records that a check passed at an address.
    fn passed(&mut self, at: SocketAddr, addresses: &[SocketAddr], fall: u32) {
        self.contrary += 1;
        match self.valid(addresses) {
            Some(stayed) if stayed == at => self.contrary = 0,
            Some(_) if self.contrary < fall => {}
            _ => *self = Stay { at: Some(at), contrary: 0 },
        }
    }

    /// Records that a check failed at an address that accepted the connection. After `fall` such
    /// checks, checks use the next address.
    fn failed(&mut self, at: SocketAddr, addresses: &[SocketAddr], fall: u32) {
        self.contrary += 1;
        if self.contrary < fall {
            return;
        }
        let place = addresses.iter().position(|it| *it == at).unwrap_or_default();
        *self = Stay { at: addresses.get((place + 1) % addresses.len()).copied(), contrary: 0 };
    }
}

impl NamedChecks {
    /// Runs one check within the timeout. It passes if it passes at one address. Reports the
    /// address that checks use, or with `every_family` one address of each family that passed.
    pub(crate) async fn check(
        &self,
        health: &ActiveHealth,
        how: How<'_>,
        name: &str,
        resolved: &Resolved,
    ) -> Outcome {
        let all = resolved.addresses();
        if !health.every_family {
            let checked = self.check_at(0, health, how, name, all).await;
            if let Ok(at) = checked {
                resolved.prefer(at);
            }
            return outcome([Some(checked), None]);
        }
        let (v6, v4): (Vec<_>, Vec<_>) = all.iter().copied().partition(SocketAddr::is_ipv6);
        let of_family = async |place: usize, addresses: &[SocketAddr]| match addresses {
            [] => None,
            some => Some(self.check_at(place, health, how, name, some).await),
        };
        let (v6, v4) = tokio::join!(of_family(0, &v6), of_family(1, &v4));
        outcome([v6, v4])
    }

    /// Runs one check of these addresses. Returns the address that checks use.
    async fn check_at(
        &self,
        place: usize,
        health: &ActiveHealth,
        how: How<'_>,
        name: &str,
        addresses: &[SocketAddr],
    ) -> Result<SocketAddr, CheckError> {
        let order = self.stays()[place].order(addresses);
        let (port, timeout) = (health.port, health.timeout);
        let asked = probe_first(&health.check, how, name, order, port, timeout).await;
        let stay = &mut self.stays()[place];
        match asked {
            Ok((at, Ok(()))) => {
                stay.passed(at, addresses, health.fall);
                Ok(stay.at.unwrap_or(at))
            }
            Ok((at, Err(error))) => {
                stay.failed(at, addresses, health.fall);
                Err(error)
            }
            Err(error) => Err(error),
        }
    }

    fn stays(&self) -> MutexGuard<'_, [Stay; 2]> {
        lock(&self.stays)
    }
}

/// Combines the outcomes of both families. Of two errors, reports one that blames the backend.
fn outcome(families: [Option<Result<SocketAddr, CheckError>>; 2]) -> Outcome {
    let (mut addresses, mut failure) = (Vec::new(), None::<CheckError>);
    for checked in families.into_iter().flatten() {
        match checked {
            Ok(at) => addresses.push(at),
            Err(error) if failure.as_ref().is_none_or(|it| !it.blames_backend()) => {
                failure = Some(error);
            }
            Err(_) => {}
        }
    }
    let result = match failure {
        Some(error) if addresses.is_empty() => Err(error),
        _ => Ok(()),
    };
    Outcome { result, addresses }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use tokio::net::TcpListener;

    use super::*;

    fn address(last: u8) -> SocketAddr {
        ([192, 0, 2, last], 80).into()
    }

    #[test]
    fn checks_stay_with_an_address_until_enough_of_them_passed_elsewhere() {
        let all = [address(1), address(2)];
        let mut stay = Stay::default();
        stay.passed(address(2), &all, 3);
        assert_eq!(stay.order(&all), [address(2), address(1)]);
        for at in [1, 1, 2, 1, 1] {
            stay.passed(address(at), &all, 3);
            assert_eq!(stay.at, Some(address(2)), "no three in a row");
        }
        stay.passed(address(1), &all, 3);
        assert_eq!(stay, Stay { at: Some(address(1)), contrary: 0 });
        let others = [address(2), address(3)];
        stay.passed(address(3), &others, 3);
        assert_eq!(
            stay.at,
            Some(address(3)),
            "an address that the name no longer has keeps no check"
        );
    }

    #[test]
    fn an_address_that_only_accepts_gives_way_to_the_next() {
        let all = [address(1), address(2)];
        let mut stay = Stay { at: Some(address(2)), contrary: 0 };
        stay.failed(address(2), &all, 2);
        assert_eq!(stay.at, Some(address(2)));
        stay.failed(address(2), &all, 2);
        assert_eq!(stay.order(&all), [address(1), address(2)]);
    }

    #[tokio::test]
    async fn each_family_has_an_address_that_passed() {
        let v4 = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let live = v4.local_addr().unwrap();
        let dead = SocketAddr::new([127, 0, 0, 2].into(), live.port());
        let v6 = TcpListener::bind("[::1]:0").await;
        let mut addresses = vec![dead, live];
        addresses.extend(v6.iter().map(|listener| listener.local_addr().unwrap()));
        let resolved = Resolved::new(addresses);
        let timeout = Duration::from_secs(30);
        let health = ActiveHealth { every_family: true, timeout, ..ActiveHealth::default() };
        let outcome = NamedChecks::default()
            .check(&health, How::default(), "app.internal:80", &resolved)
            .await;
        assert_eq!(outcome.result, Ok(()));
        assert!(outcome.addresses.contains(&live), "{outcome:?}");
        assert_eq!(outcome.addresses.len(), if v6.is_ok() { 2 } else { 1 }, "{outcome:?}");
        let refused = Resolved::new([dead]);
        let outcome = NamedChecks::default()
            .check(&health, How::default(), "app.internal:80", &refused)
            .await;
        assert_eq!(outcome, Outcome { result: Err(CheckError::Refused), addresses: Vec::new() });
    }
}
