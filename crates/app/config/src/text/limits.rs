//! Strings about limits: rates, and what they count.

use std::num::NonZeroU32;
use std::str::FromStr;
use std::time::Duration;

use super::http::is_token;
use super::read_size;

/// A number of events in a time: `100/s`, `600/m`, `50/h`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct RateText {
    pub(crate) count: NonZeroU32,
    pub(crate) per: Duration,
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
pub(crate) enum CountedBy {
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
pub(crate) struct Bandwidth(pub u64);

impl FromStr for Bandwidth {
    type Err = ();

    fn from_str(text: &str) -> Result<Self, ()> {
        let size = text.strip_suffix("/s").and_then(read_size).ok_or(())?;
        if (1000..=1_000_000_000_000).contains(&size) { Ok(Bandwidth(size)) } else { Err(()) }
    }
}
