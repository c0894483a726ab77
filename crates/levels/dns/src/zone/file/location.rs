//! LOC records: a location on Earth.
//!
//! # Source
//! RFC 1876, sections 2 and 3.

use std::borrow::Cow;

use super::entries::Word;

pub(super) const BYTES: usize = 16;

pub(super) const FORM: &str = "latitude, longitude, altitude and, if given, size and precisions, such as \
     `52 22 23.5 N 4 53 32 E -2m 1m 10000m 10m`";

/// A degree in thousandths of a second of arc.
const DEGREE: u32 = 3_600_000;
/// Depth of the altitude's origin below the reference spheroid, centimetres.
const ALTITUDE_ZERO: i64 = 10_000_000;

type Cause = Cow<'static, str>;

/// Reads `D [M [S]] N|S  D [M [S]] E|W  ALTITUDE [SIZE [HORIZONTAL [VERTICAL]]]`, metres.
pub(super) fn read(words: &[Word<'_>]) -> Result<Vec<u8>, Cause> {
    let mut words = words.iter().map(|word| word.text);
    let latitude = angle(&mut words, "N", "S", 90)?;
    let longitude = angle(&mut words, "E", "W", 180)?;
    let altitude = words.next().ok_or("no altitude")?;
    let altitude =
        centimetres(altitude).and_then(|altitude| u32::try_from(altitude + ALTITUDE_ZERO).ok());
    let altitude = altitude.ok_or("an altitude outside of -100000 to 42849672.95 m")?;
    // Defaults: 1 m, 10 km and 10 m.
    let mut sizes = [0x12, 0x16, 0x13];
    for (size, word) in sizes.iter_mut().zip(words.by_ref()) {
        let length = centimetres(word).filter(|length| (0..=9_000_000_000).contains(length));
        *size = length.map(precision).ok_or("a size or precision outside of 0 to 90000000 m")?;
    }
    if words.next().is_some() {
        return Err("a word too many".into());
    }
    let mut body = vec![0];
    body.extend(sizes);
    for number in [latitude, longitude, altitude] {
        body.extend(number.to_be_bytes());
    }
    Ok(body)
}

/// Reads degrees, minutes and seconds up to a direction. Returns thousandths of a second, offset by
/// 2^31.
fn angle<'w>(
    words: &mut impl Iterator<Item = &'w str>,
    positive: &str,
    negative: &str,
    degrees_max: u32,
) -> Result<u32, Cause> {
    let wrong =
        || Cause::from(format!("no degrees, minutes and seconds up to {positive} or {negative}"));
    let mut sum = 0;
    for unit in [DEGREE, DEGREE / 60, DEGREE / 3600, 0] {
        let word = words.next().ok_or_else(wrong)?;
        let is_first = unit == DEGREE;
        if !is_first && word.eq_ignore_ascii_case(positive) {
            return Ok((1 << 31) + sum);
        }
        if !is_first && word.eq_ignore_ascii_case(negative) {
            return Ok((1 << 31) - sum);
        }
        let most = if is_first { degrees_max } else { 59 };
        let part = match unit {
            0 => None,
            // Only seconds may have a fraction.
            1000 => decimal(word, 3).filter(|part| *part < u64::from(most + 1) * 1000),
            _ => decimal(word, 0).filter(|part| *part <= u64::from(most)),
        };
        let part = u32::try_from(part.ok_or_else(wrong)?).map_err(|_| wrong())?;
        sum += if unit == 1000 { part } else { part * unit };
        if sum > degrees_max * DEGREE {
            return Err(wrong());
        }
    }
    Err(wrong())
}

/// Parses metres, with an optional sign and an optional `m`.
fn centimetres(text: &str) -> Option<i64> {
    let text = text.strip_suffix(['m', 'M']).unwrap_or(text);
    let (sign, digits) = match text.strip_prefix('-') {
        Some(digits) => (-1, digits),
        None => (1, text.strip_prefix('+').unwrap_or(text)),
    };
    Some(sign * i64::try_from(decimal(digits, 2)?).ok()?)
}

/// Parses a number with up to `places` decimal places. Returns it in units of the last place.
fn decimal(text: &str, places: usize) -> Option<u64> {
    let (whole, fraction) = match text.split_once('.') {
        Some((whole, fraction)) if !fraction.is_empty() && fraction.len() <= places => {
            (whole, fraction)
        }
        Some(_) => return None,
        None => (text, ""),
    };
    let digits = format!("{whole}{fraction:0<places$}");
    let plain =
        !whole.is_empty() && digits.len() <= 18 && digits.bytes().all(|b| b.is_ascii_digit());
    digits.parse().ok().filter(|_| plain)
}

/// Encodes a length as a digit and a power of ten, four bits each.
fn precision(centimetres: i64) -> u8 {
    let (mut digit, mut power) = (centimetres, 0);
    while digit > 9 {
        (digit, power) = (digit / 10, power + 1);
    }
    (digit as u8) << 4 | power
}
