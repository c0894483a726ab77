/// Counters of an interface since it came up.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct InterfaceBytes<'a> {
    /// Its name.
    pub name: &'a str,
    /// Bytes received.
    pub received: u64,
    /// Bytes sent.
    pub sent: u64,
}

/// Parses `/proc/net/dev`: every interface of this network namespace. Ignores lines that deviate
/// from the documentation.
///
/// # Source
/// proc_pid_net(5). The name of an alias may contain a colon. Old kernels write no space before the
/// numbers.
pub fn net_dev(text: &str) -> impl Iterator<Item = InterfaceBytes<'_>> {
    text.lines().skip(2).filter_map(|line| {
        let (name, numbers) = line.rsplit_once(':')?;
        let mut numbers = numbers.split_ascii_whitespace();
        let received = numbers.next()?.parse().ok()?;
        let sent = numbers.nth(7)?.parse().ok()?;
        Some(InterfaceBytes { name: name.trim(), received, sent })
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_interface_is_read() {
        let text = include_str!("../../fixtures/net_dev-linux-6.18");
        let found: Vec<_> = net_dev(text).collect();
        assert_eq!(
            found.iter().map(|i| i.name).collect::<Vec<_>>(),
            ["lo", "ifb0", "ifb1", "eth0"]
        );
        assert_eq!((found[3].received, found[3].sent), (291_310_804, 720_996));
    }

    #[test]
    fn odd_lines_are_read_or_left_out() {
        let text = "head\nhead\neth0:1 0 0 0 0 0 0 0 2 0 0 0 0 0 0 0\n eth0:1: 3 0 0 0 0 0 0 0 4 0\n\
            short: 1 2 3\nbad: x 0 0 0 0 0 0 0 1 0\nnothing\n\
            max: 18446744073709551615 0 0 0 0 0 0 0 18446744073709551615 0\n";
        let found: Vec<_> = net_dev(text).map(|i| (i.name, i.received, i.sent)).collect();
        assert_eq!(found, [("eth0", 1, 2), ("eth0:1", 3, 4), ("max", u64::MAX, u64::MAX)]);
        assert_eq!(net_dev("").count(), 0);
    }
}
