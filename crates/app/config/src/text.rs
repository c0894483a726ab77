//! Strings of the file that stand for values of other types; quantities with their units.

mod clock;
mod http;
mod limits;
mod places;

use std::str::FromStr;
use std::time::Duration;

pub(super) use self::clock::{TimeOfDay, UtcOffset, Weekday, Zone};
pub(super) use self::http::{
    HashedBy, HeaderLine, HedgeDelay, RedirectTo, RetryFailure, StatusRange, StatusRanges, StickyTo,
};
pub(super) use self::limits::{Bandwidth, CountedBy, RateText};
pub use self::places::{AccessLog, SyslogTo};
pub(super) use self::places::{AddressPrefix, ApiListen, Listen, PortRange, prefixes};

/// The words with commas between them, and `last` before the last one: "a, b or c".
pub(super) fn listed(words: &[String], last: &str) -> String {
    match words {
        [] => String::new(),
        [word] => word.clone(),
        [others @ .., word] => format!("{} {last} {word}", others.join(", ")),
    }
}

/// Units of time in milliseconds, largest first.
const TIME_UNITS: &[(&str, u64)] =
    &[("d", 86_400_000), ("h", 3_600_000), ("m", 60_000), ("s", 1_000), ("ms", 1)];

/// Units of size in bytes. The binary ones come first, largest first, so that sizes are shown in
/// them.
const SIZE_UNITS: &[(&str, u64)] = &[
    ("TiB", 1 << 40),
    ("GiB", 1 << 30),
    ("MiB", 1 << 20),
    ("KiB", 1 << 10),
    ("TB", 1_000_000_000_000),
    ("GB", 1_000_000_000),
    ("MB", 1_000_000),
    ("KB", 1_000),
    ("B", 1),
];

/// Units of link speed in bits per second, largest first.
const SPEED_UNITS: &[(&str, u64)] = &[
    ("Tbit/s", 1_000_000_000_000),
    ("Gbit/s", 1_000_000_000),
    ("Mbit/s", 1_000_000),
    ("Kbit/s", 1_000),
];

/// Reads a number and a unit. `None` without a known unit. A number beyond `u64` saturates; the
/// upper bound then refuses it.
fn quantity(text: &str, units: &[(&str, u64)]) -> Option<u64> {
    let digits = text.bytes().take_while(u8::is_ascii_digit).count();
    let (number, unit) = text.split_at(digits);
    let (_, factor) = units.iter().find(|(name, _)| *name == unit)?;
    (digits > 0).then(|| number.parse().unwrap_or(u64::MAX).saturating_mul(*factor))
}

fn show(amount: u64, units: &[(&str, u64)], zero: &str) -> String {
    units
        .iter()
        .find(|(_, factor)| amount > 0 && amount.is_multiple_of(*factor))
        .map_or_else(|| zero.to_string(), |(unit, factor)| format!("{}{unit}", amount / factor))
}

/// Reads `250ms`, `2s`, `1m`, `1h`, `1d`.
pub(super) fn read_duration(text: &str) -> Option<Duration> {
    quantity(text, TIME_UNITS).map(Duration::from_millis)
}

/// The shortest text that [`read_duration`] reads back as `duration`.
pub(super) fn show_duration(duration: Duration) -> String {
    show(duration.as_millis().try_into().unwrap_or(u64::MAX), TIME_UNITS, "0s")
}

/// Reads `512B`, `32KiB`, `64MB`.
pub(super) fn read_size(text: &str) -> Option<u64> {
    quantity(text, SIZE_UNITS)
}

/// A text that [`read_size`] reads back as `bytes`.
pub(super) fn show_size(bytes: u64) -> String {
    show(bytes, SIZE_UNITS, "0B")
}

/// Link speed in each direction, in bits per second.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct LinkSpeed(pub u64);

impl FromStr for LinkSpeed {
    type Err = ();

    fn from_str(text: &str) -> Result<Self, ()> {
        let speed = quantity(text, SPEED_UNITS).ok_or(())?;
        if (1_000..=100_000_000_000_000).contains(&speed) { Ok(LinkSpeed(speed)) } else { Err(()) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn displayed_durations_and_sizes_read_back_equal() {
        for ms in [0, 1, 999, 1_000, 90_000, 60_000, 3_600_000, 86_400_000, 86_400_001] {
            let duration = Duration::from_millis(ms);
            assert_eq!(read_duration(&show_duration(duration)), Some(duration));
        }
        for bytes in [0, 1, 1_000, 1_024, 32 << 10, 64_000_000, 1 << 40, u64::MAX] {
            assert_eq!(read_size(&show_size(bytes)), Some(bytes));
        }
    }

    #[test]
    fn a_quantity_is_whole_digits_then_a_unit() {
        for text in ["", "s", "2", "2x", "-2s", "1.5s", "2 s", "2S", "1h30m", "²s"] {
            assert_eq!(read_duration(text), None, "{text}");
        }
        assert_eq!(read_duration("1d"), Some(Duration::from_secs(86_400)));
        assert_eq!(read_size("64MB"), Some(64_000_000));
        assert_eq!(read_size("99999999999999999999TiB"), Some(u64::MAX));
    }

    #[test]
    fn a_links_speed_is_in_bits_a_second() {
        assert_eq!("2500Mbit/s".parse(), Ok(LinkSpeed(2_500_000_000)));
        assert_eq!("100Tbit/s".parse(), Ok(LinkSpeed(100_000_000_000_000)));
        for text in ["", "1", "1G", "1GB/s", "1gbit/s", "2.5Gbit/s", "0Gbit/s", "101Tbit/s"] {
            assert_eq!(text.parse::<LinkSpeed>(), Err(()), "{text}");
        }
    }
}
