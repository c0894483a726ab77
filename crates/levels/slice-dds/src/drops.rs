//! What the runtime lets go, beside what the protocol does.

use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

/// Why something was let go.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum DropReason {
    /// The item's slice is none of the stream's.
    NoSuchSlice,
    /// The sample is no item: too short, or of another type that has the same name.
    Malformed,
    /// The worker's queue was full, and the item's publisher is not one of our clients, who would publish it again.
    QueueFull,
    /// The writer was gone before anything was known of it.
    UnknownWriter,
    /// A message between workers and controllers that cannot be read: another version, or none of ours.
    MailUnreadable,
    /// A message between workers and controllers that DDS did not take in time, as when one of them has just died. It is said
    /// again.
    MailRefused,
    /// Not dropped: an item of a publisher whose timestamps do not grow. When its slice moves just then it may be lost, or done
    /// twice.
    TimestampRepeated,
    /// Not dropped: a reply that was not taken at once, as a client takes none. It waits.
    ReplyLate,
    /// Not dropped: a reply that went out past a client that takes none. It is kept for that one.
    ReplyBeside,
    /// A reply that DDS refused for good.
    ReplyRefused,
    /// Not dropped: a publisher that is kept apart, as its type has another content under the same name. Its items reach nobody.
    IncompatibleType,
    /// Not dropped: a publisher that is kept apart for its QoS. Its items reach nobody.
    IncompatibleQos,
    /// Not dropped: a reader of replies that is kept apart, for its type or QoS. It gets none.
    IncompatibleReader,
    /// An item with which in hand its program ended again and again. Its client is told.
    SetAside,
}

impl DropReason {
    /// All of them.
    pub const ALL: [Self; 14] = [
        Self::NoSuchSlice,
        Self::Malformed,
        Self::QueueFull,
        Self::UnknownWriter,
        Self::MailUnreadable,
        Self::MailRefused,
        Self::TimestampRepeated,
        Self::ReplyLate,
        Self::ReplyBeside,
        Self::ReplyRefused,
        Self::IncompatibleType,
        Self::IncompatibleQos,
        Self::IncompatibleReader,
        Self::SetAside,
    ];

    /// Its name in metrics.
    pub fn name(self) -> &'static str {
        match self {
            Self::NoSuchSlice => "no_such_slice",
            Self::Malformed => "malformed",
            Self::QueueFull => "queue_full",
            Self::UnknownWriter => "unknown_writer",
            Self::MailUnreadable => "mail_unreadable",
            Self::MailRefused => "mail_refused",
            Self::TimestampRepeated => "timestamp_repeated",
            Self::ReplyLate => "reply_late",
            Self::ReplyBeside => "reply_beside",
            Self::ReplyRefused => "reply_refused",
            Self::IncompatibleType => "incompatible_type",
            Self::IncompatibleQos => "incompatible_qos",
            Self::IncompatibleReader => "incompatible_reader",
            Self::SetAside => "set_aside",
        }
    }
}

/// How often.
#[derive(Debug, Default)]
pub(crate) struct DropCounts([AtomicU64; DropReason::ALL.len()]);

impl DropCounts {
    pub(crate) fn count(&self, reason: DropReason) {
        self.add(reason, 1);
    }

    pub(crate) fn add(&self, reason: DropReason, count: u64) {
        self.0[reason as usize].fetch_add(count, Relaxed);
    }

    pub(crate) fn of(&self, reason: DropReason) -> u64 {
        self.0[reason as usize].load(Relaxed)
    }
}
