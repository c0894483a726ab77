use super::{ParseError, unreadable};

/// Memory of the machine.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Memory {
    /// Total memory.
    pub total_bytes: u64,
    /// Memory available to programs without swapping, including caches that the kernel can drop.
    pub available_bytes: u64,
}

/// Reads `/proc/meminfo`.
///
/// # Errors
/// [`ParseError`] without `MemTotal` and `MemAvailable` (Linux has had both since 3.14).
/// # Source
/// proc_meminfo(5).
pub fn meminfo(text: &str) -> Result<Memory, ParseError> {
    let field = |name: &'static str| {
        let value = text.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(':'));
        let kib =
            value.and_then(|value| value.trim().strip_suffix("kB")?.trim().parse::<u64>().ok());
        kib.and_then(|kib| kib.checked_mul(1024))
            .ok_or_else(|| unreadable("/proc/meminfo", name, value.unwrap_or(text)))
    };
    let total_bytes = field("MemTotal")?;
    // In some containers, the two values of this file are briefly inconsistent.
    let available_bytes = field("MemAvailable")?.min(total_bytes);
    Ok(Memory { total_bytes, available_bytes })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn total_and_available_are_read() {
        let memory = meminfo(include_str!("../../fixtures/meminfo-linux-6.18")).unwrap();
        assert_eq!(memory.total_bytes, 24_683_656 * 1024);
        assert_eq!(memory.available_bytes, 23_734_596 * 1024);
    }

    #[test]
    fn available_memory_is_capped_at_the_total() {
        let memory = meminfo("MemTotal: 10 kB\nMemAvailable: 20 kB\n").unwrap();
        assert_eq!(memory.available_bytes, memory.total_bytes);
    }

    #[test]
    fn an_error_names_the_missing_or_invalid_field() {
        for (text, what) in [
            ("", "MemTotal"),
            ("MemTotal: 10 kB\nMemFree: 5 kB\n", "MemAvailable"),
            ("MemTotal: ten kB\nMemAvailable: 5 kB\n", "MemTotal"),
            ("MemTotal: 10\nMemAvailable: 5 kB\n", "MemTotal"),
            ("MemTotal: 99999999999999999999 kB\nMemAvailable: 5 kB\n", "MemTotal"),
            ("MemTotal: 18446744073709551615 kB\nMemAvailable: 5 kB\n", "MemTotal"),
        ] {
            assert_eq!(meminfo(text).unwrap_err().what, what, "{text:?}");
        }
    }
}
