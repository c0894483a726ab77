//! Numbers of slices on the command line: `0-9,12`.

use std::fmt::Write as _;
use std::str::FromStr;

/// Numbers of slices in rising order.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Numbers(pub(super) Vec<u32>);

/// A text that names no slices.
#[derive(Debug, PartialEq, Eq, thiserror::Error)]
#[error("`{0}` names no slices; accepted: numbers and ranges, such as 7 or 0-9,12")]
pub(super) struct NoNumbers(String);

/// Longest range; a longer one is a mistake.
const RANGE_MAX: u32 = 100_000;

impl FromStr for Numbers {
    type Err = NoNumbers;

    fn from_str(text: &str) -> Result<Numbers, NoNumbers> {
        let refused = || NoNumbers(text.to_string());
        let mut numbers = Vec::new();
        for part in text.split(',') {
            let (first, last) = part.split_once('-').unwrap_or((part, part));
            let read = |digits: &str| digits.trim().parse::<u32>().map_err(|_| refused());
            let (first, last) = (read(first)?, read(last)?);
            if last < first || last - first > RANGE_MAX {
                return Err(refused());
            }
            numbers.extend(first..=last);
        }
        numbers.sort_unstable();
        numbers.dedup();
        Ok(Numbers(numbers))
    }
}

/// Writes numbers in the form that [`Numbers`] reads.
pub(super) fn show(numbers: &[u32]) -> String {
    let mut numbers = numbers.to_vec();
    numbers.sort_unstable();
    numbers.dedup();
    let mut out = String::new();
    for run in numbers.chunk_by(|a, b| a + 1 == *b) {
        let joint = if out.is_empty() { "" } else { "," };
        // Writing to a string cannot fail.
        let _ = match run {
            [one] => write!(out, "{joint}{one}"),
            [first, .., last] => write!(out, "{joint}{first}-{last}"),
            [] => Ok(()),
        };
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn slices_are_named_by_numbers_and_ranges() {
        for (text, numbers) in
            [("7", vec![7]), ("0-3", vec![0, 1, 2, 3]), ("9,1-2,2", vec![1, 2, 9])]
        {
            assert_eq!(text.parse(), Ok(Numbers(numbers)), "{text}");
        }
        for bad in ["", "-", "3-1", "a", "1,", "1--2", "0-4294967295"] {
            assert!(bad.parse::<Numbers>().is_err(), "{bad}");
        }
        for text in ["7", "0-3", "1-2,9"] {
            let Numbers(numbers) = text.parse().unwrap();
            assert_eq!(show(&numbers), text);
        }
    }
}
