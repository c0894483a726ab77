//! Strings that stand for quantities, addresses and times.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::num::NonZeroU32;
use std::path::PathBuf;
use std::str::FromStr;
use std::time::Duration;

use equipoise_session::config::{HashBy, Hedge};
use equipoise_session::route::Sticky;
use jiff::tz::{Offset, TimeZone};

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

/// Reads an address and the length of its prefix.
pub(super) fn read_prefix(text: &str) -> Option<(IpAddr, u8)> {
    let (address, length) = match text.split_once('/') {
        Some((address, length)) => (address, Some(length.parse::<u8>().ok()?)),
        None => (text, None),
    };
    let address: IpAddr = address.parse().ok()?;
    let bits = if address.is_ipv4() { 32 } else { 128 };
    let length = length.unwrap_or(bits);
    (length <= bits).then_some((address, length))
}

/// Reads `512B`, `32KiB`, `64MB`.
pub(super) fn read_size(text: &str) -> Option<u64> {
    quantity(text, SIZE_UNITS)
}

/// A text that [`read_size`] reads back as `bytes`.
pub(super) fn show_size(bytes: u64) -> String {
    show(bytes, SIZE_UNITS, "0B")
}

/// A number of events in a time: `100/s`, `600/m`, `50/h`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct RateText {
    pub(super) count: NonZeroU32,
    pub(super) per: Duration,
}

impl FromStr for RateText {
    type Err = ();

    fn from_str(text: &str) -> Result<Self, ()> {
        let (number, unit) = text.split_once('/').ok_or(())?;
        let per = match unit {
            "s" => 1,
            "m" => 60,
            "h" => 3600,
            _ => return Err(()),
        };
        let has_digits = number.bytes().all(|byte| byte.is_ascii_digit());
        let count = number.parse().ok().filter(|_| has_digits);
        let count = count.filter(|count: &NonZeroU32| count.get() <= 1_000_000_000).ok_or(())?;
        Ok(RateText { count, per: Duration::from_secs(per) })
    }
}

/// The events that a limit counts together.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum CountedBy {
    Source,
    /// All events of the front door or route.
    All,
    /// The name of a header field.
    Header(String),
}

impl FromStr for CountedBy {
    type Err = ();

    fn from_str(text: &str) -> Result<Self, ()> {
        match text.split_once(':') {
            None if text == "source" => Ok(CountedBy::Source),
            None if text == "front-door" || text == "route" => Ok(CountedBy::All),
            Some(("header", name)) if is_token(name) => {
                Ok(CountedBy::Header(name.to_ascii_lowercase()))
            }
            _ => Err(()),
        }
    }
}

/// Bytes a second: `10MB/s`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Bandwidth(pub u64);

impl FromStr for Bandwidth {
    type Err = ();

    fn from_str(text: &str) -> Result<Self, ()> {
        let size = text.strip_suffix("/s").and_then(read_size).ok_or(())?;
        if (1000..=1_000_000_000_000).contains(&size) { Ok(Bandwidth(size)) } else { Err(()) }
    }
}

/// First and last status of a range: `200-299` or `204`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct StatusRange(pub u16, pub u16);

impl FromStr for StatusRange {
    type Err = ();

    fn from_str(text: &str) -> Result<Self, ()> {
        let (first, last) = text.split_once('-').unwrap_or((text, text));
        let status = |text: &str| {
            let three_digits = text.len() == 3 && text.bytes().all(|b| b.is_ascii_digit());
            text.parse::<u16>().ok().filter(|status| three_digits && (100..=599).contains(status))
        };
        let (first, last) = (status(first).ok_or(())?, status(last).ok_or(())?);
        if first <= last { Ok(StatusRange(first, last)) } else { Err(()) }
    }
}

/// A failure after which a request is tried again: `connect`, `reset` or statuses.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum RetryFailure {
    Connect,
    Reset,
    /// First and last.
    Statuses(u16, u16),
}

