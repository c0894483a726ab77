//! The task that orders and renews certificates, one after the other.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::{Duration, SystemTime};

use equipoise_basics::OncePerMinute;
use equipoise_store::{SealedStore, SharedError, Transaction};
use equipoise_tls::Challenges;
use tokio::sync::watch;

use crate::attempt::Connection;
use crate::desk::NodeDesk;
use crate::folder::AcmeFolder;
use crate::home::Home;
use crate::member::{Effects, Member, learn};
use crate::names::{Names, OrderState, Stage, is_for};
use crate::node::{self, Controllers};
use crate::options::{Acme, OrderedName, TextRecords};
use crate::pace::renewal_of;
use crate::shared::Shared;
use crate::task::Task;
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
    /// Starts the task, which has nothing to do before [`Orders::follow`].
    pub fn start(
        challenges: Challenges,
        text_records: Arc<dyn TextRecords>,
        sharing: CertificateSharing,
    ) -> Orders {
        let (options, receiver) = watch::channel(None);
        let (sender, issued) = watch::channel(0);
        let names = Arc::<Names>::default();
        let task = Task { challenges, text_records, names: Arc::clone(&names), issued: sender };
        tokio::spawn(task.run(receiver, sharing));
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

/// A member of a cluster, which shares account and certificates with the others.
#[derive(Debug)]
pub struct ClusterMember {
    /// Its name, as part of a key.
    pub name: Arc<str>,
    /// The store, while it is open.
    pub store: watch::Receiver<OpenedStore>,
    /// Answers nodes that are not controllers.
    pub desk: Arc<NodeDesk>,
}

/// The part of this process in a cluster.
pub enum CertificateSharing {
    /// It is in none.
    Alone,
    /// A controller.
    Member(ClusterMember),
    /// A node that may ask the controllers.
    Node(Box<dyn Controllers>),
}

impl Task {
    async fn run(
        self,
        mut options: watch::Receiver<Option<Acme>>,
        mut sharing: CertificateSharing,
    ) {
        loop {
            let now = options.borrow_and_update().clone();
            let mut stores = match &sharing {
                CertificateSharing::Member(member) => Some(member.store.clone()),
                CertificateSharing::Alone | CertificateSharing::Node(_) => None,
            };
            let opened = stores.as_mut().and_then(|stores| stores.borrow_and_update().clone());
            tokio::select! {
                () = self.serve(now.as_ref(), &mut sharing, opened) => {}
                changed = options.changed() => match changed {
                    Ok(()) => {}
                    Err(_) => return,
                },
                () = change(stores.as_mut()) => {}
            }
        }
    }

    /// Orders and renews, or takes what controllers have; never ends.
    async fn serve(
        &self,
        options: Option<&Acme>,
        sharing: &mut CertificateSharing,
        opened: OpenedStore,
    ) {
        let Some(options) = options else {
            return std::future::pending().await;
        };
        for name in &options.names {
            self.look(&options.folder, &name.name).await;
        }
        match (sharing, opened) {
            (CertificateSharing::Node(controllers), _) if options.from_controllers => {
                node::follow(options, &self.effects(), &mut **controllers).await;
            }
            (CertificateSharing::Alone | CertificateSharing::Node(_), _) => {
                self.serve_alone(options).await
            }
            // The last certificates stay in use.
            (CertificateSharing::Member(_), None) => std::future::pending().await,
            (CertificateSharing::Member(member), Some(store)) => {
                let shared = Shared::new(store, Arc::clone(&member.name), &options.folder);
                let mut lines = OncePerMinute::default();
                loop {
                    if let Err(error) = self.serve_in_cluster(options, &shared, &member.desk).await
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

    fn effects(&self) -> Effects<'_> {
        let Task { challenges, text_records, names, issued } = self;
        Effects { challenges, text_records: &**text_records, names, issued }
    }

    async fn serve_alone(&self, options: &Acme) {
        let mut connection = Connection::default();
        let Task { challenges, text_records, .. } = self;
        let home = Home::Folder { folder: &options.folder, challenges, names: &**text_records };
        loop {
            self.order_due(options, &mut connection, &home).await;
            self.wait_until_due(options).await;
        }
    }

    /// Follows the store as a member, and orders while no other member does.
    async fn serve_in_cluster(
        &self,
        options: &Acme,
        shared: &Shared,
        desk: &NodeDesk,
    ) -> Result<(), SharedError> {
        let member = Member::join(options, shared, self.effects(), desk).await?;
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
            // Another member may have ordered it during the wait.
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
