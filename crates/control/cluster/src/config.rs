//! The configuration of a member: this machine is a controller, or a node or an agent.

use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use equipoise_store::EtcdPlace;

use crate::{ControllerAddress, JoinToken, Name, StateFolder};

/// This machine's part in a cluster.
#[derive(Clone, Debug, PartialEq)]
pub struct Cluster {
    /// Names and addresses at which other members reach this machine, as stated.
    pub advertise: Vec<String>,
    /// Folder of this machine's certificates and keys.
    pub state: PathBuf,
    /// Controller or node.
    pub role: ClusterRole,
}

/// The part of a machine in its cluster.
#[derive(Clone, Debug, PartialEq)]
pub enum ClusterRole {
    /// Plans, and serves nodes.
    Controller {
        /// The cluster's name.
        name: Name,
        /// Address at which nodes reach the controller.
        listen: SocketAddr,
        /// The store that all controllers share; `None` means a file on this machine.
        etcd: Option<EtcdPlace>,
    },
    /// Sends reports, and follows instructions. Agents have this part too.
    Node {
        /// Addresses of the controllers.
        controllers: Vec<ControllerAddress>,
        /// The join token.
        token: Option<TokenPlace>,
    },
}

/// The place of the join token.
#[derive(Clone, Debug, PartialEq)]
pub enum TokenPlace {
    /// In the configuration file.
    Given(JoinToken),
    /// In a file of its own.
    File(PathBuf),
}

impl Cluster {
    /// The folder of certificates, with its rules.
    pub fn folder(&self) -> StateFolder {
        StateFolder::new(&self.state)
    }

    /// Default API socket of an agent: beside its certificate. `equipoise run` on the same machine
    /// can then use the default socket.
    pub fn agent_socket(&self) -> PathBuf {
        agent_socket(&self.state)
    }

    /// Names and addresses in a controller's certificate: those stated, the address of `listen` and
    /// the instance's name. Loopback is added if `listen` is every address, for commands on this
    /// machine.
    pub fn hosts(&self, listen: SocketAddr, instance: &Arc<str>) -> Vec<String> {
        let mut hosts = self.advertise.clone();
        hosts.push(instance.to_string());
        if listen.ip().is_unspecified() {
            hosts.extend(["127.0.0.1".to_string(), "localhost".to_string()]);
        } else {
            hosts.push(listen.ip().to_string());
        }
        hosts.sort();
        hosts.dedup();
        hosts
    }

    /// The address at which other controllers reach this one.
    pub fn first_host(&self, listen: SocketAddr, instance: &Arc<str>) -> String {
        match self.advertise.first() {
            Some(stated) => stated.clone(),
            None if listen.ip().is_unspecified() => instance.to_string(),
            None => listen.ip().to_string(),
        }
    }
}

/// The path of an agent's socket in its folder of certificates.
pub fn agent_socket(state: &Path) -> PathBuf {
    state.join("agent.sock")
}