impl FromStr for RetryFailure {
    type Err = ();

    fn from_str(text: &str) -> Result<Self, ()> {
        match text {
            "connect" => Ok(RetryFailure::Connect),
            "reset" => Ok(RetryFailure::Reset),
            _ => text.parse().map(|StatusRange(first, last)| RetryFailure::Statuses(first, last)),
        }
    }
}

/// The value that requests to the same pool share: `source`, `header:NAME` or `cookie:NAME`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct StickyTo(pub Sticky);

impl FromStr for StickyTo {
    type Err = ();

    fn from_str(text: &str) -> Result<Self, ()> {
        let (kind, name) = text.split_once(':').unwrap_or((text, ""));
        match kind {
            "source" if text == "source" => Ok(StickyTo(Sticky::Source)),
            "header" if is_token(name) => {
                Ok(StickyTo(Sticky::Header(name.to_ascii_lowercase().into())))
            }
            "cookie" if is_token(name) => Ok(StickyTo(Sticky::Cookie(name.into()))),
            _ => Err(()),
        }
    }
}

/// The part of requests by which they are hashed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct HashedBy(pub HashBy);

impl FromStr for HashedBy {
    type Err = ();

    fn from_str(text: &str) -> Result<Self, ()> {
        let (kind, name) = text.split_once(':').unwrap_or((text, ""));
        Ok(HashedBy(match kind {
            "source" if text == "source" => HashBy::Source,
            "header" if is_token(name) => HashBy::Header(name.to_ascii_lowercase().into()),
            "cookie" if is_token(name) => HashBy::Cookie(name.into()),
            "query" if is_token(name) => HashBy::Query(name.into()),
            _ => return Err(()),
        }))
    }
}

/// Whether the text is a token of HTTP (RFC 9110, section 5.6.2), such as a header's name.
fn is_token(text: &str) -> bool {
    let fits = |b: u8| b.is_ascii_alphanumeric() || b"!#$%&'*+-.^_`|~".contains(&b);
    (1..=128).contains(&text.len()) && text.bytes().all(fits)
}

/// A header that the proxy may write in the name of an operator: `NAME: VALUE`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct HeaderLine {
    pub(super) name: String,
    pub(super) value: String,
}

/// Headers that the proxy writes itself: of the connection, of the length, and of the origin.
const OWN_HEADERS: [&str; 16] = [
    "connection",
    "content-length",
    "expect",
    "forwarded",
    "host",
    "http2-settings",
    "keep-alive",
    "proxy-connection",
    "strict-transport-security",
    "te",
    "trailer",
    "transfer-encoding",
    "upgrade",
    "via",
    "x-real-ip",
    "proxy-status",
];

impl FromStr for HeaderLine {
    type Err = ();

    fn from_str(text: &str) -> Result<Self, ()> {
        let (name, value) = text.split_once(':').ok_or(())?;
        let (lower, value) = (name.to_ascii_lowercase(), value.trim());
        let is_own = OWN_HEADERS.contains(&&*lower)
            || ["x-forwarded-", "equipoise-"].iter().any(|it| lower.starts_with(it));
        let is_text = value.bytes().all(|b| b == b'\t' || (b >= b' ' && b != 0x7f));
        match is_token(name) && !is_own && is_text && text.len() <= 4096 {
            true => Ok(HeaderLine { name: name.into(), value: value.into() }),
            false => Err(()),
        }
    }
}

/// Delay before a request is hedged: `50ms`, or `p95`.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct HedgeDelay(pub Hedge);

impl FromStr for HedgeDelay {
    type Err = ();

