use std::time::Duration;

use serde::{Deserialize, Serialize};

use super::{Ewma, Holt, Smoothing};

/// The past of one signal in a few numbers: smoothed, and predicted for the coming period.
///
/// Two predictors run side by side: Holt's, and the smoothed level. The one with the smaller recent
/// error is used, so that a trend seen in noise does no harm. Both, and the naive forecast (the
/// last value), are scored with every measurement before they learn from it.
///
/// # Source
/// Mean absolute error relative to the naive forecast: Hyndman and Koehler, International Journal
/// of Forecasting 22 (2006), 679-688, section 3. Deviates: the means are exponential, over about
/// [`WINDOW`] measurements, so that they describe the present.
#[derive(Clone, Debug, PartialEq)]
pub struct Forecaster {
    smoothing: Smoothing,
    largest: f64,
    at: Duration,
    last: f64,
    ewma: Ewma,
    holt: Holt,
    error: ForecastError,
}

/// Number of measurements that influence a mean absolute error, about.
pub const WINDOW: u32 = 32;

/// Number of measurements before the predictors are compared.
const TRIAL: u32 = 8;

/// Holt's error must be below this part of the smoothed level's before it is used: equal errors are
/// noise.
const MARGIN: f64 = 0.95;

/// Errors of predictions: mean absolute error in the signal's unit.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct ForecastError {
    /// Of Holt's predictor.
    pub holt: f64,
    /// Of the smoothed level.
    pub smoothed: f64,
    /// Of the naive forecast, the last value.
    pub naive: f64,
    /// Number of scored predictions.
    pub scored: u64,
}

impl ForecastError {
    /// True if Holt's predictor is used.
    pub fn trend_is_believed(&self) -> bool {
        self.scored >= u64::from(TRIAL) && self.holt < MARGIN * self.smoothed
    }

    /// The error of the predictor that is used.
    pub fn believed(&self) -> f64 {
        if self.trend_is_believed() { self.holt } else { self.smoothed }
    }

    /// True if predictions beat the naive forecast; `None` before there is enough data.
    pub fn helps(&self) -> Option<bool> {
        (self.scored >= u64::from(TRIAL)).then(|| self.believed() < self.naive)
    }

    fn score(&mut self, holt: f64, smoothed: f64, naive: f64) {
        self.scored += 1;
        // A plain mean until the window is full.
        let gain = 1.0 / self.scored.min(u64::from(WINDOW)) as f64;
        self.holt += gain * (holt.abs() - self.holt);
        self.smoothed += gain * (smoothed.abs() - self.smoothed);
        self.naive += gain * (naive.abs() - self.naive);
    }
}

impl Forecaster {
    /// Begins with a measurement. Predictions lie within `0..=largest`.
    pub fn new(smoothing: Smoothing, largest: f64, at: Duration, value: f64) -> Forecaster {
        Forecaster {
            smoothing,
            largest,
            at,
            last: value,
            ewma: Ewma::new(value),
            holt: Holt::new(value),
            error: ForecastError::default(),
        }
    }

    /// Takes a measurement at time `at` of a monotonic clock. A measurement that is not later than
    /// the last is ignored, because reports may overtake each other.
    pub fn observe(&mut self, at: Duration, value: f64) {
        let Some(gap) = self.smoothing.gap(self.at, at) else { return };
        if gap > self.smoothing.forget_periods {
            self.ewma = Ewma::new(value);
            self.holt = Holt::new(value);
        } else {
            let expected = self.bounded(self.holt.forecast(gap));
            self.error.score(value - expected, value - self.ewma.level(), value - self.last);
            self.ewma.observe(&self.smoothing, gap, value);
            self.holt.observe(&self.smoothing, gap, value);
        }
        (self.at, self.last) = (at, value);
    }

    /// The smoothed value now.
    pub fn smoothed(&self) -> f64 {
        self.ewma.level()
    }

    /// The expected value one period after the last measurement.
    pub fn coming(&self) -> f64 {
        if self.error.trend_is_believed() {
            self.bounded(self.holt.forecast(1.0))
        } else {
            self.ewma.level()
        }
    }

    /// Recent errors of predictions.
    pub fn error(&self) -> ForecastError {
        self.error
    }

    fn bounded(&self, value: f64) -> f64 {
        value.max(0.0).min(self.largest)
    }
}

#[cfg(test)]
mod tests {
    use rand::rngs::StdRng;
    use rand::{RngExt, SeedableRng};

    use super::*;

    fn fed(values: impl IntoIterator<Item = f64>) -> Forecaster {
        let mut values = values.into_iter();
        let first = values.next().unwrap();
        let mut one = Forecaster::new(Smoothing::default(), 100.0, Duration::ZERO, first);
        for (at, value) in (1..).zip(values) {
            one.observe(Duration::from_secs(at), value);
        }
        one
    }

    fn noise(seed: u64) -> impl FnMut() -> f64 {
        let mut rng = StdRng::seed_from_u64(seed);
        move || rng.random_range(-5.0..5.0)
    }

    #[test]
    fn on_a_ramp_the_trend_predictor_is_used_and_helps() {
        let mut noise = noise(1);
        let one = fed((0..120).map(|at| 5.0 + 0.6 * f64::from(at) + 0.05 * noise()));
        let error = one.error();
        assert!(error.trend_is_believed(), "{error:?}");
        assert_eq!(error.helps(), Some(true), "{error:?}");
        assert!((one.coming() - 77.0).abs() < 1.0, "{}", one.coming());
    }

    #[test]
    fn in_noise_the_smoothed_level_is_used_and_beats_naive_forecasts() {
        let mut noise = noise(2);
        let one = fed((0..400).map(|_| 40.0 + noise()));
        let error = one.error();
        assert!(!error.trend_is_believed(), "{error:?}");
        assert_eq!(error.helps(), Some(true), "{error:?}");
        assert!((one.coming() - 40.0).abs() < 3.0, "{}", one.coming());
    }

    #[test]
    fn rare_jumps_make_predictions_no_better_than_the_naive_forecast() {
        let one = fed((0..400).map(|at| if at / 20 % 2 == 0 { 20.0 } else { 80.0 }));
        assert_eq!(one.error().helps(), Some(false), "{:?}", one.error());
    }

    #[test]
    fn a_prediction_stays_between_zero_and_the_largest_value() {
        let up = fed((0..30).map(|at| (4.0 * f64::from(at)).min(100.0)));
        let down = fed((0..30).map(|at| (100.0 - 4.0 * f64::from(at)).max(0.0)));
        for one in [up, down] {
            assert!((0.0..=100.0).contains(&one.coming()), "{}", one.coming());
        }
    }

    #[test]
    fn a_measurement_older_than_the_last_is_ignored() {
        let mut one = fed([10.0, 20.0, 30.0]);
        let before = one.clone();
        one.observe(Duration::from_secs(2), 99.0);
        one.observe(Duration::from_secs(1), 99.0);
        assert_eq!(one, before);
    }

    #[test]
    fn a_long_gap_resets_the_forecast() {
        let mut one = fed((0..30).map(f64::from));
        one.observe(Duration::from_secs(500), 12.0);
        assert_eq!((one.smoothed(), one.coming()), (12.0, 12.0));
    }
}
