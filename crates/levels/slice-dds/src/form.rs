//! Serialization of items and replies: in the stream's usual types, or in the clients' own types.
//! No I/O.
//!
//! An item of the clients' own type has a key field instead of a slice number. Its slice is the
//! hash of that field's value, modulo the number of slices. Such an item has no id either: its
//! source timestamp replaces the id, and a hash of the writer's GUID replaces the sender.

use std::sync::Arc;

use equipoise_dds::cdr::Malformed;
use equipoise_dds::idl::{self, IdlError, KeyField, KeyValue, Struct};
use equipoise_dds::items::{DataItem, Reply};
use equipoise_slice::{Item, Numbering, number_key, text_key};

use crate::payload::Payload;

/// A type of items that clients define.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct OwnType {
    /// IDL that declares the struct of the stream's `item_type`. If it also declares the struct of
    /// `reply_type`, each answer of a worker is a serialized sample of that struct.
    pub idl: String,
    /// The field that determines the slice; a path such as `header.frame_id` leads into nested
    /// structs.
    pub key: String,
}

/// Serialization of a stream's samples.
#[derive(Debug, Clone, Default)]
pub(crate) struct Form {
    /// `None`: items are [`DataItem`]s.
    own: Option<Arc<Own>>,
}

#[derive(Debug)]
struct Own {
    items: Arc<Struct>,
    key: KeyField,
    /// `None`: replies are [`Reply`]s.
    replies: Option<Arc<Struct>>,
}

impl OwnType {
    /// Checks that the IDL declares the type of items with this key, and that its type of replies,
    /// if it has one, is usable.
    ///
    /// # Errors
    /// [`IdlError`]
    pub fn check(&self, item_type: &str, reply_type: &str) -> Result<(), IdlError> {
        self.read(item_type, reply_type).map(|_| ())
    }

    fn read(&self, item_type: &str, reply_type: &str) -> Result<Own, IdlError> {
        let items = idl::parse(&self.idl, item_type)?;
        let key = KeyField::new(&items, &self.key)?;
        let replies = match idl::parse(&self.idl, reply_type) {
            Err(IdlError::NoStruct { .. }) => None,
            found => Some(found?),
        };
        match replies.as_ref().filter(|of| of.members.iter().any(|member| member.key)) {
            Some(keyed) => Err(IdlError::KeyedReply(keyed.name.clone())),
            None => Ok(Own { items, key, replies }),
        }
    }
}

impl Form {
    /// The form of a stream with the clients' own type, or the usual one.
    pub(crate) fn of(
        own: Option<&OwnType>,
        item_type: &str,
        reply_type: &str,
    ) -> Result<Self, IdlError> {
        let own = own.map(|own| own.read(item_type, reply_type)).transpose()?;
        Ok(Self { own: own.map(Arc::new) })
    }

    /// The type of items, if clients define it.
    pub(crate) fn own_items(&self) -> Option<&Struct> {
        self.own.as_ref().map(|own| &*own.items)
    }

    /// The type of replies, if clients define it.
    pub(crate) fn own_replies(&self) -> Option<&Struct> {
        self.own.as_ref().and_then(|own| own.replies.as_deref())
    }

    /// The key of a serialized item, from which [`Numbering::slice_of`] derives the slice. `None`:
    /// the item has a slice number that the stream does not have.
    #[inline]
    pub(crate) fn key(&self, cdr: &[u8], numbering: &Numbering) -> Result<Option<u64>, Malformed> {
        let Some(own) = &self.own else {
            let slice = u32::try_from(DataItem::peek_slice(cdr)?).ok();
            return Ok(slice.filter(|slice| *slice < numbering.ids).map(u64::from));
        };
        Ok(Some(hash_of(own.key.peek(cdr)?)))
    }

    /// The item as programs receive it. The message of an item of the clients' own type is the
    /// whole serialized item, with its header.
    pub(crate) fn item<'a>(&self, item: &'a Item<Payload>) -> Result<DataItem<'a>, Malformed> {
        let cdr = item.payload.cdr();
        if self.own.is_none() {
            return DataItem::decode(cdr);
        }
        Ok(DataItem {
            slice_id: item.slice.0 as i32,
            id: item.position as i64,
            sender_id: (item.writer.id & 0x7fff_ffff) as i32,
            timestamp: item.position as i64,
            message: cdr,
        })
    }

    /// The serialized reply to an item. `None`: the item has no reply.
    pub(crate) fn reply(&self, item: &DataItem<'_>, answer: Vec<u8>) -> Option<Vec<u8>> {
        if self.own_replies().is_some() {
            return Some(answer).filter(|answer| !answer.is_empty());
        }
        let mut cdr = Vec::new();
        let (id, timestamp, sender_id) = (item.id, item.timestamp, item.sender_id);
        Reply { id, timestamp, sender_id, message: &answer }.encode(&mut cdr);
        Some(cdr)
    }

    /// The reply to an item that will not be processed. `None`: the stream's type of replies has no
    /// field for a text.
    pub(crate) fn refusal(&self, text: String) -> Option<Vec<u8>> {
        if self.own_replies().is_some() { None } else { Some(text.into_bytes()) }
    }
}

