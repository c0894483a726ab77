use std::collections::BTreeSet;
use std::fmt;
use std::sync::Arc;

use crate::{Entry, Key, LeaseId, Revision};

/// What must hold of a key for a transaction to be done.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Expect {
    /// The key is not there.
    Absent,
    /// The key is there.
    Present,
    /// Its value was last put at this revision: nobody has changed it since.
    Modified(Revision),
    /// The key was made at this revision: it was not deleted since, whatever its value is now.
    Created(Revision),
}

impl Expect {
    /// Whether `found` is as expected.
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
    /// The key gets this value, and goes when the lease does.
    Put {
        /// Which.
        key: Key,
        /// Its new value.
        value: Arc<[u8]>,
        /// With which it goes; one of this store.
        lease: Option<LeaseId>,
    },
    /// The key goes. That it is not there is no error.
    Delete {
        /// Which.
        key: Key,
    },
}

impl Write {
    /// Which key.
    pub fn key(&self) -> &Key {
        match self {
            Write::Put { key, .. } | Write::Delete { key } => key,
        }
    }
}

/// Conditions and writes: if all conditions hold, all writes are done at one revision, else none.
///
/// Small on purpose: at most [`Transaction::OPERATIONS_MAX`] conditions and writes together, one write for
/// each key, values of at most [`Transaction::VALUE_BYTES_MAX`].
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Transaction {
    conditions: Vec<(Key, Expect)>,
    writes: Vec<Write>,
}

/// Why a transaction cannot be done by any store.
#[derive(Debug, thiserror::Error, PartialEq, Eq)]
pub enum TransactionError {
    /// Too much of it.
    #[error("a transaction of {operations} conditions and writes is too large; at most {max}: divide it",
        max = Transaction::OPERATIONS_MAX)]
    TooLarge {
        /// How many it has.
        operations: usize,
    },
    /// Which of the two should win?
    #[error("the transaction writes {key} twice; one write for each key")]
    WrittenTwice {
        /// The key.
        key: Key,
    },
    /// A value too large.
    #[error("the value of {key} has {bytes} bytes; at most {max}", max = Transaction::VALUE_BYTES_MAX)]
    ValueTooLarge {
        /// Whose.
        key: Key,
        /// How large it is.
        bytes: usize,
    },
}

impl Transaction {
    /// The most conditions and writes together. etcd accepts 128 by default, of conditions and of writes each.
    pub const OPERATIONS_MAX: usize = 100;
    /// The largest value. etcd refuses requests over 1.5 MiB by default.
    pub const VALUE_BYTES_MAX: usize = 1 << 20;

    /// Without conditions and writes.
    pub fn new() -> Transaction {
        Transaction::default()
    }

    /// Do it only if this holds of `key`.
    #[must_use]
    pub fn require(mut self, key: Key, expect: Expect) -> Transaction {
        self.conditions.push((key, expect));
        self
    }

    /// Give `key` this value; it has no lease, even if it had one.
    #[must_use]
    pub fn put(mut self, key: Key, value: impl Into<Arc<[u8]>>) -> Transaction {
        self.writes.push(Write::Put { key, value: value.into(), lease: None });
        self
    }

    /// Give `key` this value for as long as the lease lives.
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

    /// Remove `key`, if it is there.
    #[must_use]
    pub fn delete(mut self, key: Key) -> Transaction {
        self.writes.push(Write::Delete { key });
        self
    }

    /// The conditions, in the order in which they were added.
    pub fn conditions(&self) -> &[(Key, Expect)] {
        &self.conditions
    }

    /// The writes, in the order in which they were added.
    pub fn writes(&self) -> &[Write] {
        &self.writes
    }

    /// Whether a store may do it.
    ///
    /// # Errors
    /// [`TransactionError`] if it breaks a limit.
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

    /// The first condition that does not hold of what `find` finds.
    pub fn refusal<'a>(&self, find: impl Fn(&Key) -> Option<&'a Entry>) -> Option<Refusal> {
        self.conditions.iter().find_map(|(key, expect)| {
            let found = find(key);
            let refused = || Refusal { key: key.clone(), expected: *expect, found: found.cloned() };
            (!expect.holds(found)).then(refused)
        })
    }
}

/// How a transaction ended that the store looked at.
#[derive(Clone, Debug, PartialEq, Eq)]
#[must_use = "a refused transaction wrote nothing"]
pub enum Committed {
    /// All conditions held, all writes are done. The revision is the one that it made, or the store's current
    /// one if nothing changed.
    Done(Revision),
    /// A condition did not hold; nothing was written.
    Refused(Refusal),
}

impl Committed {
    /// The revision, or why not.
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

/// The condition that did not hold, and what was there.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{key} is not {expected}; it {}", .found.as_ref().map_or("is absent".to_string(),
    |e| format!("was made at revision {} and put at revision {}", e.created, e.modified)))]
pub struct Refusal {
    /// Of which key.
    pub key: Key,
    /// What was asked.
    pub expected: Expect,
    /// What was there.
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
    fn conditions_hold_by_this_table() {
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
    fn a_key_is_written_once() {
        let twice = Transaction::new().put(key("a"), *b"1").delete(key("a"));
        assert_eq!(twice.check(), Err(TransactionError::WrittenTwice { key: key("a") }));
        let fine = Transaction::new().require(key("a"), Expect::Absent).put(key("a"), *b"1");
        assert_eq!(fine.check(), Ok(()));
    }

    #[test]
    fn its_size_has_limits() {
        let many =
            |n: usize| (0..n).fold(Transaction::new(), |t, i| t.delete(key(&format!("k/{i}"))));
        assert_eq!(many(Transaction::OPERATIONS_MAX).check(), Ok(()));
        assert!(matches!(many(101).check(), Err(TransactionError::TooLarge { operations: 101 })));
        let large = Transaction::new().put(key("a"), vec![0; Transaction::VALUE_BYTES_MAX + 1]);
        assert!(matches!(large.check(), Err(TransactionError::ValueTooLarge { .. })));
    }

    #[test]
    fn a_refusal_says_what_was_there() {
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
