//! Maglev's ring for both contenders, of a prime number of entries.

/// A ring of `entries` (a prime number) that holds each of `0..hosts` about equally often.
///
/// # Source
/// Eisenbud et al., NSDI 2016, section 3.4.
pub(crate) fn ring(hosts: u16, entries: usize) -> Vec<u16> {
    let mixed = |host: u16, salt: u64| {
        let mut word = (u64::from(host) << 1 | salt).wrapping_mul(0x9e37_79b9_7f4a_7c15);
        word = (word ^ word >> 30).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        (word ^ word >> 27) as usize
    };
    let mut places: Vec<usize> = (0..hosts).map(|host| mixed(host, 0) % entries).collect();
    let steps: Vec<usize> = (0..hosts).map(|host| mixed(host, 1) % (entries - 1) + 1).collect();
    let mut ring: Vec<Option<u16>> = vec![None; entries];
    let mut left = entries;
    for host in (0..hosts).cycle() {
        let place = &mut places[usize::from(host)];
        while ring[*place].is_some() {
            *place = (*place + steps[usize::from(host)]) % entries;
        }
        ring[*place] = Some(host);
        left -= 1;
        if left == 0 {
            break;
        }
    }
    ring.into_iter().flatten().collect()
}

#[cfg(test)]
mod tests {
    #[test]
    fn every_host_has_its_share() {
        let ring = super::ring(7, 65_537);
        assert_eq!(ring.len(), 65_537);
        for host in 0..7 {
            let entries = ring.iter().filter(|entry| **entry == host).count();
            assert!(entries.abs_diff(65_537 / 7) <= 1, "host {host}: {entries}");
        }
    }
}
