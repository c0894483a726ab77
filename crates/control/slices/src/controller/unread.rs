//! Publishers that no worker can read, because DDS does not connect incompatible endpoints.

use std::fmt;
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use equipoise_basics::lock;
use equipoise_dds::{Error, Guid, Publication, Publications};

/// Interval between two examinations.
const LOOK: Duration = Duration::from_millis(500);
/// Limit of publishers in the status.
const TOLD_MAX: usize = 32;

/// A publisher on the topic of items that no worker can read.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Unread {
    /// Its writer.
    pub writer: Guid,
    /// The reason.
    pub why: UnreadReason,
}

/// Why no worker can read a publisher.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum UnreadReason {
    /// Its type has another name.
    OtherType {
        /// The publisher's type.
        theirs: String,
        /// The type that workers read.
        ours: String,
    },
    /// Its type has a key and the workers' type has none, or (`false`) the reverse.
    Keyed(bool),
    /// It is best-effort: it does not resend lost samples.
    BestEffort,
}

impl fmt::Display for UnreadReason {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::OtherType { theirs, ours } => write!(
                f,
                "its type is `{theirs}`, but workers read `{ours}`: publish `{ours}`, or set `item-type`"
            ),
            Self::Keyed(true) => f.write_str(
                "its type has a key, but the workers' type has none: publish a type without `@key`",
            ),
            Self::Keyed(false) => f.write_str(
                "its type has no key, but the workers' type has one: publish a type with `@key`",
            ),
            Self::BestEffort => f.write_str(
                "it is best-effort, but workers read only reliable writers: publish with reliable QoS",
            ),
        }
    }
}

impl UnreadReason {
    /// The reason for a writer, where workers read type `ours`, with a key if `keyed`. `None`:
    /// workers can read it.
    fn of(writer: &Publication, ours: &str, keyed: bool) -> Option<Self> {
        if writer.type_name != ours {
            let (theirs, ours) = (writer.type_name.clone(), ours.to_string());
            return Some(Self::OtherType { theirs, ours });
        }
        if writer.keyed != keyed {
            return Some(Self::Keyed(writer.keyed));
        }
        (!writer.reliable).then_some(Self::BestEffort)
    }
}

/// The publishers that the thread for messages has found.
#[derive(Debug, Clone, Default)]
pub(super) struct Told(Arc<Mutex<Vec<Unread>>>);

impl Told {
    pub(super) fn now(&self) -> Vec<Unread> {
        lock(&self.0).clone()
    }
}

/// Finds such publishers.
#[derive(Debug)]
pub(super) struct Lookout {
    publications: Publications,
    ours: String,
    keyed: bool,
    told: Told,
    looked: Option<Instant>,
}

impl Lookout {
    pub(super) fn new(publications: Publications, ours: &str, keyed: bool, told: Told) -> Self {
        Self { publications, ours: ours.to_string(), keyed, told, looked: None }
    }

    /// Examines all publishers, at most once in [`LOOK`].
    pub(super) fn look(&mut self) -> Result<(), Error> {
        if self.looked.is_some_and(|looked| looked.elapsed() < LOOK) {
            return Ok(());
        }
        self.looked = Some(Instant::now());
        let (ours, keyed) = (&self.ours, self.keyed);
        let unread = |of: &Publication| {
            Some(Unread { writer: of.guid, why: UnreadReason::of(of, ours, keyed)? })
        };
        let unread: Vec<_> = self.publications.now()?.filter_map(unread).take(TOLD_MAX).collect();
        let mut told = lock(&self.told.0);
        for new in unread.iter().filter(|it| !told.contains(it)) {
            tracing::warn!(writer = ?new.writer, "a publisher's items reach no worker: {}", new.why);
        }
        *told = unread;
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_incompatible_publisher_is_reported_with_its_reason() {
        let good = Publication {
            guid: Guid([1; 16]),
            type_name: "dpslb::DataItem".into(),
            keyed: true,
            reliable: true,
        };
        let of = |writer: Publication| UnreadReason::of(&writer, "dpslb::DataItem", true);
        assert_eq!(of(good.clone()), None);
        let other = of(Publication { type_name: "a::B".into(), ..good.clone() });
        assert!(matches!(other, Some(UnreadReason::OtherType { theirs, .. }) if theirs == "a::B"));
        let unkeyed = of(Publication { keyed: false, ..good.clone() });
        assert_eq!(unkeyed, Some(UnreadReason::Keyed(false)));
        assert_eq!(of(Publication { reliable: false, ..good }), Some(UnreadReason::BestEffort));
    }
}
