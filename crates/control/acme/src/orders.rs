//! The task that orders and renews certificates, one after the other.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::{Duration, SystemTime};

use equipoise_basics::{OncePerMinute, rough};
use equipoise_store::{SealedStore, Transaction};
use equipoise_tls::{Certificate, Challenges};
use instant_acme::Account;
use tokio::sync::watch;

use crate::account;
use crate::client::Client;
use crate::folder::AcmeFolder;
use crate::home::Home;
use crate::member::{Effects, Member, learn};
use crate::names::{NameState, Names, OrderState, Stage};
use crate::options::{Acme, OrderedName};
use crate::order::{OrderError, order};
use crate::pace::{Fault, next_try, renewal};
use crate::shared::{Shared, SharedError};
use crate::thread::on_thread;

/// Longest sleep between looks at the clock, which may be set.
const LOOK: Duration = Duration::from_secs(60);

/// Wait after the cluster's store could not be used.
const STORE_AGAIN: Duration = Duration::from_secs(2);

/// The handle of the task. Dropping it ends the task.
#[derive(Debug)]
pub struct Orders {
    options: watch::Sender<Option<Acme>>,
    issued: watch::Receiver<u64>,
    names: Arc<Names>,
}

impl Orders {
    /// Starts the task, which has nothing to do before [`Orders::follow`]. `cluster`: the members
    /// of a cluster share account and certificates.
    pub fn start(challenges: Challenges, cluster: Option<ClusterMember>) -> Orders {
        let (options, receiver) = watch::channel(None);
        let (sender, issued) = watch::channel(0);
        let names = Arc::<Names>::default();
        let task = Task { challenges, names: Arc::clone(&names), issued: sender };
        tokio::spawn(task.run(receiver, cluster));
        Orders { options, issued, names }
    }

    /// Orders for these names from now on; `None`: for none. An order under way is abandoned if the
    /// options differ.
    pub fn follow(&self, options: Option<Acme>) {
        self.options.send_if_modified(|now| {
            let differs = *now != options;
            *now = options;
            differs
        });
    }

    /// Counts the certificates that were written.
    pub fn issued(&self) -> watch::Receiver<u64> {
        self.issued.clone()
    }

    /// The state of each name that was ever ordered.
    pub fn status(&self) -> BTreeMap<String, OrderState> {
        self.names.all()
    }
}

/// The store of a cluster, while it is open.
type OpenedStore = Option<Arc<SealedStore>>;

/// A member of a cluster whose members share account and certificates.
#[derive(Debug)]
pub struct ClusterMember {
    /// Its name, as part of a key.
    pub name: Arc<str>,
    /// The store, while it is open.
    pub store: watch::Receiver<OpenedStore>,
}

struct Task {
    challenges: Challenges,
    names: Arc<Names>,
    issued: watch::Sender<u64>,
}

impl Task {
    async fn run(
        self,
        mut options: watch::Receiver<Option<Acme>>,
        mut cluster: Option<ClusterMember>,
    ) {
        loop {
            let now = options.borrow_and_update().clone();
            let opened = cluster.as_mut().map(|cluster| cluster.store.borrow_and_update().clone());
            let member = cluster.as_ref().map(|cluster| Arc::clone(&cluster.name));
            let stores = cluster.as_mut().map(|cluster| &mut cluster.store);
            tokio::select! {
                () = self.serve(now.as_ref(), member.zip(opened)) => {}
                changed = options.changed() => match changed {
                    Ok(()) => {}
                    Err(_) => return,
                },
                () = change(stores) => {}
            }
        }
    }

    /// Orders and renews; never ends.
    async fn serve(&self, options: Option<&Acme>, cluster: Option<(Arc<str>, OpenedStore)>) {
        let Some(options) = options.filter(|it| !it.names.is_empty()) else {
            return std::future::pending().await;
        };
        for name in &options.names {
            self.look(&options.folder, &name.name).await;
        }
        match cluster {
            None => self.serve_alone(options).await,
            // The last certificates stay in use.
            Some((_, None)) => std::future::pending().await,
            Some((member, Some(store))) => {
                let shared = Shared::new(store, member, &options.folder);
                let mut lines = OncePerMinute::default();
                loop {
                    if let Err(error) = self.serve_in_cluster(options, &shared).await
                        && lines.may_write()
                    {
                        tracing::warn!(
                            "{error}; the last certificates stay in use, and none is ordered"
                        );
                    }
                    tokio::time::sleep(STORE_AGAIN).await;
                }
            }
        }
    }

    async fn serve_alone(&self, options: &Acme) {
        let mut connection = Connection::default();
        let home = Home::Folder { folder: &options.folder, challenges: &self.challenges };
        loop {
            self.order_due(options, &mut connection, &home).await;
            self.wait_until_due(options).await;
        }
    }