/// Hash of a key's value, which determines the slice.
fn hash_of(value: KeyValue<'_>) -> u64 {
    match value {
        KeyValue::Text(text) => text_key(text),
        KeyValue::Number(number) => number_key(number),
    }
}

#[cfg(test)]
mod tests {
    use equipoise_slice::SliceId;

    use super::*;

    const IDL: &str = "module pkg { module msg {\n\
        struct Ping { string robot; long number; };\n\
        struct Pong { long number; };\n}; };";

    fn form_of(key: &str, reply_type: &str) -> Result<Form, IdlError> {
        let own = OwnType { idl: IDL.into(), key: key.into() };
        Form::of(Some(&own), "pkg::msg::dds_::Ping_", reply_type)
    }

    /// `robot` and `number` of a `Ping`.
    fn ping(robot: &str, number: i32) -> Vec<u8> {
        let mut cdr = vec![0, 1, 0, 0];
        cdr.extend_from_slice(&(robot.len() as u32 + 1).to_le_bytes());
        cdr.extend_from_slice(robot.as_bytes());
        cdr.push(0);
        cdr.resize(cdr.len().next_multiple_of(4), 0);
        cdr.extend_from_slice(&number.to_le_bytes());
        cdr
    }

    #[test]
    fn items_of_one_key_are_of_one_slice_and_keys_are_spread() {
        let form = form_of("robot", "dpslb::Reply").unwrap();
        let fifty = Numbering::new(50);
        let slice = |robot: &str, number| {
            fifty.slice_of(form.key(&ping(robot, number), &fifty).unwrap().unwrap())
        };
        assert_eq!(slice("a", 1), slice("a", 2));
        let used: std::collections::BTreeSet<_> =
            (0..500).map(|n| slice(&format!("robot_{n}"), 0)).collect();
        assert_eq!(used.len(), 50);
        let by_number = form_of("number", "dpslb::Reply").unwrap();
        let of = |robot: &str| by_number.key(&ping(robot, 7), &fifty).unwrap();
        assert_eq!(of("a"), of("another"));
        assert!(form.key(&ping("a", 1)[..6], &fifty).is_err());
    }

    #[test]
    fn the_hash_stays_the_same_in_every_version() {
        let slice_of = |hash| Numbering::new(1 << 16).slice_of(hash);
        // Clients may compute slices, and workers of two versions work side by side.
        assert_eq!(slice_of(hash_of(KeyValue::Text(b"base_link"))), SliceId(HASHED.0));
        assert_eq!(slice_of(hash_of(KeyValue::Number(-1_i64 as u64))), SliceId(HASHED.1));
    }

    const HASHED: (u32, u32) = (41307, 13792);

    #[test]
    fn replies_are_samples_of_the_clients_type_if_the_idl_has_it() {
        let usual = form_of("robot", "dpslb::Reply").unwrap();
        let item = DataItem { slice_id: 3, id: 4, sender_id: 5, timestamp: 6, message: b"" };
        let cdr = usual.reply(&item, b"done".to_vec()).unwrap();
        let reply = Reply::decode(&cdr).unwrap();
        assert_eq!((reply.id, reply.sender_id, reply.message), (4, 5, &b"done"[..]));
        let own = form_of("robot", "pkg::msg::dds_::Pong_").unwrap();
        let pong = vec![0, 1, 0, 0, 9, 0, 0, 0];
        assert_eq!(own.reply(&item, pong.clone()), Some(pong));
        assert_eq!(own.reply(&item, Vec::new()), None);
        assert_eq!(
            (usual.refusal("no".into()), own.refusal("no".into())),
            (Some(b"no".to_vec()), None)
        );
    }

    #[test]
    fn a_key_that_there_is_not_is_an_error() {
        let error = form_of("frame", "dpslb::Reply").unwrap_err().to_string();
        assert_eq!(error, "`pkg::msg::Ping` has no field `frame`; it has robot, number");
    }
}
