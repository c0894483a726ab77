//! Session tickets of the listeners of a process, with keys of its own or of its cluster.
//!
//! A ticket is valid at listeners of the same scope: those with certificates for the same names,
//! and the same rules for certificates of clients. Otherwise a client could evade such a rule, or
//! be led to a listener that is not for the name of its session (Delignat-Lavaud and Bhargavan,
//! WWW 2015, "Network-based Origin Confusion Attacks against HTTPS Virtual Hosting").

use std::collections::{BTreeSet, HashMap};
use std::fmt;
use std::sync::{Arc, PoisonError, RwLock};
use std::time::SystemTime;

use aws_lc_rs::digest::{Context, SHA256};
use rustls::server::ProducesTickets;

use crate::clients::Clients;
use crate::ticket_keys::{NoRandomNumbers, ROTATION, TicketKey, TicketKeys};

/// Names of a listener's certificates, in lower case.
pub type TicketNames = BTreeSet<String>;

/// Keys of session tickets: those of this process, and those that a cluster shares.
///
/// A shared key encrypts, if there is a current one, else one of the process. So a handshake never
/// waits for the cluster.
#[derive(Clone)]
pub struct Tickets(Arc<Inner>);

struct Inner {
    own: RwLock<TicketKeys>,
    shared: RwLock<Shared>,
}

/// The keys that a cluster shares.
enum Shared {
    /// For all scopes.
    All(TicketKeys),
    /// For each scope.
    Scoped(HashMap<Scope, TicketKeys>),
}

type Scope = [u8; 32];

impl Tickets {
    /// With a key of this process.
    ///
    /// # Errors
    /// [`NoRandomNumbers`].
    pub fn new() -> Result<Tickets, NoRandomNumbers> {
        let own = TicketKeys::default().rotated(SystemTime::now())?.unwrap_or_default();
        let shared = Shared::All(TicketKeys::default());
        Ok(Tickets(Arc::new(Inner { own: RwLock::new(own), shared: RwLock::new(shared) })))
    }

    /// Uses these keys of a cluster from now on.
    pub fn share(&self, keys: TicketKeys) {
        *write(&self.0.shared) = Shared::All(keys);
    }

    /// Uses these keys of a cluster from now on, for listeners with these names. Other listeners
    /// use those that they have, for their time.
    pub fn share_for(&self, keys: impl IntoIterator<Item = (TicketNames, TicketKeys)>) {
        let scoped = keys.into_iter().map(|(names, keys)| (scope_of(&names, None), keys));
        match &mut *write(&self.0.shared) {
            Shared::Scoped(all) => all.extend(scoped),
            other => *other = Shared::Scoped(scoped.collect()),
        }
    }

    /// The cluster's keys for another machine's listeners with these names. It can derive no other
    /// ones from them. `None`: this process has none.
    pub fn for_names(&self, names: &TicketNames) -> Option<TicketKeys> {
        match &*read(&self.0.shared) {
            Shared::All(keys) if !keys.is_empty() => Some(keys.within(&scope_of(names, None))),
            Shared::All(_) | Shared::Scoped(_) => None,
        }
    }

    /// The keys of this process, for the one that replaces it.
    pub fn own(&self) -> TicketKeys {
        read(&self.0.own).clone()
    }

    /// Takes over the keys of the process that this one replaces.
    pub fn inherit(&self, keys: TicketKeys) {
        *write(&self.0.own) = keys;
        self.rotate(SystemTime::now());
    }

    /// Rotates the keys of this process, and deletes expired ones of the cluster.
    pub fn rotate(&self, now: SystemTime) {
        match &mut *write(&self.0.shared) {
            Shared::All(keys) => keys.expire(now),
            Shared::Scoped(all) => all.retain(|_, keys| {
                keys.expire(now);
                !keys.is_empty()
            }),
        }
        let mut own = write(&self.0.own);
        // Without random numbers there are no tickets, and handshakes are full.
        own.expire(now);
        if let Ok(Some(new)) = own.rotated(now) {
            *own = new;
        }
    }

    fn shared_key(&self, scope: &Scope, now: SystemTime) -> Option<TicketKey> {
        match &*read(&self.0.shared) {
            Shared::All(keys) => Some(keys.current(now)?.within(scope)),
            Shared::Scoped(all) => all.get(scope)?.current(now).cloned(),
        }
    }

    fn own_key(&self, scope: &Scope, now: SystemTime) -> Option<TicketKey> {
        let current = || Some(read(&self.0.own).current(now)?.within(scope));
        current().or_else(|| {
            self.rotate(now);
            current()
        })
    }

