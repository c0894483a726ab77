//! Drops counted by the runtime, in addition to those of the protocol.

use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

/// The cause of a drop.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum DropReason {
    /// The stream has no slice of this number.
    NoSuchSlice,
    /// The sample is not an item: too short, or of another type with the same name.
    Malformed,
    /// The worker's queue was full, and the publisher is not one of our clients, which would
    /// publish the item again.
    QueueFull,
    /// The writer ended before discovery described it.
    UnknownWriter,
    /// A message between workers and controllers that cannot be decoded: of another version, or not
    /// from equipoise.
    MailUnreadable,
    /// A message between workers and controllers that DDS did not accept in time, for example
    /// because a recipient has just died. The protocol sends it again.
    MailRefused,
    /// Not dropped: an item of a publisher without growing timestamps. If its slice moves at that
    /// moment, the item may be lost or executed twice.
    TimestampRepeated,
    /// Not dropped: a reply that DDS did not accept at once, because a client accepts none. It
    /// waits.
    ReplyLate,
    /// Not dropped: a reply written while a client accepts none. The worker keeps it for that
    /// client.
    ReplyBeside,
    /// A reply that DDS will never accept.
    ReplyRefused,
    /// Not dropped: an incompatible publisher. Its type has another content under the same name.
    /// No worker receives its items.
    IncompatibleType,
    /// Not dropped: a publisher with incompatible QoS. No worker receives its items.
    IncompatibleQos,
    /// Not dropped: a reader of replies with an incompatible type or QoS. It receives none.
    IncompatibleReader,
    /// A quarantined item: its program ended repeatedly with this item in hand. The client receives
    /// a reply about that, if the type of replies has a text.
    SetAside,
}

impl DropReason {
    /// All reasons.
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

    /// The reason's label in metrics.
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

/// Number of drops by reason.
#[derive(Debug, Default)]
pub struct DropCounts([AtomicU64; DropReason::ALL.len()]);

impl DropCounts {
    /// Counts one.
    pub fn count(&self, reason: DropReason) {
        self.add(reason, 1);
    }

    /// Counts several.
    pub fn add(&self, reason: DropReason, count: u64) {
        self.0[reason as usize].fetch_add(count, Relaxed);
    }

    /// The count of a reason.
    pub fn of(&self, reason: DropReason) -> u64 {
        self.0[reason as usize].load(Relaxed)
    }
}
