use std::time::Duration;

use serde::{Deserialize, Serialize};

/// The influence of new measurements.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Smoothing {
    /// Interval between measurements, if none is missed.
    pub period: Duration,
    /// Part of a measurement's deviation that the level takes over in one period, above 0 and at
    /// most 1.
    pub level_gain: f64,
    /// Part of a measurement's deviation that the trend takes over in one period, `0..=1`; 0
    /// predicts no trend.
    pub trend_gain: f64,
    /// Gap in periods after which smoothing begins again.
    pub forget_periods: f64,
}

/// Invalid smoothing.
#[derive(Clone, Copy, Debug, thiserror::Error, PartialEq)]
#[error(
    "smoothing {0:?}; accepted: a period above zero, level_gain above 0 and at most 1, trend_gain 0 to 1, \
     forget_periods of 2 or more"
)]
pub struct SmoothingRefused(pub Smoothing);

impl Default for Smoothing {
    fn default() -> Self {
        Smoothing {
            period: Duration::from_secs(1),
            level_gain: 0.4,
            trend_gain: 0.1,
            forget_periods: 10.0,
        }
    }
}

impl Smoothing {
    /// Returns the smoothing if it is valid.
    ///
    /// # Errors
    /// [`SmoothingRefused`] with the values.
    pub fn checked(self) -> Result<Smoothing, SmoothingRefused> {
        let gains = self.level_gain > 0.0 && self.level_gain <= 1.0;
        let trend = (0.0..=1.0).contains(&self.trend_gain);
        let past = self.forget_periods >= 2.0 && self.forget_periods.is_finite();
        let fine = gains && trend && past && !self.period.is_zero();
        if fine { Ok(self) } else { Err(SmoothingRefused(self)) }
    }

    /// The gap between two instants in periods; `None` if the second is not later.
    pub(super) fn gap(&self, from: Duration, to: Duration) -> Option<f64> {
        let gap = to.checked_sub(from)?;
        (!gap.is_zero()).then(|| gap.as_secs_f64() / self.period.as_secs_f64())
    }
}

/// The gain of `periods` steps of `gain` together: the past keeps `(1 - gain)^periods`.
fn over(gain: f64, periods: f64) -> f64 {
    1.0 - (1.0 - gain).powf(periods)
}

/// Simple exponential smoothing: a level, no trend.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Ewma {
    level: f64,
}

impl Ewma {
    /// Begins with a measurement.
    pub fn new(value: f64) -> Ewma {
        Ewma { level: value }
    }

    /// Takes a measurement, `gap` periods after the last.
    pub fn observe(&mut self, smoothing: &Smoothing, gap: f64, value: f64) {
        self.level += over(smoothing.level_gain, gap) * (value - self.level);
    }

    /// The smoothed value, which is also the forecast for any time.
    pub fn level(&self) -> f64 {
        self.level
    }
}

/// Holt's linear (double exponential) smoothing: a level and a trend per period.
///
/// # Source
/// Holt 1957, reprinted in International Journal of Forecasting 20 (2004), 5-10; irregular gaps
/// after Wright, Management Science 32 (1986), 499-510. Deviates from Wright: the gains for a gap
/// of g periods are `1 - (1 - gain)^g`, without his normalising sequence. So the state is two
/// numbers, and a missed report counts the same at every age of the series. The caller handles gaps
/// beyond [`Smoothing::forget_periods`].
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Holt {
    level: f64,
    trend: f64,
}

impl Holt {
    /// Begins with a measurement, without a trend.
    pub fn new(value: f64) -> Holt {
        Holt { level: value, trend: 0.0 }
    }

    /// Takes a measurement, `gap` periods after the last.
    pub fn observe(&mut self, smoothing: &Smoothing, gap: f64, value: f64) {
        let expected = self.forecast(gap);
        let level = expected + over(smoothing.level_gain, gap) * (value - expected);
        let slope = (level - self.level) / gap;
        self.trend += over(smoothing.trend_gain, gap) * (slope - self.trend);
        self.level = level;
    }

    /// The expected value `ahead` periods after the last measurement. Not bounded.
    pub fn forecast(&self, ahead: f64) -> f64 {
        self.level + self.trend * ahead
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SMOOTHING: Smoothing = Smoothing {
        period: Duration::from_secs(1),
        level_gain: 0.5,
        trend_gain: 0.3,
        forget_periods: 10.0,
    };

    #[test]
    fn a_line_is_forecast_exactly_once_it_is_known() {
        let mut holt = Holt::new(10.0);
        for at in 1..200 {
            holt.observe(&SMOOTHING, 1.0, 10.0 + 0.4 * f64::from(at));
        }
        assert!((holt.forecast(1.0) - 90.0).abs() < 1e-6, "{holt:?}");
        assert!((holt.forecast(5.0) - 91.6).abs() < 1e-6, "{holt:?}");
    }

    #[test]
    fn a_line_with_gaps_is_forecast_exactly_too() {
        let mut holt = Holt::new(0.0);
        let mut at = 0.0;
        for gap in [1.0, 2.0, 0.25, 3.5, 1.0, 0.01].iter().cycle().take(600) {
            at += gap;
            holt.observe(&SMOOTHING, *gap, 0.1 * at);
        }
        assert!((holt.forecast(1.0) - 0.1 * (at + 1.0)).abs() < 1e-6, "{holt:?} at {at}");
    }

    #[test]
    fn two_half_gaps_smooth_as_one_whole_one() {
        let (mut halves, mut whole) = (Ewma::new(0.0), Ewma::new(0.0));
        halves.observe(&SMOOTHING, 0.5, 80.0);
        halves.observe(&SMOOTHING, 0.5, 80.0);
        whole.observe(&SMOOTHING, 1.0, 80.0);
        assert!((halves.level() - whole.level()).abs() < 1e-9);
    }

    #[test]
    fn reports_that_come_almost_together_do_not_make_a_trend() {
        let mut holt = Holt::new(20.0);
        holt.observe(&SMOOTHING, 1e-6, 60.0);
        assert!((holt.forecast(1.0) - 20.0).abs() < 8.0, "{holt:?}");
    }

    #[test]
    fn smoothing_that_is_none_is_refused() {
        for wrong in [
            Smoothing { level_gain: 0.0, ..SMOOTHING },
            Smoothing { level_gain: f64::NAN, ..SMOOTHING },
            Smoothing { trend_gain: 1.1, ..SMOOTHING },
            Smoothing { forget_periods: 1.0, ..SMOOTHING },
            Smoothing { period: Duration::ZERO, ..SMOOTHING },
        ] {
            assert!(wrong.checked().is_err(), "{wrong:?}");
        }
        assert_eq!(Smoothing::default().checked(), Ok(Smoothing::default()));
    }
}
