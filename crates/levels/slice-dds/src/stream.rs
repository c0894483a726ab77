//! Names of a stream in DDS (domain, topics, partitions), and the user data of its writers.

use std::time::Duration;

use equipoise_dds::idl::Struct;
use equipoise_dds::items::{DATA_ITEM, REPLY};
use equipoise_dds::{
    Cause, Domain, Error, Kind, Member, Participant, Qos, Settings, StructType, Topic,
};
use equipoise_slice::{Group, WorkerId};

use crate::form::{Form, OwnType};

/// A message between workers and controllers. `to` is the worker's id, or 0 for controllers.
const CONTROL: StructType = StructType {
    name: "equipoise::Control",
    members: &[
        Member { name: "to", kind: Kind::U64, key: true },
        Member { name: "body", kind: Kind::Octets, key: false },
    ],
};

/// Replies for our own clients: [`REPLY`] without a key.
const REPLY_UNKEYED: StructType = StructType {
    name: "equipoise::Reply",
    members: &[
        Member { name: "id", kind: Kind::I64, key: false },
        Member { name: "timestamp", kind: Kind::I64, key: false },
        Member { name: "senderId", kind: Kind::I32, key: false },
        Member { name: "message", kind: Kind::Octets, key: false },
    ],
};

/// A stream of items that equipoise balances.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Stream {
    /// The DDS domain, 0 to 232.
    pub domain: u32,
    /// Settings of DDS in this domain.
    pub dds: Settings,
    /// The topic of items.
    pub items: String,
    /// The topic of replies. If replies have a key, workers also write them without it, to the
    /// topic of this name followed by `/unkeyed`. Our own clients read that topic.
    pub replies: String,
    /// The name of the items' type. A type with a name of ROS 2 (`PACKAGE::msg::dds_::NAME_`) has
    /// no key, as in ROS 2.
    pub item_type: String,
    /// The name of the replies' type, with the same rule.
    pub reply_type: String,
    /// The clients' own type of items, one field of which determines the slice. `None`: the usual
    /// type. [`crate::client::Client`] cannot publish the clients' own type.
    pub own: Option<OwnType>,
    /// Prefix of the topics between workers and controllers, which end in `/up` and `/down`. On the
    /// topic that ends in `/again` workers ask clients to publish the items of a lost worker again.
    pub control: String,
}

impl Default for Stream {
    fn default() -> Self {
        Self {
            domain: 0,
            dds: Settings::default(),
            items: "items".into(),
            replies: "replies".into(),
            item_type: DATA_ITEM.name.into(),
            reply_type: REPLY.name.into(),
            own: None,
            control: "equipoise/slice".into(),
        }
    }
}

/// A participant with the stream's topics.
#[derive(Debug, Clone)]
pub struct Topics {
    /// The participant.
    pub participant: Participant,
    pub(crate) items: Topic,
    /// Replies without a key.
    pub(crate) replies: Topic,
    /// Replies with a key, for any program. `None`: the stream's type of replies has no key.
    pub(crate) keyed_replies: Option<Topic>,
    /// Messages to controllers.
    pub up: Topic,
    /// Messages to workers.
    pub down: Topic,
    pub(crate) again: Topic,
    /// Hash of the topics of items and replies, their types and the key. Differs if one of these
    /// differs.
    pub number: u64,
    pub(crate) form: Form,
    /// Whether the type of items has a DDS key.
    pub keyed_items: bool,
}

impl Stream {
    fn number(&self) -> u64 {
        let Self { items, item_type, replies, reply_type, .. } = self;
        let mut names = [items, item_type, replies, reply_type].map(String::as_str).to_vec();
        names.extend(self.own.as_ref().map(|own| own.key.as_str()));
        fnv1a(names.join(" ").as_bytes())
    }

    /// Whether replies are of the usual type, which has a key, under any name.
    fn has_usual_replies(&self, form: &Form) -> bool {
        form.own_replies().is_none() && !equipoise_dds::is_ros2(&self.reply_type)
    }

    /// Joins the domain, and makes the topics.
    ///
    /// # Errors
    /// Those of DDS.
    #[doc(hidden)]
    pub fn join(&self) -> Result<Topics, Error> {
        let domain = Domain::open(self.domain, &self.dds)?;
        let participant = Participant::new(domain, &[])?;
        let form = Form::of(self.own.as_ref(), &self.item_type, &self.reply_type)?;
        let topic =
            |name: &str, usual: &StructType, own: Option<&Struct>, type_name: &str| match own {
                Some(own) => participant.topic_declared(name, own, type_name),
                None => participant.topic_named(name, usual, type_name),
            };
        // The usual type has a key, and the clients' own type may have one.
        let keyed_items = !equipoise_dds::is_ros2(&self.item_type)
            && form.own_items().is_none_or(|own| own.members.iter().any(|member| member.key));
        let named = topic(&self.replies, &REPLY, form.own_replies(), &self.reply_type)?;
        let (replies, keyed_replies) = match self.has_usual_replies(&form) {
            true => {
                let name = format!("{}/unkeyed", self.replies);
                (participant.topic(&name, &REPLY_UNKEYED)?, Some(named))
            }
            false => (named, None),
        };
        Ok(Topics {
            items: topic(&self.items, &DATA_ITEM, form.own_items(), &self.item_type)?,
            replies,
            keyed_replies,
            keyed_items,
            form,
            up: participant.topic(&format!("{}/up", self.control), &CONTROL)?,
            down: participant.topic(&format!("{}/down", self.control), &CONTROL)?,
            again: participant.topic(&format!("{}/again", self.control), &CONTROL)?,
            number: self.number(),
            participant,
        })
    }
}