    fn from_str(text: &str) -> Result<Self, ()> {
        let Some(percent) = text.strip_prefix('p') else {
            let delay = read_duration(text).filter(|delay| !delay.is_zero());
            return delay.map(|delay| HedgeDelay(Hedge::After(delay))).ok_or(());
        };
        let is_plain = percent.bytes().all(|byte| byte.is_ascii_digit() || byte == b'.');
        let percent = percent.parse::<f64>().ok().filter(|_| is_plain).ok_or(())?;
        match (50.0..=99.9).contains(&percent) {
            true => Ok(HedgeDelay(Hedge::Share(percent / 100.0))),
            false => Err(()),
        }
    }
}

/// Statuses and ranges of statuses: `200-299,401`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct StatusRanges(pub Vec<(u16, u16)>);

impl FromStr for StatusRanges {
    type Err = ();

    fn from_str(text: &str) -> Result<Self, ()> {
        let range = |part: &str| part.trim().parse().map(|StatusRange(first, last)| (first, last));
        Ok(StatusRanges(text.split(',').map(range).collect::<Result<_, ()>>()?))
    }
}

/// `free` (`None`), or the first and last port of a range.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct PortRange(pub Option<(u16, u16)>);

impl FromStr for PortRange {
    type Err = ();

    fn from_str(text: &str) -> Result<Self, ()> {
        if text == "free" {
            return Ok(PortRange(None));
        }
        let (first, last) = text.split_once('-').ok_or(())?;
        let port = |text: &str| text.parse::<u16>().ok().filter(|port| *port > 0).ok_or(());
        let (first, last) = (port(first)?, port(last)?);
        if first <= last { Ok(PortRange(Some((first, last)))) } else { Err(()) }
    }
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

/// Time of day in minutes since midnight: 00:00 to 24:00.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct TimeOfDay(pub u16);

impl FromStr for TimeOfDay {
    type Err = ();

    fn from_str(text: &str) -> Result<Self, ()> {
        let (hours, minutes) = text.split_once(':').ok_or(())?;
        let (hours, minutes) = (two_digits(hours)?, two_digits(minutes)?);
        let all = 60 * hours + minutes;
        if minutes < 60 && all <= 24 * 60 { Ok(TimeOfDay(all)) } else { Err(()) }
    }
}

/// Offset from UTC in minutes: -12:00 to +14:00.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct UtcOffset(pub i16);

impl FromStr for UtcOffset {
    type Err = ();

    fn from_str(text: &str) -> Result<Self, ()> {
        let (sign, ahead) = match text.split_at_checked(1) {
            Some(("+", ahead)) => (1, ahead),
            Some(("-", behind)) => (-1, behind),
            _ => return Err(()),
        };
        let TimeOfDay(minutes) = ahead.parse()?;
        let offset = sign * i16::try_from(minutes).map_err(|_| ())?;
        if (-12 * 60..=14 * 60).contains(&offset) { Ok(UtcOffset(offset)) } else { Err(()) }
    }
}

impl UtcOffset {
    /// The time zone with this offset, without daylight-saving time.
    pub(super) fn zone(self) -> TimeZone {
        let offset = Offset::from_seconds(i32::from(self.0) * 60);
        // The library accepts offsets of up to 25 hours.
        TimeZone::fixed(offset.unwrap_or(Offset::UTC))
    }
}

/// A time zone of the system's tzdata, by name.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Zone(pub TimeZone);

impl FromStr for Zone {
    type Err = ();

    fn from_str(text: &str) -> Result<Self, ()> {
        TimeZone::get(text).map(Zone).map_err(drop)
    }
}

fn two_digits(text: &str) -> Result<u16, ()> {
    let is_number = text.len() == 2 && text.bytes().all(|byte| byte.is_ascii_digit());
    if is_number { text.parse().map_err(|_| ()) } else { Err(()) }
}

/// Day of the week; Monday is 0.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Weekday(pub usize);

impl FromStr for Weekday {
    type Err = ();

    fn from_str(text: &str) -> Result<Self, ()> {
        let days = ["mon", "tue", "wed", "thu", "fri", "sat", "sun"];
        days.iter().position(|day| *day == text).map(Weekday).ok_or(())
    }
}

/// Listen addresses of a front door. `*:80` stands for all addresses of both families.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Listen(pub Vec<SocketAddr>);

impl FromStr for Listen {
    type Err = ();

