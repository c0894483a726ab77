//! Conversions between our types and etcd's.

use std::time::Duration;

use etcd_client::{
    Compare, CompareOp, EventType, GetResponse, KeyValue, PutOptions, Txn, TxnOp, TxnOpResponse,
    TxnResponse, WatchResponse,
};

use crate::{
    Change, Committed, Entry, Expect, Key, LeaseId, Listing, Prefix, Refusal, Revision, StoreError,
    Transaction, Update, Write,
};

/// Names of our keys in etcd.
#[derive(Debug)]
pub(super) struct Names {
    namespace: Prefix,
}

pub(super) fn lease_id(number: i64) -> LeaseId {
    LeaseId(number.cast_unsigned())
}

pub(super) fn lease_number(lease: LeaseId) -> i64 {
    lease.0.cast_signed()
}

pub(super) fn seconds(seconds: i64) -> Duration {
    Duration::from_secs(seconds.max(0).unsigned_abs())
}

/// etcd counts revisions from 1 in an `i64`.
pub(super) fn revision(number: i64) -> Revision {
    Revision(number.max(0).unsigned_abs())
}

pub(super) fn revision_number(revision: Revision) -> i64 {
    i64::try_from(revision.0).unwrap_or(i64::MAX)
}

fn incomplete(what: &str) -> StoreError {
    StoreError::Other(format!("etcd's answer has no {what}").into())
}

impl Names {
    pub(super) fn new(namespace: Prefix) -> Names {
        Names { namespace }
    }

    pub(super) fn key(&self, key: &Key) -> String {
        format!("{}{key}", self.namespace)
    }

    pub(super) fn folder(&self, prefix: &Prefix) -> String {
        format!("{}{prefix}", self.namespace)
    }

    /// Returns our key for an etcd key. Ignores names that are not valid keys, which an operator
    /// may have written.
    fn ours(&self, name: &[u8]) -> Option<Key> {
        let text = std::str::from_utf8(name).ok();
        let ours = text.and_then(|text| text.strip_prefix(self.namespace.as_str()));
        let key = ours.and_then(|ours| Key::new(ours).ok());
        if key.is_none() {
            let name = String::from_utf8_lossy(name);
            tracing::warn!(%name, namespace = %self.namespace, "not a key of ours: remove it");
        }
        key
    }

    pub(super) fn entry(&self, kv: &KeyValue) -> Option<Entry> {
        Some(Entry {
            key: self.ours(kv.key())?,
            value: kv.value().into(),
            created: revision(kv.create_revision()),
            modified: revision(kv.mod_revision()),
            lease: Some(lease_id(kv.lease())).filter(|lease| lease.0 != 0),
        })
    }

    pub(super) fn listing(&self, answer: &GetResponse) -> Result<Listing, StoreError> {
        let header = answer.header().ok_or_else(|| incomplete("header"))?;
        let entries = answer.kvs().iter().filter_map(|kv| self.entry(kv)).collect();
        Ok(Listing { revision: revision(header.revision()), entries })
    }

    /// Converts conditions to compares and writes to operations. If a condition fails, the
    /// transaction reads the keys of all conditions.
    pub(super) fn transaction(&self, transaction: &Transaction) -> Txn {
        let compare = |(key, expect): &(Key, Expect)| {
            let name = self.key(key);
            match *expect {
                Expect::Absent => Compare::create_revision(name, CompareOp::Equal, 0),
                Expect::Present => Compare::create_revision(name, CompareOp::Greater, 0),
                Expect::Modified(at) => {
                    Compare::mod_revision(name, CompareOp::Equal, revision_number(at))
                }
                Expect::Created(at) => {
                    Compare::create_revision(name, CompareOp::Equal, revision_number(at))
                }
            }
        };
        let write = |write: &Write| match write {
            Write::Put { key, value, lease } => {
                let options = lease.map(|lease| PutOptions::new().with_lease(lease_number(lease)));
                TxnOp::put(self.key(key), value.to_vec(), options)
            }
            Write::Delete { key } => TxnOp::delete(self.key(key), None),
        };
        let (conditions, writes) = (transaction.conditions(), transaction.writes());
        let reads = conditions.iter().map(|(key, _)| TxnOp::get(self.key(key), None));
        Txn::new()
            .when(conditions.iter().map(compare).collect::<Vec<_>>())
            .and_then(writes.iter().map(write).collect::<Vec<_>>())
            .or_else(reads.collect::<Vec<_>>())
    }

    pub(super) fn committed(
        &self,
        transaction: &Transaction,
        answer: &TxnResponse,
    ) -> Result<Committed, StoreError> {
        let header = answer.header().ok_or_else(|| incomplete("header"))?;
        if answer.succeeded() {
            return Ok(Committed::Done(revision(header.revision())));
        }
        for ((key, expect), read) in transaction.conditions().iter().zip(answer.op_responses()) {
            let TxnOpResponse::Get(read) = read else { continue };
            let found = read.kvs().first().and_then(|kv| self.entry(kv));
            if !expect.holds(found.as_ref()) {
                let refusal = Refusal { key: key.clone(), expected: *expect, found };
                return Ok(Committed::Refused(refusal));
            }
        }
        Err(incomplete("condition that did not hold"))
    }

    /// Returns one update per revision, and the last revision. etcd never splits the events of a
    /// revision over several answers.
    pub(super) fn updates(&self, answer: &WatchResponse) -> (Vec<Update>, Option<Revision>) {
        let mut updates: Vec<Update> = Vec::new();
        let mut last = None;
        for (event, kv) in answer.events().iter().filter_map(|event| Some((event, event.kv()?))) {
            let at = revision(kv.mod_revision());
            last = Some(at);
            let change = match event.event_type() {
                EventType::Put => self.entry(kv).map(Change::Put),
                EventType::Delete => self.ours(kv.key()).map(Change::Deleted),
            };
            let Some(change) = change else { continue };
            match updates.last_mut().filter(|last| last.revision == at) {
                Some(last) => last.changes.push(change),
                None => updates.push(Update { revision: at, changes: vec![change] }),
            }
        }
        (updates, last)
    }
}
