//! A member of a cluster: gives the answers in the store, and takes the certificates.

use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;

use equipoise_store::{Change, Entry, HeldLease, Key, Revision, SharedError, Watch, WatchEvent};
use equipoise_tls::{Certificate, ChallengeAnswer, Challenges};
use tokio::sync::watch;

use crate::answer::Answer;
use crate::desk::{Given, NodeDesk};
use crate::names::{Names, Stage, is_for};
use crate::options::{Acme, TextRecords};
use crate::shared::{LEASE, Record, Shared};
use crate::thread::on_thread;

/// The parts of the process that a member changes.
pub(crate) struct Effects<'p> {
    pub(crate) challenges: &'p Challenges,
    pub(crate) text_records: &'p dyn TextRecords,
    pub(crate) names: &'p Names,
    pub(crate) issued: &'p watch::Sender<u64>,
}

/// A member that is known to the one that orders.
pub(crate) struct Member<'m> {
    options: &'m Acme,
    shared: &'m Shared,
    effects: Effects<'m>,
    desk: &'m NodeDesk,
    entries: BTreeMap<Key, Entry>,
    watch: Watch,
    presence: HeldLease,
    given: HashMap<Key, (Revision, Option<ChallengeAnswer>)>,
    /// The revision of each record that was taken.
    learnt: HashMap<Key, Revision>,
    /// The newest certificate of each name.
    taken: HashMap<String, String>,
    /// Newest revision of an answer.
    newest: u64,
    confirmed: Option<u64>,
}

impl<'m> Member<'m> {
    /// Takes what the store has, and confirms it.
    pub(crate) async fn join(
        options: &'m Acme,
        shared: &'m Shared,
        effects: Effects<'m>,
        desk: &'m NodeDesk,
    ) -> Result<Member<'m>, SharedError> {
        let folder = shared.all()?;
        let presence = HeldLease::take(Arc::clone(shared.store()), LEASE).await?;
        let listing = shared.store().list(&folder).await?;
        let watch = shared.store().watch(folder, listing.revision).await?;
        let entries = listing.entries.into_iter().map(|it| (it.key.clone(), it)).collect();
        let (given, learnt, taken) = (HashMap::new(), HashMap::new(), HashMap::new());
        let mut member = Member {
            options,
            shared,
            effects,
            desk,
            entries,
            watch,
            presence,
            given,
            learnt,
            taken,
            newest: 0,
            confirmed: None,
        };
        member.apply().await?;
        Ok(member)
    }

    /// Follows the store, until it fails.
    pub(crate) async fn follow(mut self) -> Result<(), SharedError> {
        let mut uses = self.desk.uses();
        loop {
            let event = tokio::select! {
                event = self.watch.next() => event?,
                Ok(()) = uses.changed() => {
                    self.confirm().await?;
                    continue;
                }
                // Without its lease the member that orders does not wait for this one.
                () = self.presence.lost() => return Ok(()),
            };
            match event {
                WatchEvent::Update(update) => update.changes.into_iter().for_each(|it| match it {
                    Change::Put(entry) => drop(self.entries.insert(entry.key.clone(), entry)),
                    Change::Deleted(key) => drop(self.entries.remove(&key)),
                }),
                WatchEvent::Resync(listing) => {
                    let all = listing.entries.into_iter();
                    self.entries = all.map(|it| (it.key.clone(), it)).collect();
                }
            }
            self.apply().await?;
        }
    }

    async fn apply(&mut self) -> Result<(), SharedError> {
        self.give_answers();
        self.desk.give(self.for_nodes());
        self.effects.text_records.publish().await;
        self.confirm().await?;
        self.take_records().await;
        Ok(())
    }

    /// Confirms the answers, once the nodes that ask here give them, too.
    async fn confirm(&mut self) -> Result<(), SharedError> {
        let is_newer = self.confirmed.is_none_or(|confirmed| confirmed < self.newest);
        if is_newer && self.desk.is_used() {
            self.shared.confirm(self.newest, self.presence.id()).await?;
            self.confirmed = Some(self.newest);
        }
        Ok(())
    }

    /// The content of answers to nodes.
    fn for_nodes(&self) -> Given {
        let entry = |kind, name: &str| {
            let key = self.shared.key(kind, name).ok()?;
            self.entries.get(&key)
        };
        let names = self.options.for_nodes.iter().map(|name| {
            let record = entry("name", name).and_then(|it| self.shared.decoded("name", it));
            (name.clone(), record.unwrap_or_default())
        });
        let answers = self.options.for_nodes.iter().filter_map(|name| {
            entry("answer", name).and_then(|it| self.shared.decoded("answer", it))
        });
        Given { names: names.collect(), answers: answers.collect() }
    }

    /// Gives the answers that the store has, and no others.
    fn give_answers(&mut self) {
        let (entries, given) = (&self.entries, &mut self.given);
        given.retain(|key, (at, _)| entries.get(key).is_some_and(|it| it.modified == *at));
        for entry in entries.values() {
            if given.contains_key(&entry.key) {
                continue;
            }
            let Some(answer) = self.shared.decoded::<Answer>("answer", entry) else { continue };
            let guard = answer.give(self.effects.challenges);
            let guard = guard.map_err(|error| tracing::error!("no answer to a challenge: {error}"));
            given.insert(entry.key.clone(), (entry.modified, guard.ok()));
            self.newest = self.newest.max(entry.modified.0);
        }
    }

    /// Takes states and certificates of this member's names.
    async fn take_records(&mut self) {
        for name in &self.options.names {
            let name = &name.name;
            let key = self.shared.key("name", name).ok();
            let Some(entry) = key.and_then(|key| self.entries.get(&key)) else { continue };
            if self.learnt.insert(entry.key.clone(), entry.modified) == Some(entry.modified) {
                continue;
            }
            let Some(record) = self.shared.decoded::<Record>("name", entry) else { continue };
            learn(self.effects.names, self.options, name, &record);
            let Some(pem) = record.pem.filter(|pem| self.taken.get(name) != Some(pem)) else {
                continue;
            };
            match take(self.options, name, &pem).await {
                Ok(true) => self.effects.issued.send_modify(|count| *count += 1),
                Ok(false) => {}
                Err(error) => {
                    tracing::error!(
                        name,
                        "the certificate in the cluster's store is not used: {error}"
                    );
                }
            }
            self.taken.insert(name.clone(), pem);
        }
        self.effects.names.changed.notify_one();
    }
}

/// Writes a certificate into the folder; `false`: it was there.
pub(crate) async fn take(options: &Acme, name: &str, pem: &str) -> Result<bool, String> {
    let certificate = Certificate::from_pem(pem, pem).map_err(|error| error.to_string())?;
    if !is_for(&certificate, name) {
        return Err("it is for another name".into());
    }
    let folder = options.folder.clone();
    let (name, pem) = (name.to_string(), pem.to_string());
    let write = move || match folder.has(&name, &pem) {
        true => Ok(false),
        false => folder.save(&name, &pem).map(|()| true),
    };
    on_thread(write).await.flatten().map_err(|error| error.to_string())
}

/// Takes over the state of a name.
pub(crate) fn learn(names: &Names, options: &Acme, name: &str, record: &Record) {
    names.state(&options.folder, name, |state| {
        let stage = state.status.stage;
        state.clone_from(&record.state);
        if stage == Stage::Ordering {
            state.status.stage = stage;
        }
    });
}
