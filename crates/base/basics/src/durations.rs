/// A time in whole units of which there are at least two, for people: `90 s`, `3 min`, `5 h`,
/// `4 days`.
pub fn rough(seconds: u64) -> String {
    match seconds {
        0..120 => format!("{seconds} s"),
        120..7200 => format!("{} min", seconds / 60),
        7200..172_800 => format!("{} h", seconds / 3600),
        _ => format!("{} days", seconds / 86_400),
    }
}

/// A time in its largest unit and the next smaller one: `90 s` is `1 min 30 s`.
pub fn two_units(seconds: u64) -> String {
    let (days, hours, minutes) = (seconds / 86_400, seconds / 3600 % 24, seconds / 60 % 60);
    match (days, hours, minutes) {
        (0, 0, 0) => format!("{seconds} s"),
        (0, 0, _) => format!("{minutes} min {} s", seconds % 60),
        (0, ..) => format!("{hours} h {minutes} min"),
        _ => format!("{days} d {hours} h"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_unit_follows_the_length() {
        let shown = [0, 119, 120, 7199, 7200, 172_799, 172_800].map(rough);
        assert_eq!(shown, ["0 s", "119 s", "2 min", "119 min", "2 h", "47 h", "2 days"]);
    }

    #[test]
    fn a_length_has_at_most_two_units() {
        let shown = [59, 90, 3660, 90_000].map(two_units);
        assert_eq!(shown, ["59 s", "1 min 30 s", "1 h 1 min", "1 d 1 h"]);
    }
}