/// The partition of a group. The base topic has none: publishers without groups publish there.
pub fn partition(group: Group) -> Option<String> {
    (group != Group::BASE).then(|| format!("g{}", group.number()))
}

/// QoS of readers and writers of items in `group`.
pub fn item_qos(group: Group, user_data: Vec<u8>) -> Qos {
    Qos { partition: partition(group), user_data, ..Qos::default() }
}

/// Messages to one recipient that a writer keeps until all readers have acknowledged them.
const MAIL_KEPT: u32 = 64;

/// QoS of writers of messages. A writer that keeps all samples waits for a dead or paused reader
/// until DDS declares it dead, and during that time no other reader receives messages. A writer
/// that keeps only the last few never waits; the protocol repeats the messages that are lost.
pub fn mail_qos() -> Qos {
    let (blocking_max, keep_last) = (Duration::from_millis(20), Some(MAIL_KEPT));
    Qos { blocking_max, keep_last, ..item_qos(Group::BASE, Vec::new()) }
}

/// Whether DDS did not accept the sample in time.
pub fn is_late(error: &Error) -> bool {
    matches!(error, Error::Refused { cause: Cause::Timeout, .. })
}

/// The id of the worker of this name, the same after each restart. Never 0.
pub fn worker_id(name: &str) -> WorkerId {
    WorkerId(fnv1a(name.as_bytes()).max(1))
}

/// FNV-1a with 64 bits: the same in every process of every version.
///
/// # Source
/// Fowler, Noll, Vo; draft-eastlake-fnv.
pub(crate) fn fnv1a(bytes: &[u8]) -> u64 {
    bytes.iter().fold(0xcbf2_9ce4_8422_2325, |hash, byte| {
        (hash ^ u64::from(*byte)).wrapping_mul(0x0000_0100_0000_01b3)
    })
}

/// How a writer numbers its items. The writer's user data contains it, and discovery delivers that
/// before the first item.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Numbering {
    /// Any publisher: only by time.
    Plain,
    /// Source timestamps are positions and grow with each item. The value is the writer's id.
    First(u64),
    /// Repeats items that the writer of this id published before, with their original positions.
    Again(u64),
}

/// User data of a client's reader of replies with a key. The client also reads those without one.
pub(crate) const READS_UNKEYED: &[u8] = b"equipoise-slice/1/reads-unkeyed";
/// User data of a worker's writer of replies with a key. The worker also writes those without one.
pub(crate) const WRITES_UNKEYED: &[u8] = b"equipoise-slice/1/writes-unkeyed";

const FIRST: &[u8] = b"equipoise-slice/1/first/";
const AGAIN: &[u8] = b"equipoise-slice/1/again/";

impl Numbering {
    pub(crate) fn of(user_data: &[u8]) -> Self {
        let number = |tag: &[u8]| {
            let hex = user_data.strip_prefix(tag)?;
            u64::from_str_radix(std::str::from_utf8(hex).ok()?, 16).ok()
        };
        match (number(FIRST), number(AGAIN)) {
            (Some(writer), _) => Self::First(writer),
            (_, Some(writer)) => Self::Again(writer),
            _ => Self::Plain,
        }
    }

    pub(crate) fn user_data(self) -> Vec<u8> {
        let (tag, writer) = match self {
            Self::Plain => return Vec::new(),
            Self::First(writer) => (FIRST, writer),
            Self::Again(writer) => (AGAIN, writer),
        };
        [tag, format!("{writer:016x}").as_bytes()].concat()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbering_round_trips_through_user_data_and_defaults_to_plain() {
        for numbering in [Numbering::Plain, Numbering::First(7), Numbering::Again(u64::MAX)] {
            assert_eq!(Numbering::of(&numbering.user_data()), numbering);
        }
        for strange in
            [&b"anything"[..], b"equipoise-slice/1/first/", b"equipoise-slice/1/again/xyz"]
        {
            assert_eq!(Numbering::of(strange), Numbering::Plain);
        }
    }

    #[test]
    fn a_worker_name_always_has_the_same_id() {
        assert_eq!(worker_id("worker-1"), WorkerId(0x2491_3ec5_9027_ebed));
        assert_ne!(worker_id("worker-1"), worker_id("worker-2"));
    }
}
