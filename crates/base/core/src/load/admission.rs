use super::{PerClass, RequestClass};

/// The order in which classes are refused under overload: the most expensive first, light requests
/// last.
pub const REFUSED_FIRST: [RequestClass; 4] = [
    RequestClass::Computing,
    RequestClass::LargeTransfer,
    RequestClass::SmallTransfer,
    RequestClass::Light,
];

/// The part of each class (0..=1) to refuse, so that demand falls to `limit`.
///
/// `asked` is the demand of each class for a resource, `fixed` the use that is not due to requests;
/// all have one unit. A class is refused only if all classes before it in [`REFUSED_FIRST`] are
/// refused completely.
pub fn refuse(asked: &PerClass<f64>, fixed: f64, limit: f64) -> PerClass<f64> {
    let positive = |value: f64| if value.is_finite() { value.max(0.0) } else { 0.0 };
    let total: f64 = RequestClass::ALL.iter().map(|class| positive(asked[*class])).sum();
    let mut excess = positive(positive(fixed) + total - limit);
    let mut refused = PerClass::default();
    for class in REFUSED_FIRST {
        let asks = positive(asked[class]);
        if asks > 0.0 && excess > 0.0 {
            refused[class] = (excess / asks).min(1.0);
            excess -= asks.min(excess);
        }
    }
    refused
}

#[cfg(test)]
mod tests {
    use super::*;

    const ASKED: PerClass<f64> =
        PerClass { light: 10.0, small_transfer: 20.0, large_transfer: 30.0, computing: 80.0 };

    fn refused(limit: f64) -> [f64; 4] {
        REFUSED_FIRST.map(|class| refuse(&ASKED, 5.0, limit)[class])
    }

    #[test]
    fn nothing_is_refused_while_there_is_room() {
        assert_eq!(refused(145.0), [0.0; 4]);
        assert_eq!(refuse(&PerClass::default(), 5.0, 1.0), PerClass::default());
    }

    #[test]
    fn classes_are_refused_in_order_and_light_requests_last() {
        assert_eq!(refused(105.0), [0.5, 0.0, 0.0, 0.0]);
        assert_eq!(refused(50.0), [1.0, 0.5, 0.0, 0.0]);
        assert_eq!(refused(25.0), [1.0, 1.0, 0.5, 0.0]);
        assert_eq!(refused(10.0), [1.0, 1.0, 1.0, 0.5]);
        assert_eq!(refused(0.0), [1.0; 4]);
    }

    #[test]
    fn admitted_demand_and_fixed_use_add_up_to_the_limit() {
        for limit in [145.0, 120.0, 90.0, 40.0, 20.0, 6.0] {
            let refused = refuse(&ASKED, 5.0, limit);
            let left = |class: &RequestClass| (1.0 - refused[*class]) * ASKED[*class];
            let left = 5.0 + RequestClass::ALL.iter().map(left).sum::<f64>();
            assert!((left - limit).abs() < 1e-9, "{limit}: {left}");
        }
    }

    #[test]
    fn nan_and_negative_demand_count_as_zero() {
        let asked = PerClass { computing: f64::NAN, light: -5.0, ..ASKED };
        assert_eq!(refuse(&asked, f64::NAN, 50.0), PerClass::default());
        assert_eq!(refuse(&asked, 0.0, 45.0).large_transfer, 5.0 / 30.0);
    }
}
