//! Hours of the week in which a pool has a higher least number of backends.
//!
//! A schedule adds capacity before its load comes, because backends take time to start. It only
//! raises the minimum, so the pool grows beyond it by load. If hours overlap, the largest minimum
//! counts, as with the scaling schedules of Google's managed instance groups and KEDA's `cron`
//! scaler.

use std::time::Duration;

use jiff::Timestamp;
use jiff::tz::TimeZone;
use serde::{Deserialize, Serialize};

/// Hours of the week, and the least number of backends in them.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ScheduledMin {
    /// Days on which the hours begin, Monday first.
    pub days: [bool; 7],
    /// Their first minute, counted from midnight.
    pub from: u16,
    /// The minute after their last one. If it is not later than `from`, they end on the next day.
    pub to: u16,
    /// Their time zone, with daylight-saving time.
    #[serde(with = "jiff::fmt::serde::tz::required")]
    pub zone: TimeZone,
    /// Least number of backends in these hours.
    pub min: u32,
}

const MINUTES_OF_DAY: i64 = 24 * 60;

impl ScheduledMin {
    /// True if the hours include this moment (time since the UNIX epoch).
    pub fn includes(&self, moment: Duration) -> bool {
        let seconds = i64::try_from(moment.as_secs()).unwrap_or(i64::MAX);
        let moment = Timestamp::from_second(seconds).unwrap_or(Timestamp::MAX);
        let offset = i64::from(self.zone.to_offset(moment).seconds());
        let local = (moment.as_second() + offset).div_euclid(60);
        let (day, minute) = (local.div_euclid(MINUTES_OF_DAY), local.rem_euclid(MINUTES_OF_DAY));
        // The epoch began on a Thursday.
        let begins_on = |day: i64| self.days[(day + 3).rem_euclid(7) as usize];
        let (from, to) = (i64::from(self.from), i64::from(self.to));
        match from < to {
            true => begins_on(day) && (from..to).contains(&minute),
            false => (begins_on(day) && minute >= from) || (begins_on(day - 1) && minute < to),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const HOUR: u64 = 3600;
    const DAY: u64 = 24 * HOUR;
    /// Monday 5 January 1970, 00:00 UTC.
    const MONDAY: u64 = 4 * DAY;

    fn hours(days: &[usize], from: u16, to: u16, utc_offset: i8) -> ScheduledMin {
        let days = std::array::from_fn(|day| days.contains(&day));
        let zone = TimeZone::fixed(jiff::tz::offset(utc_offset));
        ScheduledMin { days, from: from * 60, to: to * 60, zone, min: 4 }
    }

    #[test]
    fn hours_begin_and_end_on_the_minute_on_their_days() {
        let weekdays = hours(&[0, 1, 2, 3, 4], 8, 18, 0);
        let friday = MONDAY + 4 * DAY;
        for (at, included) in [
            (MONDAY + 8 * HOUR - 1, false),
            (MONDAY + 8 * HOUR, true),
            (MONDAY + 18 * HOUR - 1, true),
            (MONDAY + 18 * HOUR, false),
            (friday + 12 * HOUR, true),
            (friday + DAY + 12 * HOUR, false),
            (friday + 2 * DAY + 12 * HOUR, false),
            (friday + 3 * DAY + 12 * HOUR, true),
            // Tuesday 24 November 2026, 00:30 and 12:00.
            (1_795_480_200, false),
            (1_795_521_600, true),
        ] {
            assert_eq!(weekdays.includes(Duration::from_secs(at)), included, "{at}");
        }
    }

    #[test]
    fn hours_past_midnight_belong_to_the_day_on_which_they_begin() {
        let night = hours(&[6], 22, 6, 0);
        let sunday = MONDAY + 6 * DAY;
        for (at, included) in [
            (sunday + 6 * HOUR - 1, false),
            (sunday + 22 * HOUR - 1, false),
            (sunday + 22 * HOUR, true),
            (sunday + DAY + 6 * HOUR - 1, true),
            (sunday + DAY + 6 * HOUR, false),
            (sunday + DAY + 22 * HOUR, false),
            // Sunday to Monday, around the week.
            (MONDAY + HOUR, true),
        ] {
            assert_eq!(night.includes(Duration::from_secs(at)), included, "{at}");
        }
        let whole_day = hours(&[0], 0, 24, 0);
        let from_noon_to_noon = hours(&[0], 12, 12, 0);
        for hour in 0..48 {
            let at = Duration::from_secs(MONDAY + hour * HOUR);
            assert_eq!(whole_day.includes(at), hour < 24, "{hour}");
            assert_eq!(from_noon_to_noon.includes(at), (12..36).contains(&hour), "{hour}");
        }
    }

    #[test]
    fn clocks_may_be_ahead_of_utc_or_behind() {
        for (utc_offset, begins) in [(2, MONDAY - 2 * HOUR), (-5, MONDAY + 5 * HOUR)] {
            let monday = hours(&[0], 0, 24, utc_offset);
            assert!(!monday.includes(Duration::from_secs(begins - 1)), "{utc_offset}");
            assert!(monday.includes(Duration::from_secs(begins)), "{utc_offset}");
            assert!(monday.includes(Duration::from_secs(begins + DAY - 1)), "{utc_offset}");
            assert!(!monday.includes(Duration::from_secs(begins + DAY)), "{utc_offset}");
        }
        // Before the epoch on its clock.
        assert!(hours(&[2], 0, 24, -5).includes(Duration::ZERO));
        let _ends = hours(&[0], 0, 24, 0).includes(Duration::MAX);
    }

    /// The rules of Europe/Berlin since 1996: clocks are an hour ahead in summer, from 29 March to
    /// 25 October in 2026.
    #[test]
    fn hours_follow_daylight_saving_time() {
        let berlin = TimeZone::posix("CET-1CEST,M3.5.0,M10.5.0/3").unwrap();
        let work = ScheduledMin { zone: berlin.clone(), ..hours(&[0, 1, 2, 3, 4], 8, 18, 0) };
        // Midnight UTC of Fridays and Mondays before and after each change.
        let (march_27, march_30) = (1_774_569_600, 1_774_828_800);
        let (october_23, october_26) = (1_792_713_600, 1_792_972_800);
        for (day, ahead) in [(march_27, 1), (march_30, 2), (october_23, 2), (october_26, 1)] {
            let begins = day + (8 - ahead) * HOUR;
            assert!(!work.includes(Duration::from_secs(begins - 1)), "{day}");
            assert!(work.includes(Duration::from_secs(begins)), "{day}");
            assert!(!work.includes(Duration::from_secs(begins + 10 * HOUR)), "{day}");
        }
        // The night in which an hour is skipped, and the one in which an hour repeats.
        let night = ScheduledMin { zone: berlin, ..hours(&[5], 22, 6, 0) };
        for (saturday, hours) in [(march_27 + DAY, 7), (october_23 + DAY, 9)] {
            let minutes = (saturday + 12 * HOUR..saturday + 36 * HOUR).step_by(60);
            let included = minutes.filter(|at| night.includes(Duration::from_secs(*at)));
            assert_eq!(included.count(), hours * 60);
        }
    }

    #[test]
    fn a_schedule_survives_being_written() {
        let hours = hours(&[0], 8, 18, 2);
        let text = serde_json::to_string(&hours).unwrap();
        assert_eq!(serde_json::from_str::<ScheduledMin>(&text).unwrap(), hours);
    }
}
