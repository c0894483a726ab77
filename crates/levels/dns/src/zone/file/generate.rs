//! `$GENERATE`: records that differ by a number.
//!
//! # Source
//! BIND 9 Administrator Reference Manual, "BIND Primary File Extension". Deviates: the data may
//! have several words without quotation marks.

use super::entries::{Word, joined};
use super::error::Wrong;
use super::{Head, head};

/// Maximum width of a number, digits.
const WIDTH_MAX: u32 = 255;
const NUMBER_MAX: i64 = i32::MAX as i64;

/// Returns the text of each entry that a directive generates.
///
/// # Errors
/// [`Wrong::Form`] if the directive is malformed.
pub(super) fn lines<'t>(
    words: &[Word<'t>],
) -> Result<impl Iterator<Item = Result<String, Wrong>> + use<'t>, Wrong> {
    let form =
        Wrong::Form { directive: "$GENERATE", form: "START-STOP[/STEP] NAME [TTL] [IN] TYPE DATA" };
    let [_, range, owner, rest @ ..] = words else { return Err(form) };
    let (start, stop, step) = numbers(range.text).ok_or(form.clone())?;
    let Head { data_at, .. } = head(owner.text, rest)?;
    let (head, data) = rest.split_at(data_at);
    let owner = owner.written();
    let head = joined(head, Word::written);
    let data = match data {
        [] => return Err(form),
        // BIND reads the data from one quoted text.
        [text] if text.quoted => format!(" {}", text.text.replace("\\\"", "\"")),
        words => joined(words, Word::written),
    };
    let numbers = (start..=stop).step_by(step);
    Ok(numbers.map(move |number| {
        let (owner, data) = (substituted(&owner, number)?, substituted(&data, number)?);
        Ok(format!("{owner}{head}{data}"))
    }))
}

/// Parses `START-STOP[/STEP]`.
fn numbers(text: &str) -> Option<(i64, i64, usize)> {
    let (range, step) = text.split_once('/').unwrap_or((text, "1"));
    let (start, stop) = range.split_once('-')?;
    let number = |text: &str| {
        let digits = !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_digit());
        text.parse().ok().filter(|number| digits && *number <= NUMBER_MAX)
    };
    let (start, stop, step) = (number(start)?, number(stop)?, number(step)?);
    (start <= stop && step > 0).then_some((start, stop, usize::try_from(step).ok()?))
}

/// Replaces each `$` by `number`.
fn substituted(text: &str, number: i64) -> Result<String, Wrong> {
    let mut out = String::with_capacity(text.len() + 8);
    let mut rest = text;
    while let Some(at) = rest.find(['$', '\\']) {
        out.push_str(&rest[..at]);
        let after = &rest[at + 1..];
        if rest[at..].starts_with('\\') {
            // Escapes stay unchanged: `\$` is a dollar sign.
            let escaped = after.chars().next().map_or(0, char::len_utf8);
            out.push_str(&rest[at..at + 1 + escaped]);
            rest = &after[escaped..];
        } else if let Some(after) = after.strip_prefix('$') {
            out.push('$');
            rest = after;
        } else if let Some(modified) = after.strip_prefix('{') {
            let wrong = || Wrong::Generate(rest[at..].to_owned());
            let (modifiers, after) = modified.split_once('}').ok_or_else(wrong)?;
            out.push_str(&modified_number(modifiers, number).ok_or_else(wrong)?);
            rest = after;
        } else {
            out.push_str(&number.to_string());
            rest = after;
        }
    }
    out.push_str(rest);
    Ok(out)
}

/// Formats the number as `OFFSET[,WIDTH[,BASE]]` demands.
fn modified_number(modifiers: &str, number: i64) -> Option<String> {
    let mut parts = modifiers.split(',');
    let offset: i64 = parts.next()?.parse().ok()?;
    let width: u32 = parts.next().map_or(Some(0), |width| width.parse().ok())?;
    let base = parts.next().unwrap_or("d");
    let number = number.checked_add(offset).filter(|number| (0..=NUMBER_MAX).contains(number))?;
    if width > WIDTH_MAX || parts.next().is_some() {
        return None;
    }
    let digits = width as usize;
    match base {
        "d" => Some(format!("{number:0digits$}")),
        "o" => Some(format!("{number:0digits$o}")),
        "x" => Some(format!("{number:0digits$x}")),
        "X" => Some(format!("{number:0digits$X}")),
        "n" => Some(nibbles(&format!("{number:x}"), digits)),
        "N" => Some(nibbles(&format!("{number:X}"), digits)),
        _ => None,
    }
}

/// Returns the digits as labels in reverse order, the form of names below `ip6.arpa.`. `width`
/// includes the dots.
fn nibbles(digits: &str, width: usize) -> String {
    let mut out = String::new();
    let mut digits = digits.chars().rev();
    let mut digit = digits.next();
    loop {
        out.push(digit.unwrap_or('0'));
        digit = digits.next();
        if digit.is_none() && out.len() >= width {
            return out;
        }
        out.push('.');
        if digit.is_none() && out.len() >= width {
            return out;
        }
    }
}