    /// Follows the store as a member, and orders while no other member does.
    async fn serve_in_cluster(&self, options: &Acme, shared: &Shared) -> Result<(), SharedError> {
        let Task { challenges, names, issued } = self;
        let effects = Effects { challenges, names, issued };
        let member = Member::join(options, shared, effects).await?;
        tokio::select! {
            ended = member.follow() => ended,
            ended = self.order_in_cluster(options, shared) => ended,
        }
    }

    async fn order_in_cluster(&self, options: &Acme, shared: &Shared) -> Result<(), SharedError> {
        loop {
            self.wait_until_due(options).await;
            let mut leadership = shared.election()?.campaign(&shared.member).await?;
            let fence = leadership.fence(Transaction::new());
            // Another member may have ordered it meanwhile.
            for name in &options.names {
                if let Some(record) = shared.record(&name.name).await? {
                    learn(&self.names, options, &name.name, &record);
                }
            }
            let home = Home::Cluster { shared, fence };
            let mut connection = Connection::default();
            tokio::select! {
                () = self.order_due(options, &mut connection, &home) => {}
                () = leadership.lost() => {
                    tracing::warn!("another member of the cluster may order certificates now");
                }
            }
            // If the store does not answer, the lease ends.
            drop(leadership.resign().await);
        }
    }

    /// Waits until an attempt is due.
    async fn wait_until_due(&self, options: &Acme) {
        loop {
            let next = options.names.iter().map(|name| self.due(options, name)).min();
            let Some(next) = next else { return std::future::pending().await };
            match next.duration_since(SystemTime::now()) {
                Ok(wait) if !wait.is_zero() => tokio::select! {
                    () = tokio::time::sleep(wait.min(LOOK)) => {}
                    () = self.names.changed.notified() => {}
                },
                _ => return,
            }
        }
    }

    /// Makes all attempts that are due, one after the other.
    async fn order_due(&self, options: &Acme, connection: &mut Connection, home: &Home<'_>) {
        loop {
            let next = options.names.iter().min_by_key(|name| self.due(options, name));
            match next {
                Some(name) if self.due(options, name) <= SystemTime::now() => {
                    self.attempt(options, name, connection, home).await;
                }
                _ => return,
            }
        }
    }

    fn due(&self, options: &Acme, name: &OrderedName) -> SystemTime {
        let due = self.names.set(&options.folder, &name.name, |it| it.next_try);
        due.unwrap_or(SystemTime::UNIX_EPOCH)
    }

    /// Finds the certificate of an earlier process.
    async fn look(&self, folder: &AcmeFolder, name: &str) {
        let read = {
            let (folder, name) = (folder.clone(), name.to_string());
            on_thread(move || folder.load(&name)).await
        };
        let certificate = match read {
            Ok(Ok(certificate)) => certificate.filter(|it| is_for(it, name)),
            Ok(Err(error)) => {
                tracing::warn!("{error}; ordering another certificate");
                None
            }
            Err(error) => {
                tracing::warn!("\"{name}\": {error}; ordering another certificate");
                None
            }
        };
        self.names.set(folder, name, |status| match certificate {
            // A reload keeps the time of a renewal and the wait after a failure.
            Some(_) if status.next_try.is_some() => status.stage = Stage::Issued,
            Some(certificate) => {
                status.stage = Stage::Issued;
                status.next_try = Some(renewal_of(&certificate));
            }
            None => {
                status.stage = Stage::Waiting;
                // The wait after a failure remains.
                if status.failures == 0 {
                    status.next_try = None;
                }
            }
        });
    }

    async fn attempt(
        &self,
        options: &Acme,
        name: &OrderedName,
        connection: &mut Connection,
        home: &Home<'_>,
    ) {
        let before = self.names.set(&options.folder, &name.name, |status| {
            std::mem::replace(&mut status.stage, Stage::Ordering)
        });
        // An attempt that is abandoned leaves the stage as it was, too.
        let restored = Restored { task: self, folder: &options.folder, name: &name.name, before };
        let outcome = self.obtain(options, name, connection, home).await;
        drop(restored);
        match outcome {
            Ok((certificate, state)) => {
                self.names.state(&options.folder, &name.name, |it| *it = state);
                let left = certificate.valid_until().duration_since(SystemTime::now());
                let left = rough(left.unwrap_or_default().as_secs());
                tracing::info!(
                    event = "certificate.issued",
                    subject = name.name,
                    name = name.name,
                    "certificate issued, valid for {left}"
                );
                self.issued.send_modify(|count| *count += 1);
            }
            Err(error) => {
                // The directory may have changed.
                connection.account = None;
                let not_before = connection.client.as_ref().and_then(Client::take_not_before);
                self.failed(options, name, before, &error, not_before);
                let state = self.names.state(&options.folder, &name.name, |state| state.clone());
                if let Err(error) = home.save(&name.name, None, &state).await {
                    tracing::warn!("{error}; other members do not know of the failed attempt");
                }
            }
        }
    }

