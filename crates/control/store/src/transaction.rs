use std::collections::BTreeSet;
use std::fmt;
use std::sync::Arc;

use crate::{Entry, Key, LeaseId, Revision};

/// Condition on a key.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Expect {
    /// The key does not exist.
    Absent,
    /// The key exists.
    Present,
    /// The last put of the key was at this revision: the value has not changed since.
    Modified(Revision),
    /// The key was created at this revision and has not been deleted since; its value may have
    /// changed.
    Created(Revision),
}

impl Expect {
    /// Whether the condition holds for `found`.
    pub fn holds(self, found: Option<&Entry>) -> bool {
        match self {
            Expect::Absent => found.is_none(),
            Expect::Present => found.is_some(),
            Expect::Modified(revision) => found.is_some_and(|e| e.modified == revision),
            Expect::Created(revision) => found.is_some_and(|e| e.created == revision),
        }
    }
}

impl fmt::Display for Expect {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Expect::Absent => f.write_str("absent"),
            Expect::Present => f.write_str("present"),
            Expect::Modified(revision) => write!(f, "unchanged since revision {revision}"),
            Expect::Created(revision) => write!(f, "the one made at revision {revision}"),
        }
    }
}

/// One write of a transaction.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Write {
    /// Puts a value. The key is deleted with the lease.
    Put {
        /// Key to put.
        key: Key,
        /// New value.
        value: Arc<[u8]>,
        /// Lease of the entry, from the same store.
        lease: Option<LeaseId>,
    },
    /// Deletes the key. A missing key is not an error.
    Delete {
        /// Key to delete.
        key: Key,
    },
}

impl Write {
    /// Returns the key.
    pub fn key(&self) -> &Key {
        match self {
            Write::Put { key, .. } | Write::Delete { key } => key,
        }
    }
}

/// Conditions and writes: if all conditions hold, all writes are done at one revision; otherwise
/// none.
///
/// Transactions are small by design: at most [`Transaction::OPERATIONS_MAX`] conditions and writes
/// together, one write per key, and values of at most [`Transaction::VALUE_BYTES_MAX`].
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Transaction {
    conditions: Vec<(Key, Expect)>,
    writes: Vec<Write>,
}

/// Reason why no store can perform a transaction.
#[derive(Debug, thiserror::Error, PartialEq, Eq)]
pub enum TransactionError {
    /// The transaction has too many operations.
    #[error("a transaction of {operations} conditions and writes is too large; at most {max}: divide it",
        max = Transaction::OPERATIONS_MAX)]
    TooLarge {
        /// Number of conditions and writes.
        operations: usize,
    },
    /// The transaction writes a key twice.
    #[error("the transaction writes {key} twice; one write for each key")]
    WrittenTwice {
        /// The key.
        key: Key,
    },
    /// A value is too large.
    #[error("the value of {key} has {bytes} bytes; at most {max}", max = Transaction::VALUE_BYTES_MAX)]
    ValueTooLarge {
        /// Key of the value.
        key: Key,
        /// Size of the value, bytes.
        bytes: usize,
    },
}

impl Transaction {
    /// Maximum number of conditions and writes together. etcd's default limit is 128 conditions and
    /// 128 writes.
    pub const OPERATIONS_MAX: usize = 100;
    /// Maximum size of a value, bytes. etcd's default limit of a request is 1.5 MiB.
    pub const VALUE_BYTES_MAX: usize = 1 << 20;

    /// Makes an empty transaction.
    pub fn new() -> Transaction {
        Transaction::default()
    }

    /// Adds a condition on `key`.
    #[must_use]
    pub fn require(mut self, key: Key, expect: Expect) -> Transaction {
        self.conditions.push((key, expect));
        self
    }

    /// Adds a put without a lease; an earlier lease of the key no longer applies.
    #[must_use]
    pub fn put(mut self, key: Key, value: impl Into<Arc<[u8]>>) -> Transaction {
        self.writes.push(Write::Put { key, value: value.into(), lease: None });
        self
    }

    /// Adds a put under a lease.
    #[must_use]
    pub fn put_leased(
        mut self,
        key: Key,
        value: impl Into<Arc<[u8]>>,
        lease: LeaseId,
    ) -> Transaction {
        self.writes.push(Write::Put { key, value: value.into(), lease: Some(lease) });
        self
    }

    /// Adds the deletion of `key`, if it exists.
    #[must_use]
    pub fn delete(mut self, key: Key) -> Transaction {
        self.writes.push(Write::Delete { key });
        self
    }

    /// Returns the conditions, in the order of their addition.
    pub fn conditions(&self) -> &[(Key, Expect)] {
        &self.conditions
    }

    /// Returns the writes, in the order of their addition.
    pub fn writes(&self) -> &[Write] {
        &self.writes
    }

