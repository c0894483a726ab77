use super::{ParseError, unreadable};

/// A process, as far as its processor time goes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ProcessTicks {
    /// Who started it.
    pub parent: u32,
    /// Its own time and that of children that it has waited for, in clock ticks.
    pub ticks: u64,
    /// How many threads it has.
    pub threads: u32,
}

/// Reads `/proc/PID/stat`.
///
/// # Errors
/// [`ParseError`] without a name in parentheses and twenty fields.
/// # Source
/// proc_pid_stat(5).
pub fn process_stat(text: &str) -> Result<ProcessTicks, ParseError> {
    let broken = || unreadable("/proc/PID/stat", "line", text);
    // A name may have spaces and parentheses; nothing after it has.
    let after = text.rsplit_once(')').ok_or_else(broken)?.1;
    let fields: Vec<&str> = after.split_ascii_whitespace().collect();
    // The manual counts from 1, and the state, behind the name, is field 3.
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_of_a_process_and_of_its_children_that_ended_are_added() {
        let text =
            "4242 (a (b) c) S 17 4242 4242 0 -1 4194560 983 55 0 0 250 40 7 3 20 0 9 0 1234 0 0";
        let expected = ProcessTicks { parent: 17, ticks: 300, threads: 9 };
        assert_eq!(process_stat(text), Ok(expected));
    }

    #[test]
    fn what_is_no_stat_is_refused() {
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
