//! Numbers for people, with about three digits.

/// A count or a rate: `0.42`, `7.1`, `380`, `12.4k`, `3.1M`.
pub(super) fn number(value: f64) -> String {
    let size = value.abs();
    for (limit, by, unit) in [(999_500_000.0, 1e9, "G"), (999_500.0, 1e6, "M"), (9_995.0, 1e3, "k")]
    {
        if size >= limit {
            return digits(value / by) + unit;
        }
    }
    digits(value)
}

/// A share of 1 as per cent.
pub(super) fn percent(share: f64) -> String {
    format!("{} %", digits(100.0 * share))
}

fn digits(value: f64) -> String {
    let size = value.abs();
    if size >= 99.95 || value.fract() == 0.0 {
        return format!("{value:.0}");
    }
    let places = if size >= 9.995 { 1 } else { 2 };
    let text = format!("{value:.places$}");
    text.trim_end_matches('0').trim_end_matches('.').to_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_have_about_three_digits() {
        for (value, text) in [
            (0.0, "0"),
            (0.004, "0"),
            (0.42, "0.42"),
            (7.1, "7.1"),
            (12.34, "12.3"),
            (380.4, "380"),
            (9_994.0, "9994"),
            (12_400.0, "12.4k"),
            (3_100_000.0, "3.1M"),
            (2e9, "2G"),
        ] {
            assert_eq!(number(value), text, "{value}");
        }
        assert_eq!(percent(0.335), "33.5 %");
    }
}
