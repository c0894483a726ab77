/// The speed that backends of one size have shown at each concurrency: V over N.
///
/// L3B's curve has a rising region, a top, and a falling one. The profile keeps a smoothed V for each range of N, a
/// factor of the square root of two wide, and reads the top from it. Whether the top has been *seen* is another
/// question: the best so far is only the best so far until more in flight brought no more speed, or the best came
/// with answers so late that most of the time was waiting.
///
/// # Source
/// L3B (Ristov, Cvetkov, Gusev 2016): `V = N/T`, its regions. That waiting begins at the fastest speed times the
/// shortest response is Kleinrock's operating point (ICC 1979). The ranges, the smoothing and the tests for the top
/// are ours. What is known of a range is forgotten after [`AGE_MAX`] observations elsewhere, so that a new version is
/// learnt anew.
#[derive(Clone, Debug, PartialEq)]
pub struct SpeedProfile {
    ranges: [Range; RANGES],
    observed: u64,
}

#[derive(Clone, Copy, Debug, Default, PartialEq)]
struct Range {
    speed: f64,
    response_s: f64,
    count: u64,
    last: u64,
}

/// What a backend can do.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Best {
    /// Requests per second at the top.
    pub speed: f64,
    /// Requests in flight from which more of them only wait.
    pub in_flight: f64,
    /// Whether the top was seen: the speed is not only the best so far.
    pub is_topped: bool,
}

/// Up to 2^(40/2), a million in flight.
const RANGES: usize = 40;
/// Part of the surprise that a range takes over.
const GAIN: f64 = 0.2;
/// Observations that make a range believed.
const BELIEVED: u64 = 3;
/// Observations of other ranges after which one is forgotten: two hours of one backend at one a second.
pub const AGE_MAX: u64 = 7200;
/// Parts of the largest speed: from this on a range is at the top; a busier one that adds less than this shows it.
pub(super) const AT_TOP: f64 = 0.95;
const ADDS: f64 = 1.05;
/// The last range, that up to two in flight, in which hardly any of them waits for another.
const CALM: usize = 1;
/// The shortest response times this: most of an answer's time is waiting.
const CROWDED: f64 = 3.0;

impl Default for SpeedProfile {
    fn default() -> Self {
        SpeedProfile { ranges: [Range::default(); RANGES], observed: 0 }
    }
}

impl SpeedProfile {
    /// Takes a period with `in_flight` requests on average, each answered in `response_s` seconds. What is no
    /// positive number is ignored.
    pub fn observe(&mut self, in_flight: f64, response_s: f64) {
        let fine = |value: f64| value.is_finite() && value > 0.0;
        let speed = in_flight / response_s;
        if !(fine(in_flight) && fine(response_s) && fine(speed)) {
            return;
        }
        self.observed += 1;
        let range = &mut self.ranges[range(in_flight)];
        let is_new = range.count == 0 || self.observed - range.last > AGE_MAX;
        *range = if is_new {
            Range { speed, response_s, count: 1, last: self.observed }
        } else {
            let speed = range.speed + GAIN * (speed - range.speed);
            let response_s = range.response_s + GAIN * (response_s - range.response_s);
            Range { speed, response_s, count: range.count + 1, last: self.observed }
        };
    }

    /// The top of the curve; `None` before there is any.
    pub fn best(&self) -> Option<Best> {
        let fastest = self.known().map(|(_, range)| range.speed).fold(0.0, f64::max);
        let (at, range) = self.known().find(|(_, range)| range.speed >= AT_TOP * fastest)?;
        // Not the next range alone: one request more or less falls into it by chance.
        let mut busier = self.known().filter(|(other, _)| *other > at + 1);
        let adds_nothing = busier.any(|(_, busier)| busier.speed < ADDS * range.speed);
        let crowded_s = CROWDED * self.shortest_response_s()?;
        let in_flight = middle(at).min(fastest * crowded_s);
        let is_topped = adds_nothing || range.response_s >= crowded_s;
        Some(Best { speed: fastest, in_flight, is_topped })
    }

    /// The shortest mean response time seen at any concurrency, in seconds.
    pub fn shortest_response_s(&self) -> Option<f64> {
        self.known().map(|(_, range)| range.response_s).reduce(f64::min)
    }

    /// The least and the most requests in flight at which it is known.
    pub fn span(&self) -> Option<(f64, f64)> {
        let (first, last) = self.ends()?;
        Some((middle(first), middle(last)))
    }

