//! Controllers with a store and an intake of the test, and nodes.

use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::sync::{Arc, Mutex};
use std::time::{Duration, SystemTime};

use async_trait::async_trait;
use equipoise_cluster::{
    Asker, Authority, ClusterServer, ControllerAddress, JoinToken, Name, NodeClient, NodeOptions,
    NodeStatus, ServerOptions, StateFolder, TokenSource, TokenWish, Tokens,
};
use equipoise_controller::{ClusterView, Instructions, Intake, IntakeError, NodeReport, StoreView};
use equipoise_store::{Embedded, EmbeddedOptions, Store};
use equipoise_testkit::Folder;
use tokio::sync::watch;

/// Timeout for events that certainly happen, also on a busy machine.
const PATIENCE: Duration = Duration::from_secs(60);

pub(crate) fn name(text: &str) -> Name {
    text.parse().unwrap()
}

/// The controller behind the server, simulated.
pub(crate) struct Desk {
    pub(crate) reports: Mutex<Vec<(String, NodeReport)>>,
    pub(crate) instructions: watch::Sender<Arc<Instructions>>,
}

impl Desk {
    pub(crate) fn plan(&self, term: u64, generation: u64) {
        let period = Duration::from_secs(1);
        let new = Instructions { term, generation, period, ..Instructions::default() };
        self.instructions.send_replace(Arc::new(new));
    }

    pub(crate) fn reported(&self) -> Vec<String> {
        self.reports.lock().unwrap().iter().map(|(node, _)| node.clone()).collect()
    }
}

#[async_trait]
impl Intake for Desk {
    async fn report(&self, node: &str, report: NodeReport) -> Result<(), IntakeError> {
        report.check()?;
        self.reports.lock().unwrap().push((node.to_string(), report));
        Ok(())
    }

    fn instructions(&self) -> watch::Receiver<Arc<Instructions>> {
        self.instructions.subscribe()
    }

    fn cluster(&self) -> ClusterView {
        ClusterView {
            controller: "c".into(),
            controllers: vec!["c".into()],
            leader: None,
            term: None,
            leads: false,
            instructions: None,
            instructions_age: None,
            period: Duration::from_secs(1),
            members: Vec::new(),
            store: StoreView::default(),
            problem: None,
            rosters: BTreeMap::new(),
        }
    }
}

/// A cluster: an authority, a store, and the controllers that a test starts.
pub(crate) struct Bed {
    pub(crate) scratch: Folder,
    pub(crate) store: Arc<dyn Store>,
    authority_pem: (String, String),
}

impl Bed {
    /// The state folder of a node or controller.
    pub(crate) fn state(&self, name: &str) -> StateFolder {
        StateFolder::new(self.scratch.path(name))
    }

    pub(crate) async fn new() -> Bed {
        let scratch = Folder::new("cluster");
        let file = scratch.path("store");
        let store = Arc::new(Embedded::open(EmbeddedOptions::new(file)).await.unwrap());
        let authority = Authority::new(&name("test"), SystemTime::now()).unwrap();
        let authority_pem = (authority.certificate_pem(), authority.key_pem());
        Bed { scratch, store, authority_pem }
    }

    pub(crate) fn authority(&self) -> Authority {
        Authority::from_pem(&self.authority_pem.0, &self.authority_pem.1).unwrap()
    }

    pub(crate) async fn controller(&self) -> (ClusterServer, Arc<Desk>) {
        self.controller_with(|_| ()).await
    }

    pub(crate) async fn controller_with(
        &self,
        change: impl FnOnce(&mut ServerOptions),
    ) -> (ClusterServer, Arc<Desk>) {
        self.controller_over(Arc::clone(&self.store), change).await
    }

    /// A controller with a given access to the store.
    pub(crate) async fn controller_over(
        &self,
        store: Arc<dyn Store>,
        change: impl FnOnce(&mut ServerOptions),
    ) -> (ClusterServer, Arc<Desk>) {
        let listen: SocketAddr = ([127, 0, 0, 1], 0).into();
        let mut options = ServerOptions::new(listen, name("c"), vec!["127.0.0.1".to_string()]);
        options.keep_alive = Duration::from_millis(100);
        change(&mut options);
        let instructions = watch::Sender::new(Arc::default());
        let desk = Arc::new(Desk { reports: Mutex::default(), instructions });
        let intake = Arc::clone(&desk);
        let server = ClusterServer::start(options, self.authority(), store, intake).await.unwrap();
        (server, desk)
    }

    pub(crate) fn tokens(&self) -> Tokens {
        Tokens::new(Arc::clone(&self.store))
    }

    pub(crate) async fn token(&self, single_use: bool, node: Option<&str>) -> JoinToken {
        self.token_for(Duration::from_secs(600), single_use, node, SystemTime::now()).await
    }

    pub(crate) async fn token_for(
        &self,
        time_to_live: Duration,
        single_use: bool,
        node: Option<&str>,
        now: SystemTime,
    ) -> JoinToken {
        let wish = TokenWish { time_to_live, single_use, node: node.map(name) };
        let fingerprint = self.authority().fingerprint();
        self.tokens().create(&wish, fingerprint, now).await.unwrap().0
    }

    /// Options of a node with this name, and a folder of the same name.
    pub(crate) fn options(
        &self,
        node: &str,
        servers: &[&ClusterServer],
        token: Option<JoinToken>,
    ) -> NodeOptions {
        let controllers = servers.iter().map(|server| address(server)).collect();
        let token = token.map(TokenSource::Given);
        let folder = self.state(node);
        let mut options = NodeOptions::new(name(node), controllers, token, folder);
        options.pauses = (Duration::from_millis(20), Duration::from_millis(200));
        options.silence = Duration::from_secs(2);
        options
    }

    pub(crate) async fn joined(&self, node: &str, servers: &[&ClusterServer]) -> NodeClient {
        let token = self.token(false, None).await;
        let client = NodeClient::start(self.options(node, servers, Some(token)));
        until(&client, |status| status.certificate_until.is_some()).await;
        client
    }

    pub(crate) fn operator(&self, server: &ClusterServer) -> Asker {
        Asker::operator(&self.authority(), &name("root"), vec![address(server)]).unwrap()
    }
}

pub(crate) fn address(server: &ClusterServer) -> ControllerAddress {
    server.address().to_string().parse().unwrap()
}

/// A valid report.
pub(crate) fn report() -> NodeReport {
    NodeReport { version: "test".into(), capacity: 1.0, ..NodeReport::default() }
}

/// Waits until `holds` is true. Checks often, because there is no single event to wait for.
pub(crate) async fn eventually(what: &str, mut holds: impl FnMut() -> bool) {
    let all = async {
        while !holds() {
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
    };
    tokio::time::timeout(PATIENCE, all).await.unwrap_or_else(|_| panic!("never came: {what}"));
}

pub(crate) async fn until(client: &NodeClient, holds: impl Fn(&NodeStatus) -> bool) -> NodeStatus {
    let all = async {
        loop {
            let status = client.status();
            if holds(&status) {
                return status;
            }
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
    };
    let waited = tokio::time::timeout(PATIENCE, all).await;
    waited.unwrap_or_else(|_| panic!("never came; {:?}", client.status()))
}

/// A server's count.
pub(crate) fn count(server: &ClusterServer, what: &str) -> u64 {
    let counts: BTreeMap<String, u64> = server.counts();
    counts.get(what).copied().unwrap_or(0)
}
