use std::fmt;
use std::ops::{Index, IndexMut};

use serde::{Deserialize, Serialize};

/// The kind of a request by its cost to a node.
///
/// # Source
/// TLLB's four classes.
#[derive(
    Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize,
)]
#[serde(rename_all = "kebab-case")]
pub enum RequestClass {
    /// Metadata and similar: must be fast, and costs almost nothing. Never delegated, because the
    /// transfer would cost as much as the work.
    Light,
    /// A few kilobytes; also every unclassified request.
    #[default]
    SmallTransfer,
    /// Limited by the network.
    LargeTransfer,
    /// Limited by the CPU.
    Computing,
}

impl RequestClass {
    /// All classes, in the order of their numbers.
    pub const ALL: [RequestClass; 4] = [
        RequestClass::Light,
        RequestClass::SmallTransfer,
        RequestClass::LargeTransfer,
        RequestClass::Computing,
    ];
}

impl fmt::Display for RequestClass {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            RequestClass::Light => "light",
            RequestClass::SmallTransfer => "small-transfer",
            RequestClass::LargeTransfer => "large-transfer",
            RequestClass::Computing => "computing",
        })
    }
}

/// A value for each class.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case", deny_unknown_fields)]
pub struct PerClass<T> {
    /// The value for light requests.
    pub light: T,
    /// The value for small transfers.
    pub small_transfer: T,
    /// The value for large transfers.
    pub large_transfer: T,
    /// The value for computing requests.
    pub computing: T,
}

impl<T> PerClass<T> {
    /// Computes the value of each class with `of`.
    pub fn from_fn(mut of: impl FnMut(RequestClass) -> T) -> PerClass<T> {
        PerClass {
            light: of(RequestClass::Light),
            small_transfer: of(RequestClass::SmallTransfer),
            large_transfer: of(RequestClass::LargeTransfer),
            computing: of(RequestClass::Computing),
        }
    }
}

impl<T> Index<RequestClass> for PerClass<T> {
    type Output = T;
    fn index(&self, class: RequestClass) -> &T {
        match class {
            RequestClass::Light => &self.light,
            RequestClass::SmallTransfer => &self.small_transfer,
            RequestClass::LargeTransfer => &self.large_transfer,
            RequestClass::Computing => &self.computing,
        }
    }
}

impl<T> IndexMut<RequestClass> for PerClass<T> {
    fn index_mut(&mut self, class: RequestClass) -> &mut T {
        match class {
            RequestClass::Light => &mut self.light,
            RequestClass::SmallTransfer => &mut self.small_transfer,
            RequestClass::LargeTransfer => &mut self.large_transfer,
            RequestClass::Computing => &mut self.computing,
        }
    }
}

/// Requests of one class at a node so far, and their bytes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ClassCounts {
    /// Arrived from clients.
    pub arrived: u64,
    /// Served by peers.
    pub delegated: u64,
    /// Delegated to peers, served or not yet, without those that came back.
    pub given: u64,
    /// Answered with 503 because the whole cluster was overloaded.
    pub refused: u64,
    /// Taken from peers.
    pub taken: u64,
    /// Of those, handed back to the peer for lack of room.
    pub handed_back: u64,
    /// Bytes of the requests that were served here.
    pub bytes: u64,
}

/// Requests of one class at a node in the measured period, per second.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct ClassRate {
    /// Arrived from clients.
    pub arrived: f64,
    /// Of those, delegated to peers.
    pub delegated: f64,
    /// Of those, refused because of overload.
    #[serde(default)]
    pub refused: f64,
    /// Taken from peers.
    pub taken: f64,
    /// Bytes that the requests served here moved, in both directions.
    pub bytes: f64,
}

/// The requests at a node in the measured period. All zero if the node does not report them, or
/// does not dispatch.
pub type ClassRates = PerClass<ClassRate>;

/// Largest credible rate of a class, in requests per second.
const RATE_MAX: f64 = 1e7;

impl ClassRate {
    /// The rate with impossible values (NaN, negative, 10^9, more delegated than arrived) replaced
    /// by the nearest possible ones.
    ///
    /// A rate only influences shares and is not a load, so one wrong counter does not invalidate
    /// the report.
    #[must_use]
    pub fn sane(self) -> ClassRate {
        let positive = |value: f64| if value.is_finite() { value.max(0.0) } else { 0.0 };
        let rate = |value| positive(value).min(RATE_MAX);
        let arrived = rate(self.arrived);
        let refused = rate(self.refused).min(arrived);
        ClassRate {
            arrived,
            delegated: rate(self.delegated).min(arrived - refused),
            refused,
            taken: rate(self.taken),
            bytes: positive(self.bytes),
        }
    }

    /// Requests served here, per second.
    pub fn done(&self) -> f64 {
        self.arrived - self.refused - self.delegated + self.taken
    }
}

impl ClassRates {
    /// The rates with impossible values replaced.
    #[must_use]
    pub fn sane(self) -> ClassRates {
        PerClass::from_fn(|class| self[class].sane())
    }

    /// The demand of clients at this node as a multiple of the work done here, with classes
    /// weighted by `cost`; `None` if no work was done. 1 without delegation.
    pub fn offered_per_done(&self, cost: impl Fn(RequestClass) -> f64) -> Option<f64> {
        let (mut arrived, mut done) = (0.0, 0.0);
        for class in RequestClass::ALL {
            arrived += cost(class) * self[class].arrived;
            done += cost(class) * self[class].done();
        }
        if done > 0.0 { Some(arrived / done) } else { (arrived <= 0.0).then_some(1.0) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn offered_load_is_arrived_requests_divided_by_requests_served_here() {
        let one = |arrived, delegated, taken| {
            let rate = ClassRate { arrived, delegated, taken, ..ClassRate::default() };
            let rates = ClassRates { computing: rate, ..ClassRates::default() };
            rates.offered_per_done(|_| 1.0)
        };
        assert_eq!(one(100.0, 0.0, 0.0), Some(1.0));
        assert_eq!(one(100.0, 50.0, 0.0), Some(2.0));
        assert_eq!(one(50.0, 0.0, 50.0), Some(0.5));
        assert_eq!(one(100.0, 100.0, 0.0), None);
        assert_eq!(one(0.0, 0.0, 0.0), Some(1.0));
    }

    #[test]
    fn classes_count_by_their_cost() {
        let light = ClassRate { arrived: 900.0, ..ClassRate::default() };
        let computing = ClassRate { arrived: 10.0, delegated: 5.0, ..ClassRate::default() };
        let rates = ClassRates { light, computing, ..ClassRates::default() };
        let cost = |class| if class == RequestClass::Computing { 8.0 } else { 0.0 };
        assert_eq!(rates.offered_per_done(cost), Some(2.0));
    }

    #[test]
    fn impossible_class_rates_are_replaced_by_valid_rates() {
        let wrong =
            ClassRate { arrived: 5.0, delegated: 9.0, refused: 1.0, taken: f64::NAN, bytes: -1.0 };
        let right =
            ClassRate { arrived: 5.0, delegated: 4.0, refused: 1.0, taken: 0.0, bytes: 0.0 };
        assert_eq!(wrong.sane(), right);
    }

    #[test]
    fn a_class_has_one_name_everywhere() {
        for class in RequestClass::ALL {
            assert_eq!(serde_json::to_value(class).unwrap(), class.to_string());
            let with = PerClass::from_fn(|other| u8::from(other == class));
            assert_eq!(with[class], 1);
            assert_eq!(serde_json::to_value(with).unwrap()[class.to_string()], 1);
        }
    }
}