    /// Whether it cannot tell waiting from work: it has only ever seen about the same number in flight, and that more
    /// than a few. Then its shortest response time is just that of the load there was. False if nothing is known.
    pub fn is_blind(&self) -> bool {
        let is_topped = self.best().is_some_and(|best| best.is_topped);
        let varied = |(first, last)| last > first + 1;
        self.ends().is_some_and(|ends| ends.0 > CALM && !varied(ends)) && !is_topped
    }

    fn ends(&self) -> Option<(usize, usize)> {
        let mut known = self.known().map(|(at, _)| at);
        let first = known.next()?;
        Some((first, known.last().unwrap_or(first)))
    }

    fn known(&self) -> impl Iterator<Item = (usize, &Range)> {
        let is_known =
            |range: &Range| range.count >= BELIEVED && self.observed - range.last <= AGE_MAX;
        self.ranges.iter().enumerate().filter(move |(_, range)| is_known(range))
    }
}

fn range(in_flight: f64) -> usize {
    ((2.0 * in_flight.log2()).floor().max(0.0) as usize).min(RANGES - 1)
}

fn middle(range: usize) -> f64 {
    // All below one request in flight is in the first.
    2f64.powf((range as f64 + 0.5) / 2.0)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A backend that does `workers` requests at once in 10 ms each; more wait. Past the top it loses a little.
    fn response_s(in_flight: f64, workers: f64) -> f64 {
        let over = (in_flight / workers).max(1.0);
        0.01 * over * (1.0 + 0.02 * (over - 1.0))
    }

    fn shown(upto: u32, workers: f64) -> SpeedProfile {
        let mut profile = SpeedProfile::default();
        for in_flight in 1..=upto {
            for _ in 0..5 {
                let in_flight = f64::from(in_flight);
                profile.observe(in_flight, response_s(in_flight, workers));
            }
        }
        profile
    }

    #[test]
    fn the_top_is_found_once_it_has_been_passed() {
        let best = shown(64, 16.0).best().unwrap();
        assert!(best.is_topped, "{best:?}");
        assert!((best.speed - 1600.0).abs() < 80.0, "{best:?}");
        assert!((13.0..20.0).contains(&best.in_flight), "{best:?}");
    }

    #[test]
    fn while_more_in_flight_brings_more_speed_the_top_is_not_known() {
        let best = shown(12, 16.0).best().unwrap();
        assert!(!best.is_topped, "{best:?}");
    }

    #[test]
    fn nothing_shown_nothing_known() {
        let mut profile = SpeedProfile::default();
        for nonsense in [0.0, -1.0, f64::NAN, f64::INFINITY] {
            profile.observe(nonsense, 1.0);
            profile.observe(1.0, nonsense);
        }
        assert_eq!((profile.best(), profile.shortest_response_s()), (None, None));
    }

    #[test]
    fn a_slower_version_is_learnt_anew() {
        let mut profile = shown(64, 16.0);
        for _ in 0..300 {
            for in_flight in 1..=64 {
                let in_flight = f64::from(in_flight);
                profile.observe(in_flight, response_s(in_flight, 8.0));
            }
        }
        let best = profile.best().unwrap();
        assert!((best.speed - 800.0).abs() < 60.0, "{best:?}");
    }

    #[test]
    fn the_shortest_response_is_that_of_the_idle_backend() {
        let shortest = shown(64, 16.0).shortest_response_s().unwrap();
        assert!((0.007..0.013).contains(&shortest), "{shortest}");
    }

    #[test]
    fn about_the_same_number_in_flight_tells_nothing_unless_it_is_small() {
        let seen = |all: &[f64]| {
            let mut profile = SpeedProfile::default();
            for in_flight in all {
                (0..5).for_each(|_| profile.observe(*in_flight, 0.1));
            }
            profile
        };
        let rows: [(&[f64], bool); 6] = [
            (&[], false),
            (&[0.3], false),
            (&[1.8], false),
            (&[24.0], true),
            (&[20.0, 24.0, 27.0], true),
            (&[12.0, 24.0], false),
        ];
        for (all, is_blind) in rows {
            assert_eq!(seen(all).is_blind(), is_blind, "{all:?}");
        }
        assert!(!shown(64, 16.0).is_blind());
    }
}
