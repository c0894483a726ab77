//! Entries by capacity: the method of the largest remainder.

use thiserror::Error;

use super::{HostId, NO_HOST};

/// Entries cannot be shared out.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
pub enum SharesError {
    /// No host has any capacity.
    #[error("no host has a capacity above 0: give one of them at least 1")]
    NoCapacity,
    /// A host stands twice.
    #[error("host {0} stands twice: state each host's capacity once")]
    Twice(HostId),
    /// A number that means no host.
    #[error("{NO_HOST} stands for no host: number hosts from 0 to {}", NO_HOST - 1)]
    NotAHost,
}

/// How many of `entries` each host gets: the whole part of its share, and one more for those with the largest
/// remainders until all are given out. The sum is `entries`.
///
/// Of equal remainders, that of a host with more than its whole part `now` goes first, for then nothing moves; after
/// it the order of the host's number decides.
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
