//! `[cluster]`: this machine is a controller, or a node or an agent.

use std::net::SocketAddr;
use std::path::PathBuf;

use equipoise_cluster::{Cluster, ClusterRole, ControllerAddress, Name, TokenPlace};
use equipoise_store::EtcdPlace;

use super::key::{Any, Key};
use super::problem::Findings;
use super::secret_file::{self, Readers};
use super::tables::{File, Instance, Store};
use super::view::View;
use super::{Surroundings, etcd, tables};

/// Builds `[cluster]` from values that were read. `None` without the table, or with an error in it.
pub(super) fn config(
    file: View<'_, File>,
    instance: &str,
    around: &Surroundings<'_>,
    findings: &mut Findings<'_>,
) -> Option<Cluster> {
    let cluster = file.get(File::CLUSTER)?;
    let mut checks = Checks { around, findings };
    checks.instance(file, cluster, instance);
    let role = match (
        cluster.get(tables::Cluster::STORE),
        cluster.get(tables::Cluster::CONTROLLERS),
    ) {
        (Some(_), Some(_)) => {
            let text = "`store` is set too, which makes this a controller; accepted: `store` on controllers, \
                        `controllers` on nodes (a controller's own data plane needs no `controllers`)";
            checks.error(cluster, tables::Cluster::CONTROLLERS, text);
            return None;
        }
        (None, None) => {
            let text = "neither `store` nor `controllers`; accepted: a [cluster.store] table on controllers; \
                        `controllers`, with their addresses, on nodes";
            checks.findings.error(cluster.start(), cluster.path(), text.to_string());
            return None;
        }
        (Some(store), None) => checks.controller(cluster, store)?,
        (None, Some(controllers)) => checks.node(cluster, controllers)?,
    };
    let advertise = cluster.get(tables::Cluster::ADVERTISE).unwrap_or_default().to_vec();
    let state = PathBuf::from(cluster.get(tables::Cluster::STATE));
    Some(Cluster { advertise, state, role })
}

struct Checks<'c, 's> {
    around: &'c Surroundings<'c>,
    findings: &'c mut Findings<'s>,
}

impl Checks<'_, '_> {
    fn error<T, V>(&mut self, values: View<'_, T>, option: Key<T, V>, text: impl Into<String>) {
        self.findings.error(values.at(option), &values.path_of(option), text.into());
    }

    /// Refuses an instance name that cannot be a member's name.
    fn instance(
        &mut self,
        file: View<'_, File>,
        cluster: View<'_, tables::Cluster>,
        instance: &str,
    ) {
        if instance.parse::<Name>().is_ok() {
            return;
        }
        let accepted =
            "accepted in a cluster: 1 to 64 letters, digits, `.`, `_` and `-`; set `instance.name`";
        let text = format!("the host name {instance:?} cannot be a member's name; {accepted}");
        let given = file.get(File::INSTANCE).given(Instance::NAME);
        // A stated name that is invalid has its own error.
        if !given {
            self.findings.error(cluster.start(), "instance.name", text);
        }
    }

    fn without(
        &mut self,
        cluster: View<'_, tables::Cluster>,
        options: [Key<tables::Cluster, Any>; 2],
        why: &str,
    ) {
        for option in options.into_iter().filter(|option| cluster.given(*option)) {
            self.error(cluster, option, why);
        }
    }

    fn controller(
        &mut self,
        cluster: View<'_, tables::Cluster>,
        store: View<'_, Store>,
    ) -> Option<ClusterRole> {
        let why =
            "is for nodes, and `store` makes this a controller, which does not join; remove it";
        self.without(
            cluster,
            [tables::Cluster::JOIN_TOKEN.any(), tables::Cluster::JOIN_TOKEN_FILE.any()],
            why,
        );
        let listen: SocketAddr = cluster.get(tables::Cluster::LISTEN);
        if listen.ip().is_unspecified() && !cluster.given(tables::Cluster::ADVERTISE) {
            let text = format!(
                "\"{listen}\" stands for every address, so the certificate is only for this machine's name; nodes that \
                 use an address need it in `advertise`"
            );
            self.findings.warning(
                cluster.at(tables::Cluster::LISTEN),
                &cluster.path_of(tables::Cluster::LISTEN),
                text,
            );
        }
        let etcd = self.etcd(store);
        let name = cluster.get(tables::Cluster::NAME).parse().ok()?;
        Some(ClusterRole::Controller { name, listen, etcd })
    }

    fn node(
        &mut self,
        cluster: View<'_, tables::Cluster>,
        controllers: Vec<ControllerAddress>,
    ) -> Option<ClusterRole> {
        let why = "is for controllers, and `controllers` makes this a node; remove it";
        self.without(cluster, [tables::Cluster::NAME.any(), tables::Cluster::LISTEN.any()], why);
        if controllers.is_empty() {
            let text = "an empty list, so this node cannot join; accepted: at least one controller";
            self.error(cluster, tables::Cluster::CONTROLLERS, text);
        }
        let mut known: Vec<ControllerAddress> = Vec::new();
        for address in controllers {
            if known.contains(&address) {
                let text = format!("\"{address}\" is listed twice; accepted: each controller once");
                self.error(cluster, tables::Cluster::CONTROLLERS, text);
            }
            known.push(address);
        }
        let (given, file) = (
            cluster.get(tables::Cluster::JOIN_TOKEN),
            cluster.get(tables::Cluster::JOIN_TOKEN_FILE),
        );
        let token = match (given, file) {
            (Some(_), Some(_)) => {
                let text = "`join-token` is given too; accepted: one of the two";
                self.error(cluster, tables::Cluster::JOIN_TOKEN_FILE, text);
                None
            }
            (Some(token), None) => Some(TokenPlace::Given(token)),
            // The file may be absent after the node has joined.
            (None, Some(file)) => {
                let (option, secret) = (tables::Cluster::JOIN_TOKEN_FILE, "the join token");
                let (around, readers) = (self.around, Readers::OwnerAndGroup);
                secret_file::warn(cluster, option, readers, secret, around, self.findings);
                Some(TokenPlace::File(PathBuf::from(file)))
            }
            (None, None) => None,
        };
        Some(ClusterRole::Node { controllers: known, token })
    }

    fn etcd(&mut self, store: View<'_, Store>) -> Option<EtcdPlace> {
        if store.get(Store::ETCD).is_none_or(<[_]>::is_empty) {
            for option in store.stated().filter(|option| option.name() != Store::ETCD.name()) {
                let text = "has no effect: `etcd` names no member";
                self.findings.warning(store.at(option), &store.path_of(option), text.to_string());
            }
            return None;
        }
        let folder = Some(store.get(Store::NAMESPACE));
        etcd::place(store, store.part(), Store::ETCD, folder, self.around, self.findings)
    }
}
