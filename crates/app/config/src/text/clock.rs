//! Strings that stand for times of the day and the week, and their time zones.

use std::str::FromStr;

use jiff::tz::{Offset, TimeZone};

/// Time of day in minutes since midnight: 00:00 to 24:00.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct TimeOfDay(pub u16);

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
pub(crate) struct UtcOffset(pub i16);

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
    pub(crate) fn zone(self) -> TimeZone {
        let offset = Offset::from_seconds(i32::from(self.0) * 60);
        // The library accepts offsets of up to 25 hours.
        TimeZone::fixed(offset.unwrap_or(Offset::UTC))
    }
}

/// A time zone of the system's tzdata, by name.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Zone(pub TimeZone);

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
pub(crate) struct Weekday(pub usize);

impl FromStr for Weekday {
    type Err = ();

    fn from_str(text: &str) -> Result<Self, ()> {
        let days = ["mon", "tue", "wed", "thu", "fri", "sat", "sun"];
        days.iter().position(|day| *day == text).map(Weekday).ok_or(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

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
}
