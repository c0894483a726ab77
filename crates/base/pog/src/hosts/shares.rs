//! Divides entries by capacity: the largest-remainder method.

use thiserror::Error;

use super::{HostId, NO_HOST};

/// Entries cannot be divided.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
pub enum SharesError {
    /// No host has any capacity.
    #[error("no host has a capacity above 0: give one of them at least 1")]
    NoCapacity,
    /// A host is listed twice.
    #[error("host {0} stands twice: state each host's capacity once")]
    Twice(HostId),
    /// The number is reserved for "no host".
    #[error("{NO_HOST} stands for no host: number hosts from 0 to {}", NO_HOST - 1)]
    NotAHost,
}

/// Returns the number of entries of each host: the integer part of its share, plus one for the
/// hosts with the largest remainders. The sum is `entries`.
///
/// Of equal remainders, a host that has more than its integer part `now` takes precedence, so that
/// nothing moves. The next criterion is the host's number.
///
/// # Errors
/// [`SharesError`].
pub fn shares(
    capacities: &[(HostId, u32)],
    entries: usize,
    now: impl Fn(HostId) -> usize,
) -> Result<Vec<(HostId, usize)>, SharesError> {
    let total = checked_total(capacities)?;
    let exact = |capacity: u32| u128::from(capacity) * entries as u128;
    let mut shares: Vec<(HostId, usize)> = capacities
        .iter()
        .map(|&(host, capacity)| (host, (exact(capacity) / total) as usize))
        .collect();
    let left = entries - shares.iter().map(|(_, share)| share).sum::<usize>();
    let mut order: Vec<usize> = (0..capacities.len()).collect();
    order.sort_by_key(|&at| {
        let (host, capacity) = capacities[at];
        let remainder = exact(capacity) % total;
        (std::cmp::Reverse(remainder), now(host) <= shares[at].1, host)
    });
    for at in order.into_iter().take(left) {
        shares[at].1 += 1;
    }
    Ok(shares)
}

pub(super) fn checked_total(capacities: &[(HostId, u32)]) -> Result<u128, SharesError> {
    let mut hosts: Vec<HostId> = capacities.iter().map(|&(host, _)| host).collect();
    hosts.sort_unstable();
    if hosts.last() == Some(&NO_HOST) {
        return Err(SharesError::NotAHost);
    }
    if let Some(pair) = hosts.windows(2).find(|pair| pair[0] == pair[1]) {
        return Err(SharesError::Twice(pair[0]));
    }
    let total = capacities.iter().map(|&(_, capacity)| u128::from(capacity)).sum();
    if total == 0 {
        return Err(SharesError::NoCapacity);
    }
    Ok(total)
}
