use super::{ParseError, unreadable};

/// CPU time of a process.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ProcessTicks {
    /// Id of the parent process.
    pub parent: u32,
    /// CPU time of the process and of children that it has waited for, clock ticks.
    pub ticks: u64,
    /// Number of threads.
    pub threads: u32,
}

/// Parses `/proc/PID/stat`.
///
/// # Errors
/// [`ParseError`] without a name in parentheses and twenty fields.
/// # Source
/// proc_pid_stat(5).
pub fn process_stat(text: &str) -> Result<ProcessTicks, ParseError> {
    let broken = || unreadable("/proc/PID/stat", "line", text);
    // A name may contain spaces and parentheses; the fields after it do not.
    let after = text.rsplit_once(')').ok_or_else(broken)?.1;
    let fields: Vec<&str> = after.split_ascii_whitespace().collect();
    // The manual counts from 1. The state, which follows the name, is field 3.
    let field = |number: usize| {
        fields.get(number - 3).and_then(|it| it.parse::<u64>().ok()).ok_or_else(broken)
    };
    let mut ticks = 0;
    for time in 14..=17 {
        ticks += field(time)?;
    }
    let small = |value: u64| u32::try_from(value).map_err(|_| broken());
    Ok(ProcessTicks { parent: small(field(4)?)?, ticks, threads: small(field(20)?)? })
}

/// Returns the number of CPUs that a process may run on, from its `/proc/PID/status`. `None`: the
/// text has no such line.
///
/// # Source
/// proc_pid_status(5), `Cpus_allowed_list`; cpuset(7), "List format".
pub fn allowed_processors(text: &str) -> Option<u32> {
    let list = text.lines().find_map(|line| line.strip_prefix("Cpus_allowed_list:"))?;
    let length = |range: &str| {
        let (first, last) = range.split_once('-').unwrap_or((range, range));
        let (first, last): (u32, u32) = (first.parse().ok()?, last.parse().ok()?);
        last.checked_sub(first)?.checked_add(1)
    };
    list.trim().split(',').try_fold(0_u32, |sum, range| sum.checked_add(length(range)?))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn allowed_processors_are_counted_from_a_list_of_ranges() {
        for (list, count) in [
            ("0", Some(1)),
            ("0-1", Some(2)),
            ("0-3,8,10-11", Some(7)),
            ("", None),
            ("3-1", None),
            ("0-4294967295", None),
            ("x", None),
        ] {
            let text = format!("Name:\ta\nCpus_allowed:\t3\nCpus_allowed_list:\t{list}\nX:\t1\n");
            assert_eq!(allowed_processors(&text), count, "{list:?}");
        }
        assert_eq!(allowed_processors("Name:\ta\n"), None);
    }

    #[test]
    fn cpu_times_of_a_process_and_its_ended_children_are_added() {
        let text =
            "4242 (a (b) c) S 17 4242 4242 0 -1 4194560 983 55 0 0 250 40 7 3 20 0 9 0 1234 0 0";
        let expected = ProcessTicks { parent: 17, ticks: 300, threads: 9 };
        assert_eq!(process_stat(text), Ok(expected));
    }

    #[test]
    fn malformed_process_stat_text_is_rejected() {
        for text in [
            "",
            "1 name S 0 0",
            "1 (name) S 0 0 0 0",
            "1 (name) S x 1 1 0 -1 0 0 0 0 0 1 1 1 1 20 0 1",
        ] {
            assert!(process_stat(text).is_err(), "{text:?}");
        }
    }
}
