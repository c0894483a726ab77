//! The weights of SRV records, as weights of backends. Pure.

use equipoise_core::Weight;

/// Brings weights from 0 to 65535, which may be divided over several addresses, to 1 to 1000. They
/// stay as they are if they are whole and small enough. A record with weight 0 gets a small share
/// beside others (RFC 2782), so its weight is 1.
pub(super) fn scaled(shares: &[f64]) -> Vec<Weight> {
    let most = shares.iter().copied().fold(0.0, f64::max);
    let max = f64::from(Weight::MAX);
    let is_plain = most <= max && shares.iter().all(|share| share.fract() == 0.0);
    let factor = if is_plain || most == 0.0 { 1.0 } else { max / most };
    let weight = |share: &f64| {
        let weight = (share * factor).round().clamp(1.0, max) as u16;
        Weight::new(weight).unwrap_or_default()
    };
    shares.iter().map(weight).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn weights_keep_their_proportions() {
        let of = |shares: &[f64]| scaled(shares).iter().map(|it| it.get()).collect::<Vec<_>>();
        assert_eq!(of(&[10.0, 60.0, 0.0]), [10, 60, 1]);
        assert_eq!(of(&[0.0, 0.0]), [1, 1]);
        assert_eq!(of(&[65_535.0, 32_767.5, 1.0]), [1000, 500, 1]);
        assert_eq!(of(&[10.0, 5.0, 2.5]), [1000, 500, 250], "halves are made whole");
        assert_eq!(of(&[]), [] as [u16; 0]);
    }
}
