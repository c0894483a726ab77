//! Real etcd members and their clients.

use std::ops::{Deref, DerefMut};
use std::path::Path;
use std::time::{Duration, Instant};

use equipoise_store::{ConnectError, Etcd, EtcdOptions};
use equipoise_testkit::{EtcdMembers, Folder};

/// Timeout of elections between real processes on a busy machine.
pub(crate) const PATIENCE: Duration = Duration::from_secs(60);

/// Members in a folder of their own.
pub(crate) struct Members {
    members: EtcdMembers,
    folder: Folder,
}

impl Deref for Members {
    type Target = EtcdMembers;

    fn deref(&self) -> &EtcdMembers {
        &self.members
    }
}

impl DerefMut for Members {
    fn deref_mut(&mut self) -> &mut EtcdMembers {
        &mut self.members
    }
}

impl Members {
    /// Starts `count` members; `extra` are arguments, `scheme` is that of the client URLs.
    pub(crate) fn start(count: usize, scheme: &'static str, extra: &[String]) -> Option<Members> {
        let folder = Folder::new("etcd");
        let members = EtcdMembers::start(folder.root(), count, scheme, extra)?;
        Some(Members { members, folder })
    }

    pub(crate) fn folder(&self) -> &Path {
        self.folder.root()
    }

    /// Returns options with all members and this namespace.
    pub(crate) fn options(&self, namespace: &str) -> EtcdOptions {
        let mut options = EtcdOptions::new(self.endpoints());
        options.namespace = namespace.to_string();
        options
    }

    pub(crate) async fn connect(&self, namespace: &str) -> Etcd {
        connect(self.options(namespace)).await
    }

    /// Asks the running members which one leads.
    pub(crate) async fn leader(&self) -> usize {
        let end = Instant::now() + PATIENCE;
        loop {
            for index in (0..self.count()).filter(|index| self.is_running(*index)) {
                let asked = async {
                    let mut client =
                        etcd_client::Client::connect([self.endpoint(index)], None).await?;
                    client.status().await
                };
                let Ok(Ok(status)) = tokio::time::timeout(Duration::from_secs(1), asked).await
                else {
                    continue;
                };
                let own = status.header().map(|header| header.member_id());
                if own == Some(status.leader()) && status.leader() != 0 {
                    return index;
                }
            }
            assert!(Instant::now() < end, "no member leads");
        }
    }
}

/// Replaces the timeouts by long ones, for tests that do not depend on time.
pub(crate) fn patient(options: EtcdOptions) -> EtcdOptions {
    EtcdOptions { patience: PATIENCE, probe: PATIENCE, ..options }
}

/// Connects as soon as the members are up.
pub(crate) async fn connect(options: EtcdOptions) -> Etcd {
    let end = Instant::now() + PATIENCE;
    loop {
        match Etcd::connect(options.clone()).await {
            Ok(etcd) => return etcd,
            Err(ConnectError::Unusable { source, .. })
                if source.is_passing() && Instant::now() < end => {}
            Err(error) => panic!("etcd does not come up: {error}: {:?}", error),
        }
    }
}