    fn from_str(text: &str) -> Result<Self, ()> {
        let Some(port) = text.strip_prefix("*:") else {
            return text.parse().map(|address| Listen(vec![address])).map_err(|_| ());
        };
        let port: u16 = port.parse().map_err(|_| ())?;
        let every: [IpAddr; 2] = [Ipv4Addr::UNSPECIFIED.into(), Ipv6Addr::UNSPECIFIED.into()];
        Ok(Listen(every.map(|address| (address, port).into()).into()))
    }
}

/// The port of https to which requests are redirected.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct RedirectTo(pub u16);

impl FromStr for RedirectTo {
    type Err = ();

    fn from_str(text: &str) -> Result<Self, ()> {
        let port = match text.strip_prefix("https").ok_or(())? {
            "" => 443,
            rest => rest.strip_prefix(':').and_then(|port| port.parse().ok()).ok_or(())?,
        };
        if port == 0 { Err(()) } else { Ok(RedirectTo(port)) }
    }
}

/// Destination of the access log.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum AccessLog {
    /// Standard error, with the other logs.
    #[default]
    Stderr,
    /// Standard output.
    Stdout,
    /// A syslog server.
    Syslog(SyslogTo),
    /// A file, to which lines are appended.
    File(PathBuf),
}

/// Address of a syslog server.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum SyslogTo {
    /// Its socket on this machine.
    Unix(PathBuf),
    /// Its UDP address.
    Udp(SocketAddr),
}

impl FromStr for AccessLog {
    type Err = ();

    fn from_str(text: &str) -> Result<Self, ()> {
        match text {
            "stderr" => Ok(AccessLog::Stderr),
            "stdout" => Ok(AccessLog::Stdout),
            "syslog" => Ok(AccessLog::Syslog(SyslogTo::Unix("/dev/log".into()))),
            text if text.starts_with("syslog:") => match &text["syslog:".len()..] {
                path if path.starts_with('/') && !path.ends_with('/') => {
                    Ok(AccessLog::Syslog(SyslogTo::Unix(path.into())))
                }
                address => match address.parse::<SocketAddr>() {
                    Ok(address) if address.port() != 0 => {
                        Ok(AccessLog::Syslog(SyslogTo::Udp(address)))
                    }
                    _ => Err(()),
                },
            },
            // A bare word is more likely a typing mistake than a file in the working directory.
            path if path.contains('/') && !path.ends_with('/') => Ok(AccessLog::File(path.into())),
            _ => Err(()),
        }
    }
}

/// Listen address of the API besides its unix socket; `None` if there is none.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct ApiListen(pub Option<SocketAddr>);

impl FromStr for ApiListen {
    type Err = ();