    /// Checks the transaction's limits.
    ///
    /// # Errors
    /// [`TransactionError`] if it violates a limit.
    pub fn check(&self) -> Result<(), TransactionError> {
        let operations = self.conditions.len() + self.writes.len();
        if operations > Transaction::OPERATIONS_MAX {
            return Err(TransactionError::TooLarge { operations });
        }
        let mut written = BTreeSet::new();
        for write in &self.writes {
            let key = write.key();
            if !written.insert(key) {
                return Err(TransactionError::WrittenTwice { key: key.clone() });
            }
            match write {
                Write::Put { value, .. } if value.len() > Transaction::VALUE_BYTES_MAX => {
                    let (key, bytes) = (key.clone(), value.len());
                    return Err(TransactionError::ValueTooLarge { key, bytes });
                }
                _ => {}
            }
        }
        Ok(())
    }

    /// Returns the first condition that does not hold for the entries of `find`.
    pub fn refusal<'a>(&self, find: impl Fn(&Key) -> Option<&'a Entry>) -> Option<Refusal> {
        self.conditions.iter().find_map(|(key, expect)| {
            let found = find(key);
            let refused = || Refusal { key: key.clone(), expected: *expect, found: found.cloned() };
            (!expect.holds(found)).then(refused)
        })
    }
}

/// Result of a transaction that the store evaluated.
#[derive(Clone, Debug, PartialEq, Eq)]
#[must_use = "a refused transaction wrote nothing"]
pub enum Committed {
    /// All conditions held, and all writes are done. Contains the new revision, or the store's
    /// current one if nothing changed.
    Done(Revision),
    /// A condition did not hold; nothing was written.
    Refused(Refusal),
}

impl Committed {
    /// Converts to a `Result`.
    ///
    /// # Errors
    /// The [`Refusal`].
    pub fn done(self) -> Result<Revision, Refusal> {
        match self {
            Committed::Done(revision) => Ok(revision),
            Committed::Refused(refusal) => Err(refusal),
        }
    }
}

/// A condition that did not hold, and the entry found.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{key} is not {expected}; it {}", .found.as_ref().map_or("is absent".to_string(),
    |e| format!("was made at revision {} and put at revision {}", e.created, e.modified)))]
pub struct Refusal {
    /// Key of the condition.
    pub key: Key,
    /// The condition.
    pub expected: Expect,
    /// The entry found.
    pub found: Option<Entry>,
}

#[cfg(test)]
mod tests {
    use super::*;

    fn key(text: &str) -> Key {
        Key::new(text).unwrap()
    }

    fn entry(created: u64, modified: u64) -> Entry {
        let (created, modified) = (Revision(created), Revision(modified));
        Entry { key: key("k"), value: b"v".as_slice().into(), created, modified, lease: None }
    }

    #[test]
    fn each_expectation_holds_only_for_a_matching_entry() {
        let there = entry(3, 5);
        for (expect, absent, present) in [
            (Expect::Absent, true, false),
            (Expect::Present, false, true),
            (Expect::Modified(Revision(5)), false, true),
            (Expect::Modified(Revision(3)), false, false),
            (Expect::Created(Revision(3)), false, true),
            (Expect::Created(Revision(5)), false, false),
        ] {
            assert_eq!(expect.holds(None), absent, "{expect:?} of nothing");
            assert_eq!(expect.holds(Some(&there)), present, "{expect:?} of {there:?}");
        }
    }

    #[test]
    fn a_transaction_that_writes_a_key_twice_is_refused() {
        let twice = Transaction::new().put(key("a"), *b"1").delete(key("a"));
        assert_eq!(twice.check(), Err(TransactionError::WrittenTwice { key: key("a") }));
        let fine = Transaction::new().require(key("a"), Expect::Absent).put(key("a"), *b"1");
        assert_eq!(fine.check(), Ok(()));
    }

    #[test]
    fn the_size_of_a_transaction_is_limited() {
        let many =
            |n: usize| (0..n).fold(Transaction::new(), |t, i| t.delete(key(&format!("k/{i}"))));
        assert_eq!(many(Transaction::OPERATIONS_MAX).check(), Ok(()));
        assert!(matches!(many(101).check(), Err(TransactionError::TooLarge { operations: 101 })));
        let large = Transaction::new().put(key("a"), vec![0; Transaction::VALUE_BYTES_MAX + 1]);
        assert!(matches!(large.check(), Err(TransactionError::ValueTooLarge { .. })));
    }

    #[test]
    fn a_refusal_reports_the_found_entry() {
        let asked = Transaction::new().require(key("k"), Expect::Modified(Revision(4)));
        let there = entry(3, 5);
        let refusal = asked.refusal(|_| Some(&there)).unwrap();
        let text = refusal.to_string();
        assert!(
            text.contains("unchanged since revision 4") && text.contains("put at revision 5"),
            "{text}"
        );
        assert_eq!(asked.refusal(|_| None).unwrap().found, None);
    }
}