    /// Notes a failure, and plans the next attempt.
    fn failed(
        &self,
        options: &Acme,
        name: &OrderedName,
        before: Stage,
        error: &OrderError,
        not_before: Option<SystemTime>,
    ) {
        let is_unverified = matches!(error, OrderError::Unverified { .. });
        let wait = self.names.state(&options.folder, &name.name, |state| {
            state.method += usize::from(is_unverified);
            // Failures of another kind, such as an outage of the directory, lengthen no wait.
            let count = match state.kind {
                Some((kind, count)) if kind == error.fault() => count.saturating_add(1),
                _ => 1,
            };
            state.kind = Some((error.fault(), count));
            // The other way to verify it is tried soon, once.
            let fault = match is_unverified && count == 1 && name.methods.len() > 1 {
                true => Fault::Temporary,
                false => error.fault(),
            };
            let status = &mut state.status;
            status.failures = status.failures.saturating_add(1);
            let now = SystemTime::now();
            let next = next_try(now, fault, count, not_before, rand::random());
            status.last_error = Some(error.to_string());
            status.next_try = Some(next);
            next.duration_since(now).unwrap_or_default()
        });
        let what = match before {
            Stage::Issued => "the last certificate stays in use",
            Stage::Waiting | Stage::Ordering => "there is no certificate yet",
        };
        tracing::error!(
            event = "certificate.not-issued",
            subject = name.name,
            name = name.name,
            "could not obtain a certificate: {error}; {what}, and the next attempt is in {}",
            rough(wait.as_secs())
        );
    }

    /// Orders a certificate and keeps it. Returns it with the new state of its name.
    async fn obtain(
        &self,
        options: &Acme,
        name: &OrderedName,
        connection: &mut Connection,
        home: &Home<'_>,
    ) -> Result<(Certificate, NameState), OrderError> {
        let client = match connection.client.take() {
            Some(client) => client,
            None => {
                let ca = options.ca.clone();
                let client = on_thread(move || Client::new(ca.as_deref())).await;
                client.map_err(|it| it.to_string()).flatten().map_err(OrderError::Local)?
            }
        };
        connection.client = Some(client.clone());
        let account = match connection.account.take() {
            Some(account) => account,
            None => account::open(options, &client, home).await?,
        };
        let first = self.names.state(&options.folder, &name.name, |state| state.method);
        let mut methods = name.methods.clone();
        let count = methods.len().max(1);
        methods.rotate_left(first % count);
        tracing::debug!(name = name.name, ?methods, "ordering a certificate");
        let ordered = order(&account, &name.name, &methods, home).await;
        let (account, pem) = match ordered {
            Err(error) if error.is_unknown_account() => {
                // A directory for tests may have lost it.
                let account = account::create(options, &client, home).await?;
                let pem = order(&account, &name.name, &methods, home).await?;
                (account, pem)
            }
            ordered => (account, ordered?),
        };
        connection.account = Some(account);
        let certificate = Certificate::from_pem(&pem, &pem)
            .map_err(|error| OrderError::Certificate(error.to_string()))?;
        if !is_for(&certificate, &name.name) {
            return Err(OrderError::Certificate("it is for another name".into()));
        }
        let next_try = Some(renewal_of(&certificate));
        let status = OrderState { stage: Stage::Issued, next_try, ..OrderState::default() };
        let method = self.names.state(&options.folder, &name.name, |state| state.method);
        let state = NameState { status, method, kind: None };
        home.save(&name.name, Some(&pem), &state).await?;
        Ok((certificate, state))
    }
}

/// The client and the account with one directory, kept between orders.
#[derive(Default)]
struct Connection {
    client: Option<Client>,
    account: Option<Account>,
}

/// Restores the stage of a name when it is dropped.
struct Restored<'t> {
    task: &'t Task,
    folder: &'t AcmeFolder,
    name: &'t str,
    before: Stage,
}

impl Drop for Restored<'_> {
    fn drop(&mut self) {
        self.task.names.set(self.folder, self.name, |status| status.stage = self.before);
    }
}

pub(crate) fn is_for(certificate: &Certificate, name: &str) -> bool {
    certificate.names().iter().any(|it| it == name)
}

/// Ready when the store is opened or closed.
async fn change(stores: Option<&mut watch::Receiver<OpenedStore>>) {
    if let Some(stores) = stores
        && stores.changed().await.is_ok()
    {
        return;
    }
    std::future::pending().await
}

fn renewal_of(certificate: &Certificate) -> SystemTime {
    renewal(certificate.valid_from(), certificate.valid_until(), rand::random())
}
