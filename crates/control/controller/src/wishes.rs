//! Settings by operators.

use std::collections::BTreeMap;

use equipoise_core::AdminState;
use equipoise_planner::elastic::Mode;
use serde::{Deserialize, Serialize};

/// Settings by operators.
#[derive(Clone, Debug, Default, PartialEq)]
pub(crate) struct Wishes {
    /// Sizes of elastic pools.
    pub(crate) sizes: BTreeMap<String, SizeWish>,
    /// Admin states of nodes. Nodes that are missing here are up.
    pub(crate) admins: BTreeMap<String, AdminState>,
}

/// An operator's setting of an elastic pool's size.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(untagged)]
pub enum SizeWish {
    /// The scaling mode.
    Mode(Mode),
    /// Scaling is paused, and a pin takes effect after the pause.
    PausedPin {
        /// The pinned number of backends.
        paused_pin: u32,
    },
}

impl SizeWish {
    /// The present scaling mode.
    pub fn mode(self) -> Mode {
        match self {
            SizeWish::Mode(mode) => mode,
            SizeWish::PausedPin { .. } => Mode::Paused,
        }
    }

    /// The pinned number of backends, now or after a pause.
    pub fn pin(self) -> Option<u32> {
        match self {
            SizeWish::Mode(Mode::Pinned(count)) | SizeWish::PausedPin { paused_pin: count } => {
                Some(count)
            }
            SizeWish::Mode(Mode::Auto | Mode::Paused) => None,
        }
    }

    /// The same setting, paused. A pin is kept.
    #[must_use]
    pub fn paused(self) -> SizeWish {
        match self.pin() {
            Some(paused_pin) => SizeWish::PausedPin { paused_pin },
            None => SizeWish::Mode(Mode::Paused),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_pause_keeps_the_pin_and_wishes_of_before_are_read() {
        let pinned = SizeWish::Mode(Mode::Pinned(3));
        let paused = pinned.paused();
        assert_eq!((paused.mode(), paused.pin()), (Mode::Paused, Some(3)));
        assert_eq!(paused.paused(), paused, "twice is once");
        let auto = SizeWish::Mode(Mode::Auto).paused();
        assert_eq!((auto.mode(), auto.pin()), (Mode::Paused, None));
        for (wish, stored) in [
            (pinned, r#"{"pinned":3}"#),
            (auto, r#""paused""#),
            (SizeWish::Mode(Mode::Auto), r#""auto""#),
            (paused, r#"{"paused_pin":3}"#),
        ] {
            assert_eq!(serde_json::to_string(&wish).unwrap(), stored);
            assert_eq!(serde_json::from_str::<SizeWish>(stored).unwrap(), wish);
        }
    }
}