    fn from_str(text: &str) -> Result<Self, ()> {
        if text == "off" {
            return Ok(ApiListen(None));
        }
        text.parse().map(|address| ApiListen(Some(address))).map_err(|_| ())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_shown_is_read_back() {
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
    fn a_star_is_every_address_of_both_families() {
        let listen = |text: &str| text.parse().map(|Listen(addresses)| addresses);
        let both = ["0.0.0.0:80", "[::]:80"].map(|address| address.parse().unwrap());
        assert_eq!(listen("*:80"), Ok(both.to_vec()));
        assert_eq!(listen("[::]:80"), Ok(both[1..].to_vec()));
        for text in ["", "*", "*:", ":80", "*:99999", "web:80", "**:80", "80"] {
            assert_eq!(listen(text), Err(()), "{text}");
        }
    }

    #[test]
    fn a_links_speed_is_in_bits_a_second() {
        assert_eq!("2500Mbit/s".parse(), Ok(LinkSpeed(2_500_000_000)));
        assert_eq!("100Tbit/s".parse(), Ok(LinkSpeed(100_000_000_000_000)));
        for text in ["", "1", "1G", "1GB/s", "1gbit/s", "2.5Gbit/s", "0Gbit/s", "101Tbit/s"] {
            assert_eq!(text.parse::<LinkSpeed>(), Err(()), "{text}");
        }
    }

    #[test]
    fn times_of_day_have_two_digits_each_and_offsets_a_sign() {
        for (text, minutes) in [("00:00", 0), ("08:05", 485), ("23:59", 1439), ("24:00", 1440)] {
            assert_eq!(text.parse(), Ok(TimeOfDay(minutes)), "{text}");
        }
        for text in ["", "8:00", "08:0", "08:60", "24:01", "25:00", "+8:00", "08:00:00", "noon"] {
            assert_eq!(text.parse::<TimeOfDay>(), Err(()), "{text}");
        }
        for (text, minutes) in [("+00:00", 0), ("+05:45", 345), ("-12:00", -720), ("+14:00", 840)] {
            assert_eq!(text.parse(), Ok(UtcOffset(minutes)), "{text}");
        }
        for text in ["", "+", "02:00", "+2:00", "-12:01", "+14:01", "Z", "\u{2212}02:00"] {
            assert_eq!(text.parse::<UtcOffset>(), Err(()), "{text}");
        }
        let ahead = |offset: &str| -> Option<i32> {
            let zone = offset.parse::<UtcOffset>().ok()?.zone();
            Some(zone.to_offset(jiff::Timestamp::UNIX_EPOCH).seconds())
        };
        assert_eq!((ahead("+05:45"), ahead("-12:00")), (Some(20_700), Some(-43_200)));
        assert_eq!("UTC".parse(), Ok(Zone(TimeZone::UTC)));
        for text in ["", "Europe/Atlantis", "+02:00", "/etc/localtime", "../zoneinfo/UTC"] {
            assert_eq!(text.parse::<Zone>(), Err(()), "{text}");
        }
        assert_eq!(("mon".parse(), "sun".parse()), (Ok(Weekday(0)), Ok(Weekday(6))));
        assert_eq!("Monday".parse::<Weekday>(), Err(()));
    }

    #[test]
    fn statuses_may_have_several_parts() {
        let read = |text: &str| text.parse::<StatusRanges>().map(|StatusRanges(ranges)| ranges);
        assert_eq!(read("200-299"), Ok(vec![(200, 299)]));
        assert_eq!(read("200-299,401"), Ok(vec![(200, 299), (401, 401)]));
        assert_eq!(read("204, 301-302"), Ok(vec![(204, 204), (301, 302)]));
        for text in ["", ",", "200,", "200-299;401", "200 204", "200,600"] {
            assert_eq!(read(text), Err(()), "{text}");
        }
    }

    #[test]
    fn a_hedges_delay_is_a_time_or_a_share_of_responses() {
        let read = |text: &str| text.parse::<HedgeDelay>().map(|HedgeDelay(hedge)| hedge);
        assert_eq!(read("50ms"), Ok(Hedge::After(Duration::from_millis(50))));
        assert_eq!(read("p95"), Ok(Hedge::Share(0.95)));
        assert_eq!(read("p99.5"), Ok(Hedge::Share(0.995)));
        for text in ["", "p", "0ms", "95", "p49", "p100", "p-95", "p9e1", "pNaN", "P95"] {
            assert_eq!(read(text), Err(()), "{text}");
        }
    }

    #[test]
    fn a_status_range_rises() {
        assert_eq!("200-299".parse(), Ok(StatusRange(200, 299)));
        assert_eq!("204".parse(), Ok(StatusRange(204, 204)));
        for text in ["", "200-", "-299", "299-200", "99-200", "200-600", "2xx", "+20", "0200"] {
            assert_eq!(text.parse::<StatusRange>(), Err(()), "{text}");
        }
    }
}
