//! Controllers among each other: each finds the others in the store, and its own node reports to
//! them, too.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::{Duration, SystemTime};

use equipoise_basics::with_causes;
use equipoise_controller::NodeReport;
use equipoise_store::{Listing, Membership, Store};
use tokio::sync::watch;
use tokio::task::{AbortHandle, JoinSet};
use tokio::time::sleep;

use super::{ServerOptions, renewal};
use crate::client::json;
use crate::node::credentials::Credentials;
use crate::node::report::keep_reporting;
use crate::node::{Inner, NodeOptions};
use crate::{Authority, ControllerAddress, Name, StateFolder};

/// The group of controllers that serve the cluster; a member's value is its address.
const GROUP: &str = "cluster-api";

/// Lease of a member of the group. Until it expires, reports to a dead controller fail, which is
/// harmless.
const TIME_TO_LIVE: Duration = Duration::from_secs(5);

/// Pause after a failure of the store.
const PAUSE: Duration = Duration::from_secs(1);

/// The other controllers as recipients of reports.
pub(crate) struct Peers {
    inner: Arc<Inner>,
}

impl Peers {
    pub(crate) fn report(&self, report: &NodeReport) {
        self.inner.newest_report.send_replace(Some(json(report)));
    }

    /// The credentials of the controller's own node.
    pub(crate) fn credentials(&self) -> watch::Receiver<Option<Arc<Credentials>>> {
        self.inner.credentials.subscribe()
    }
}

/// A task that finds the other controllers.
pub(crate) fn meet(
    options: &ServerOptions,
    authority: Arc<Authority>,
    store: Arc<dyn Store>,
    port: u16,
) -> (Peers, impl Future<Output = ()> + use<>) {
    // This node does not join, because its certificates are issued here.
    let nowhere = StateFolder::new("/nonexistent");
    let node = NodeOptions::new(options.name.clone(), Vec::new(), None, nowhere);
    let inner = Arc::new(Inner::new(node));
    let peers = Peers { inner: Arc::clone(&inner) };
    let (name, lifetime) = (options.name.clone(), options.own_lifetime);
    let own = options.advertise.as_ref().and_then(|host| ControllerAddress::new(host, port).ok());
    let task = async move {
        let certified = keep_issued(Arc::clone(&inner), &name, &authority, lifetime);
        let Some(own) = own else { return certified.await };
        let (tell, found) = watch::channel(BTreeMap::new());
        tokio::join!(
            certified,
            keep_met(store, &name, &own, tell),
            keep_reporting_to(inner, found),
        );
    };
    (peers, task)
}

async fn keep_issued(inner: Arc<Inner>, name: &Name, authority: &Authority, lifetime: Duration) {
    loop {
        let pause = match issue(name, authority, lifetime) {
            Ok(credentials) => {
                let pause = renewal(&credentials.certified, lifetime);
                inner.credentials.send_replace(Some(Arc::new(credentials)));
                pause
            }
            Err(error) => {
                let error = with_causes(&*error);
                tracing::error!(error, "cannot create a node certificate for this controller");
                Duration::from_secs(60)
            }
        };
        sleep(pause.max(PAUSE)).await;
    }
}

fn issue(
    name: &Name,
    authority: &Authority,
    lifetime: Duration,
) -> Result<Credentials, Box<dyn std::error::Error>> {
    let issued = authority.issue_node(name, SystemTime::now(), lifetime)?;
    let of_all = authority.certificate().clone();
    Ok(Credentials::new(issued.chain, of_all, issued.key, issued.certified)?)
}

/// Stays in the group, and publishes its other members.
async fn keep_met(
    store: Arc<dyn Store>,
    name: &Name,
    own: &ControllerAddress,
    tell: watch::Sender<BTreeMap<String, ControllerAddress>>,
) {
    loop {
        if let Err(error) = meet_once(&store, name, own, &tell).await {
            let error = with_causes(&*error);
            tracing::debug!(error, "cannot look for other controllers; keeping the known ones");
        }
        sleep(PAUSE).await;
    }
}

async fn meet_once(
    store: &Arc<dyn Store>,
    name: &Name,
    own: &ControllerAddress,
    tell: &watch::Sender<BTreeMap<String, ControllerAddress>>,
) -> Result<(), Box<dyn std::error::Error + Send + Sync>> {
    let group = Membership::new(Arc::clone(store), GROUP, TIME_TO_LIVE)?;
    // Read before joining, because joining waits for the lease of an earlier process.
    tell_others(&group.members().await?, name, tell);
    let _member = group.join(name.as_str(), own.to_string().as_bytes().into()).await?;
    loop {
        let listing = group.members().await?;
        tell_others(&listing, name, tell);
        // Any event leads to a new listing.
        group.watch(listing.revision).await?.next().await?;
    }
}

fn tell_others(
    listing: &Listing,
    own: &Name,
    tell: &watch::Sender<BTreeMap<String, ControllerAddress>>,
) {
    let mut others = BTreeMap::new();
    for entry in listing.entries.iter().filter(|entry| entry.key.name() != own.as_str()) {
        let address = std::str::from_utf8(&entry.value).ok().and_then(|text| text.parse().ok());
        match address {
            Some(address) => drop(others.insert(entry.key.name().to_string(), address)),
            None => tracing::warn!(key = %entry.key, "cannot decode a controller's address"),
        }
    }
    tell.send_if_modified(|told| {
        let differs = *told != others;
        if differs {
            *told = others;
        }
        differs
    });
}

/// Runs a reporter for each of the others.
async fn keep_reporting_to(
    inner: Arc<Inner>,
    mut found: watch::Receiver<BTreeMap<String, ControllerAddress>>,
) {
    let mut tasks = JoinSet::new();
    let mut running: BTreeMap<ControllerAddress, AbortHandle> = BTreeMap::new();
    found.mark_changed();
    while found.changed().await.is_ok() {
        let wanted: Vec<ControllerAddress> = found.borrow_and_update().values().cloned().collect();
        running.retain(|address, task| {
            let stays = wanted.contains(address);
            if !stays {
                task.abort();
            }
            stays
        });
        for address in wanted {
            running.entry(address.clone()).or_insert_with(|| {
                tracing::info!(controller = %address, "reporting to another controller");
                tasks.spawn(keep_reporting(Arc::clone(&inner), address))
            });
        }
    }
}
