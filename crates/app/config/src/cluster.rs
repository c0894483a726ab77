//! `[cluster]`: this machine is a controller, or a node or an agent.

use std::net::SocketAddr;
use std::path::PathBuf;

use equipoise_cluster::{Cluster, ClusterRole, ControllerAddress, Name, TokenPlace};
use equipoise_store::EtcdPlace;

use super::problem::Findings;
use super::secret_file::{self, Readers};
use super::values::Values;
use super::{Surroundings, etcd};

/// Builds `[cluster]` from values that were read. `None` without the table, or with an error in it.
pub(super) fn config(
    file: &Values,
    instance: &str,
    around: &Surroundings<'_>,
    findings: &mut Findings<'_>,
) -> Option<Cluster> {
    let cluster = file.table("cluster")?;
    let mut checks = Checks { around, findings };
    checks.instance(file, cluster, instance);
    let role = match (cluster.table("store"), cluster.texts("controllers")) {
        (Some(_), Some(_)) => {
            let text = "`store` is set too, which makes this a controller; accepted: `store` on controllers, \
                        `controllers` on nodes (a controller's own data plane needs no `controllers`)";
            checks.error(cluster, "controllers", text);
            return None;
        }
        (None, None) => {
            let text = "neither `store` nor `controllers`; accepted: a [cluster.store] table on controllers; \
                        `controllers`, with their addresses, on nodes";
            checks.findings.error(cluster.at, &cluster.path, text.to_string());
            return None;
        }
        (Some(store), None) => checks.controller(cluster, store)?,
        (None, Some(controllers)) => checks.node(cluster, controllers)?,
    };
    let advertise = cluster.texts("advertise").unwrap_or_default().to_vec();
    let state = cluster.text("state").map(PathBuf::from)?;
    Some(Cluster { advertise, state, role })
}

struct Checks<'c, 's> {
    around: &'c Surroundings<'c>,
    findings: &'c mut Findings<'s>,
}

impl Checks<'_, '_> {
    fn error(&mut self, values: &Values, option: &str, text: impl Into<String>) {
        self.findings.error(values.at(option), &values.path_of(option), text.into());
    }

    /// Refuses an instance name that cannot be a member's name.
    fn instance(&mut self, file: &Values, cluster: &Values, instance: &str) {
        if instance.parse::<Name>().is_ok() {
            return;
        }
        let accepted =
            "accepted in a cluster: 1 to 64 letters, digits, `.`, `_` and `-`; set `instance.name`";
        let text = format!("the host name {instance:?} cannot be a member's name; {accepted}");
        let given = file.table("instance").is_some_and(|instance| instance.given("name"));
        // A stated name that is invalid has its own error.
        if !given {
            self.findings.error(cluster.at, "instance.name", text);
        }
    }

    fn without(&mut self, cluster: &Values, options: &[&str], why: &str) {
        for option in options.iter().filter(|option| cluster.given(option)) {
            self.error(cluster, option, why);
        }
    }

    fn controller(&mut self, cluster: &Values, store: &Values) -> Option<ClusterRole> {
        let why =
            "is for nodes, and `store` makes this a controller, which does not join; remove it";
        self.without(cluster, &["join-token", "join-token-file"], why);
        let listen: SocketAddr = cluster.parsed("listen")?;
        if listen.ip().is_unspecified() && !cluster.given("advertise") {
            let text = format!(
                "\"{listen}\" stands for every address, so the certificate is only for this machine's name; nodes that \
                 use an address need it in `advertise`"
            );
            self.findings.warning(cluster.at("listen"), &cluster.path_of("listen"), text);
        }
        let etcd = self.etcd(store);
        Some(ClusterRole::Controller { name: cluster.parsed("name")?, listen, etcd })
    }

    fn node(&mut self, cluster: &Values, controllers: &[String]) -> Option<ClusterRole> {
        let why = "is for controllers, and `controllers` makes this a node; remove it";
        self.without(cluster, &["name", "listen"], why);
        if controllers.is_empty() {
            let text = "an empty list, so this node cannot join; accepted: at least one controller";
            self.error(cluster, "controllers", text);
        }
        let mut known: Vec<ControllerAddress> = Vec::new();
        for address in controllers.iter().filter_map(|text| text.parse().ok()) {
            if known.contains(&address) {
                let text = format!("\"{address}\" is listed twice; accepted: each controller once");
                self.error(cluster, "controllers", text);
            }
            known.push(address);
        }
        let (given, file) = (cluster.parsed("join-token"), cluster.text("join-token-file"));
        let token = match (given, file) {
            (Some(_), Some(_)) => {
                let text = "`join-token` is given too; accepted: one of the two";
                self.error(cluster, "join-token-file", text);
                None
            }
            (Some(token), None) => Some(TokenPlace::Given(token)),
            // The file may be absent after the node has joined.
            (None, Some(file)) => {
                let file = PathBuf::from(file);
                self.warn(cluster, "join-token-file", Readers::OwnerAndGroup, "the join token");
                Some(TokenPlace::File(file))
            }
            (None, None) => None,
        };
        Some(ClusterRole::Node { controllers: known, token })
    }

    fn etcd(&mut self, store: &Values) -> Option<EtcdPlace> {
        if store.texts("etcd").is_none_or(|list| list.is_empty()) {
            for option in store.spec.options.iter().filter(|option| option.name != "etcd") {
                if store.given(option.name) {
                    let text = "has no effect: `etcd` names no member";
                    let (at, path) = (store.at(option.name), store.path_of(option.name));
                    self.findings.warning(at, &path, text.to_string());
                }
            }
            return None;
        }
        etcd::place(store, "etcd", "namespace", self.around, self.findings)
    }

    fn warn(&mut self, values: &Values, option: &'static str, readers: Readers, secret: &str) {
        secret_file::warn(values, option, readers, secret, self.around, self.findings);
    }
}
