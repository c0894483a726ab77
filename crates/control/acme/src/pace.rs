//! When to renew, and when to try again. Pure: time and randomness are arguments.

use std::time::{Duration, SystemTime};

use equipoise_basics::Backoff;
use equipoise_tls::Certificate;
use serde::{Deserialize, Serialize};

const MINUTE: Duration = Duration::from_secs(60);
const HOUR: Duration = Duration::from_secs(3600);

/// The kind of a failure, which decides about the wait.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) enum Fault {
    /// The directory could not be reached, or has a fault of its own.
    Temporary,
    /// The directory could not verify the name, or refuses the order. Let's Encrypt accepts five
    /// such failures of a name an hour.
    Refused,
    /// There were too many orders.
    Limited,
}

impl Fault {
    const fn backoff(self) -> Backoff {
        match self {
            Fault::Temporary => Backoff { first: Duration::from_secs(2), most: HOUR },
            Fault::Refused => {
                Backoff { first: MINUTE.saturating_mul(5), most: HOUR.saturating_mul(12) }
            }
            Fault::Limited => Backoff { first: HOUR, most: HOUR.saturating_mul(24) },
        }
    }
}

/// The time of the next attempt after this number of failures in a row. `random`, from 0 to 1,
/// spreads the attempts of many processes. `not_before` is the directory's `Retry-After`, of which
/// at most a day counts, so that a false one does not let a certificate expire.
pub(crate) fn next_try(
    now: SystemTime,
    fault: Fault,
    failures: u32,
    not_before: Option<SystemTime>,
    random: f64,
) -> SystemTime {
    let wait = fault.backoff().after(failures).mul_f64(1.0 + random / 4.0);
    (now + wait).max(not_before.unwrap_or(now).min(now + 24 * HOUR))
}

/// The time to renew a certificate: after two thirds of its lifetime, or up to a twentieth of the
/// lifetime earlier, by `random` from 0 to 1.
pub(crate) fn renewal(from: SystemTime, until: SystemTime, random: f64) -> SystemTime {
    let lifetime = until.duration_since(from).unwrap_or_default();
    from + lifetime.mul_f64(2.0 / 3.0 - random / 20.0)
}

/// The time at which a certificate is renewed.
pub(crate) fn renewal_of(certificate: &Certificate) -> SystemTime {
    renewal(certificate.valid_from(), certificate.valid_until(), rand::random())
}

#[cfg(test)]
mod tests {
    use super::*;

    const DAY: Duration = Duration::from_secs(86_400);

    fn waits(fault: Fault) -> Vec<u64> {
        let now = SystemTime::UNIX_EPOCH;
        let wait = |failures| next_try(now, fault, failures, None, 0.0).duration_since(now);
        (1..=12).map(|failures| wait(failures).unwrap_or_default().as_secs()).collect()
    }

    #[test]
    fn waits_double_and_are_longer_for_refusals() {
        assert_eq!(waits(Fault::Temporary)[..4], [2, 4, 8, 16]);
        assert_eq!(waits(Fault::Temporary)[11], 3600);
        assert_eq!(waits(Fault::Refused)[..4], [300, 600, 1200, 2400]);
        assert_eq!(waits(Fault::Refused)[11], 12 * 3600);
        assert_eq!(waits(Fault::Limited)[..6], [3600, 7200, 14_400, 28_800, 57_600, 86_400]);
        // Fewer than five failures in any hour.
        assert!(waits(Fault::Refused)[..4].iter().sum::<u64>() > 3600);
    }

    #[test]
    fn the_directory_may_ask_for_more_and_randomness_adds_a_quarter_at_most() {
        let now = SystemTime::UNIX_EPOCH;
        let of = |not_before, random| next_try(now, Fault::Temporary, 1, not_before, random);
        assert_eq!(of(Some(now + DAY), 0.0), now + DAY);
        assert_eq!(of(Some(now + Duration::from_secs(1)), 0.0), now + Duration::from_secs(2));
        assert_eq!(of(None, 1.0), now + Duration::from_millis(2500));
    }

    #[test]
    fn certificates_are_renewed_at_two_thirds_or_a_little_earlier() {
        let from = SystemTime::UNIX_EPOCH;
        let days = |days: u32, random| {
            let at = renewal(from, from + DAY * days, random).duration_since(from);
            at.unwrap_or_default().as_secs_f64() / 86_400.0
        };
        assert_eq!(days(90, 0.0).round(), 60.0);
        assert!((days(90, 1.0) - 55.5).abs() < 0.01);
        assert!((days(6, 0.0) - 4.0).abs() < 0.01);
    }
}