    fn open_shared(&self, scope: &Scope, now: SystemTime, ticket: &[u8]) -> Option<Vec<u8>> {
        match &*read(&self.0.shared) {
            Shared::All(keys) => keys.open(Some(scope), now, ticket),
            Shared::Scoped(all) => all.get(scope)?.open(None, now, ticket),
        }
    }
}

/// A panic elsewhere leaves the keys whole.
fn read<T>(keys: &RwLock<T>) -> std::sync::RwLockReadGuard<'_, T> {
    keys.read().unwrap_or_else(PoisonError::into_inner)
}

fn write<T>(keys: &RwLock<T>) -> std::sync::RwLockWriteGuard<'_, T> {
    keys.write().unwrap_or_else(PoisonError::into_inner)
}

/// The listeners at which a ticket is valid.
fn scope_of(names: &TicketNames, clients: Option<&Clients>) -> Scope {
    let mut text = Context::new(&SHA256);
    let mut part = |bytes: &[u8]| {
        text.update(&(bytes.len() as u64).to_be_bytes());
        text.update(bytes);
    };
    part(&(names.len() as u64).to_be_bytes());
    names.iter().for_each(|name| part(name.as_bytes()));
    if let Some(clients) = clients {
        part(&[u8::from(clients.is_required())]);
        clients.authorities().iter().for_each(|one| part(one));
    }
    let mut scope = Scope::default();
    scope.copy_from_slice(text.finish().as_ref());
    scope
}

/// The tickets of a listener.
pub(crate) struct ListenerTickets {
    tickets: Tickets,
    scope: Scope,
    /// A ticket stands for the certificate of its client. Only this process vouches for it.
    shares: bool,
}

impl ListenerTickets {
    pub(crate) fn new(
        tickets: &Tickets,
        names: &TicketNames,
        clients: Option<&Clients>,
    ) -> Arc<ListenerTickets> {
        let (tickets, scope) = (tickets.clone(), scope_of(names, clients));
        Arc::new(ListenerTickets { tickets, scope, shares: clients.is_none() })
    }

    fn seal_at(&self, now: SystemTime, plain: &[u8]) -> Option<Vec<u8>> {
        let (tickets, scope) = (&self.tickets, &self.scope);
        let shared = self.shares.then(|| tickets.shared_key(scope, now)).flatten();
        shared.or_else(|| tickets.own_key(scope, now))?.seal(plain)
    }

    fn open_at(&self, now: SystemTime, ticket: &[u8]) -> Option<Vec<u8>> {
        let (tickets, scope) = (&self.tickets, &self.scope);
        let shared = self.shares.then(|| tickets.open_shared(scope, now, ticket)).flatten();
        shared.or_else(|| read(&tickets.0.own).open(Some(scope), now, ticket))
    }
}

impl ProducesTickets for ListenerTickets {
    fn enabled(&self) -> bool {
        true
    }

    fn lifetime(&self) -> u32 {
        ROTATION.as_secs() as u32
    }

    fn encrypt(&self, plain: &[u8]) -> Option<Vec<u8>> {
        self.seal_at(SystemTime::now(), plain)
    }

    fn decrypt(&self, ticket: &[u8]) -> Option<Vec<u8>> {
        self.open_at(SystemTime::now(), ticket)
    }
}

impl fmt::Debug for Tickets {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Tickets").finish_non_exhaustive()
    }
}

impl fmt::Debug for ListenerTickets {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ListenerTickets").finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "a panic is how a test fails")]

    use std::time::Duration;

    use super::*;

    #[test]
    fn without_the_store_process_keys_replace_expired_shared_keys() {
        let begin = SystemTime::now();
        let at = |hours: u64| begin + Duration::from_secs(hours * 3600);
        let keys = TicketKeys::default().rotated(begin).unwrap().unwrap();
        let [a, b] = [(); 2].map(|()| {
            let tickets = Tickets::new().unwrap();
            tickets.share(keys.clone());
            ListenerTickets::new(&tickets, &TicketNames::new(), None)
        });
        // No look at the store succeeds from here on.
        for (hours, is_shared) in [(0, true), (7, true), (11, true), (12, false), (100, false)] {
            for one in [&a, &b] {
                one.tickets.rotate(at(hours));
            }
            let ticket = a.seal_at(at(hours), b"x").unwrap();
            assert_eq!(a.open_at(at(hours), &ticket).unwrap(), b"x", "{hours}");
            assert_eq!(b.open_at(at(hours), &ticket).is_some(), is_shared, "{hours}");
        }
        // The keys of the process have ended too, and no task has rotated them.
        let ticket = a.seal_at(at(200), b"x").unwrap();
        assert_eq!(a.open_at(at(205), &ticket).unwrap(), b"x");
        assert_eq!(a.open_at(at(212), &ticket), None);
    }
}
