use super::{ParseError, unreadable};

/// Pressure stall information: time in which tasks waited for a resource.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Pressure {
    /// Some task waited: per cent of the last 10 s.
    pub some_percent_10s: f64,
    /// Some task waited: microseconds since boot.
    pub some_us_total: u64,
    /// All tasks waited at once: per cent of the last 10 s. `None` if the kernel does not report
    /// it.
    pub full_percent_10s: Option<f64>,
}

/// Parses `/proc/pressure/{cpu,memory,io}`, or the `*.pressure` file of a cgroup.
///
/// # Errors
/// [`ParseError`] without a `some` line.
/// # Source
/// Linux, Documentation/accounting/psi.rst. `full` of `cpu` exists since 5.13, and is zero for the
/// machine.
pub fn pressure(text: &str) -> Result<Pressure, ParseError> {
    let broken = || unreadable("/proc/pressure", "some line", text);
    let line = |kind: &str| text.lines().find_map(|line| line.strip_prefix(kind));
    let value = |line: &str, name: &str| {
        let mut words = line.split_ascii_whitespace();
        words.find_map(|word| word.strip_prefix(name)?.strip_prefix('=').map(str::to_string))
    };
    let percent = |line: &str| {
        let percent = value(line, "avg10")?.parse::<f64>().ok()?;
        (0.0..=100.0).contains(&percent).then_some(percent)
    };
    let some = line("some ").ok_or_else(broken)?;
    let total = value(some, "total").and_then(|total| total.parse().ok());
    Ok(Pressure {
        some_percent_10s: percent(some).ok_or_else(broken)?,
        some_us_total: total.ok_or_else(broken)?,
        full_percent_10s: line("full ").and_then(percent),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn some_and_full_are_read() {
        let pressure = pressure(include_str!("../../fixtures/pressure_cpu-linux-6.18")).unwrap();
        let some_us_total = 2_823_929_181;
        let full_percent_10s = Some(0.0);
        assert_eq!(pressure, Pressure { some_percent_10s: 98.56, some_us_total, full_percent_10s });
    }

    #[test]
    fn a_kernel_before_5_13_has_no_full_line_for_the_processor() {
        let found = pressure("some avg10=1.50 avg60=0.00 avg300=0.00 total=7\n").unwrap();
        assert_eq!(found.full_percent_10s, None);
    }

    #[test]
    fn malformed_pressure_text_is_rejected() {
        for text in [
            "",
            "some",
            "some avg10=x total=1",
            "some avg10=1.0",
            "some avg10=NaN total=1",
            "some avg10=-1 total=1",
            "full avg10=1.0 total=1",
        ] {
            assert!(pressure(text).is_err(), "{text:?}");
        }
    }
}
