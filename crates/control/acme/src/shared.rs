//! Account, certificates and answers in the cluster's store.
//!
//! | key below `acme/DIRECTORY` | value | written by |
//! |---|---|---|
//! | `account` | the account, sealed | the member that orders |
//! | `name/NAME` | a [`Record`], sealed | the member that orders |
//! | `answer/NAME` | an [`Answer`] that every member gives, sealed | the member that orders |
//! | `member/MEMBER` | newest revision of an answer that it gives, leased | each member |
//!
//! The member that orders holds the office `acme/DIRECTORY` of an election, for the time of its
//! orders. If it dies, its lease ends, and another member orders.

use std::sync::Arc;
use std::time::Duration;

use equipoise_store::{
    Committed, Election, Entry, Key, KeyError, LeaseId, Prefix, SealedStore, SharedError,
    Transaction,
};
use serde::{Deserialize, Serialize};

use crate::answer::Answer;
use crate::folder::AcmeFolder;
use crate::names::NameState;

/// Time after which a silent member counts as gone, and another one may order in its place.
pub(crate) const LEASE: Duration = Duration::from_secs(6);

/// Longest wait for all members to give an answer. The directory asks whichever it reaches.
const CONFIRM_WITHIN: Duration = Duration::from_secs(10);

/// Interval between looks at the confirmations.
const CONFIRM_LOOK: Duration = Duration::from_millis(50);

/// The state of a name, for all members.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Record {
    /// The last certificate, with its key.
    pub(crate) pem: Option<String>,
    pub(crate) state: NameState,
}

/// The part of the store that is about one directory.
pub(crate) struct Shared {
    store: Arc<SealedStore>,
    /// The name of this member.
    pub(crate) member: Arc<str>,
    folder: String,
}

impl Shared {
    pub(crate) fn new(store: Arc<SealedStore>, member: Arc<str>, folder: &AcmeFolder) -> Shared {
        Shared { store, member, folder: format!("acme/{}", folder.name()) }
    }

    pub(crate) fn store(&self) -> &Arc<dyn equipoise_store::Store> {
        self.store.store()
    }

    /// All keys of the directory.
    pub(crate) fn all(&self) -> Result<Prefix, KeyError> {
        Prefix::of(&self.folder)
    }

    /// The office of the member that orders.
    pub(crate) fn election(&self) -> Result<Election, KeyError> {
        Election::new(Arc::clone(self.store()), &self.folder, LEASE)
    }

    /// The key of this kind for a name.
    pub(crate) fn key(&self, kind: &str, name: &str) -> Result<Key, KeyError> {
        // A wildcard is no part of a key.
        Key::new(&format!("{}/{kind}/{}", self.folder, name.replace('*', "_")))
    }

    fn account_key(&self) -> Result<Key, KeyError> {
        Key::new(&format!("{}/account", self.folder))
    }

    /// Reads the account. `None`: there is none, or one of another cluster's authority.
    pub(crate) async fn account(&self) -> Result<Option<String>, SharedError> {
        let entry = self.store().get(&self.account_key()?).await?;
        Ok(entry.and_then(|entry| String::from_utf8(self.store.open(&entry)?).ok()))
    }

    /// Replaces the account.
    pub(crate) async fn put_account(
        &self,
        fence: Transaction,
        text: &str,
    ) -> Result<(), SharedError> {
        let key = self.account_key()?;
        let sealed = self.store.seal(&key, text.as_bytes())?;
        self.commit(fence.put(key, sealed)).await.map(|_| ())
    }

    /// Decodes an entry of this kind, if it is one.
    pub(crate) fn decoded<T: for<'d> Deserialize<'d>>(
        &self,
        kind: &str,
        entry: &Entry,
    ) -> Option<T> {
        let within = entry.key.as_str().strip_prefix(&*self.folder)?.strip_prefix('/')?;
        within.strip_prefix(kind)?.strip_prefix('/')?;
        let opened = self.store.open(entry);
        let decoded = opened.and_then(|value| serde_json::from_slice(&value).ok());
        if decoded.is_none() {
            tracing::debug!(key = %entry.key, "a value is not of this cluster's authority");
        }
        decoded
    }

    /// Reads the record of a name.
    pub(crate) async fn record(&self, name: &str) -> Result<Option<Record>, SharedError> {
        let entry = self.store().get(&self.key("name", name)?).await?;
        Ok(entry.and_then(|entry| self.decoded("name", &entry)))
    }

    /// Replaces the state of a name and, if there is a new one, its certificate; withdraws its
    /// answer.
    pub(crate) async fn save(
        &self,
        fence: Transaction,
        name: &str,
        pem: Option<&str>,
        state: &NameState,
    ) -> Result<(), SharedError> {
        let pem = match pem {
            Some(pem) => Some(pem.to_string()),
            None => self.record(name).await?.and_then(|record| record.pem),
        };
        let record = Record { pem, state: state.clone() };
        let key = self.key("name", name)?;
        let sealed = self.store.seal(&key, &encoded(&record))?;
        let change = fence.put(key, sealed).delete(self.key("answer", name)?);
        self.commit(change).await.map(|_| ())
    }

    /// Makes every member give an answer, and waits until each has confirmed it. A member that
    /// does not is no obstacle: the directory may reach another one.
    pub(crate) async fn answer(
        &self,
        fence: Transaction,
        name: &str,
        answer: &Answer,
    ) -> Result<(), SharedError> {
        let key = self.key("answer", name)?;
        let sealed = self.store.seal(&key, &encoded(answer))?;
        let revision = self.commit(fence.put(key, sealed)).await?.0;
        let members = Prefix::of(&format!("{}/member", self.folder))?;
        let end = tokio::time::Instant::now() + CONFIRM_WITHIN;
        loop {
            let listing = self.store().list(&members).await?;
            let confirmed = |entry: &&Entry| number(&entry.value) >= revision;
            let late: Vec<_> = listing.entries.iter().filter(|it| !confirmed(it)).collect();
            if late.is_empty() {
                return Ok(());
            }
            if tokio::time::Instant::now() >= end {
                let late: Vec<_> = late.iter().map(|entry| entry.key.name()).collect();
                let late = late.join(", ");
                tracing::warn!(
                    name,
                    "members that do not confirm the answer to a challenge: {late}"
                );
                return Ok(());
            }
            tokio::time::sleep(CONFIRM_LOOK).await;
        }
    }

    /// Confirms that this member gives the answers up to this revision.
    pub(crate) async fn confirm(&self, revision: u64, lease: LeaseId) -> Result<(), SharedError> {
        let key = self.key("member", &self.member)?;
        let change = Transaction::new().put_leased(key, revision.to_string().as_bytes(), lease);
        self.commit(change).await.map(|_| ())
    }

    async fn commit(&self, change: Transaction) -> Result<equipoise_store::Revision, SharedError> {
        match self.store().commit(change).await? {
            Committed::Done(revision) => Ok(revision),
            Committed::Refused(refusal) => Err(SharedError::Replaced(Box::new(refusal))),
        }
    }
}

fn encoded(value: &impl Serialize) -> Vec<u8> {
    serde_json::to_vec(value).expect("our types are plain JSON")
}

fn number(text: &[u8]) -> u64 {
    std::str::from_utf8(text).ok().and_then(|text| text.parse().ok()).unwrap_or(0)
}
