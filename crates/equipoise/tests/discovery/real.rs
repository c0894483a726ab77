//! `[pool.discover.kubernetes]` and `[pool.discover.consul]` with the real servers, which
//! scripts/discovery_servers.sh builds: `make test-discovery`.

use std::fs::File;
use std::net::SocketAddr;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};

use equipoise_testkit::{
    EtcdMembers, HttpBackend, ReservedPort, eventually, free_port, spawn_bound,
};

use crate::bed::Instance;
use crate::common::{Folder, text};

/// The folder of the servers.
fn servers() -> PathBuf {
    let folder = std::env::var_os("DISCOVERY_SERVERS").expect("`make test-discovery` sets it");
    folder.into()
}

/// A server that is killed when it is dropped.
struct Server(Child);

impl Server {
    fn start(mut command: Command, log: &Path) -> Server {
        let log = File::create(log).unwrap();
        command.stdin(Stdio::null()).stdout(log.try_clone().unwrap()).stderr(log);
        Server(spawn_bound(command).unwrap())
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// Runs curl with these arguments. Returns whether the answer was good, and its body.
fn curl(args: &[&str]) -> (bool, String) {
    let output = Command::new("curl")
        .args(["-sS", "--fail-with-body", "-m", "10"])
        .args(args)
        .output()
        .unwrap();
    let body = [&*output.stdout, &*output.stderr].concat();
    (output.status.success(), String::from_utf8_lossy(&body).into_owned())
}

struct Kubernetes {
    folder: Folder,
    port: ReservedPort,
    etcd: EtcdMembers,
    server: Option<Server>,
}

const TOKEN: &str = "Authorization: Bearer the-token";

impl Kubernetes {
    fn start() -> Kubernetes {
        let folder = Folder::new("kube-apiserver");
        let etcd = EtcdMembers::start(folder.root(), 1, "http", &[]).expect("etcd is installed");
        let key = folder.path("sa.key");
        let made = Command::new("openssl").args(["genrsa", "-out", text(&key), "2048"]).output();
        assert!(made.unwrap().status.success());
        folder.write("tokens.csv", "the-token,admin,admin,\"system:masters\"\n");
        let mut kubernetes = Kubernetes { folder, port: free_port(), etcd, server: None };
        kubernetes.run();
        kubernetes
    }

    fn run(&mut self) {
        let path = |name: &str| self.folder.path(name).display().to_string();
        let mut command = Command::new(servers().join("kube-apiserver"));
        command
            .arg(format!("--etcd-servers={}", self.etcd.endpoint(0)))
            .arg(format!("--service-account-key-file={}", path("sa.key")))
            .arg(format!("--service-account-signing-key-file={}", path("sa.key")))
            .arg(format!("--token-auth-file={}", path("tokens.csv")))
            .arg(format!("--cert-dir={}", path("certs")))
            .arg(format!("--secure-port={}", self.port.address().port()))
            .args(["--service-account-issuer=https://test", "--authorization-mode=RBAC"])
            .args(["--service-cluster-ip-range=10.0.0.0/24", "--bind-address=127.0.0.1"])
            .args(["--advertise-address=127.0.0.1", "--external-hostname=localhost"])
            .args(["--disable-admission-plugins=ServiceAccount", "--permit-port-sharing"]);
        self.server = Some(Server::start(command, &self.folder.path("log")));
        let is_ready = || curl(&["-k", "-H", TOKEN, &self.url("/readyz")]).0;
        let log = || std::fs::read_to_string(self.folder.path("log")).unwrap();
        assert!(eventually(is_ready), "{}", log());
    }

    fn url(&self, path: &str) -> String {
        format!("https://{}{path}", self.port.address())
    }

    /// Sends a slice of the service `web`.
    fn slice(&self, method: &str, name: &str, backend: SocketAddr, ready: bool) {
        let slices = "/apis/discovery.k8s.io/v1/namespaces/default/endpointslices";
        let url = match method {
            "POST" => self.url(slices),
            _ => self.url(&format!("{slices}/{name}")),
        };
        let slice = format!(
            "{{\"apiVersion\": \"discovery.k8s.io/v1\", \"kind\": \"EndpointSlice\", \"addressType\": \"IPv4\", \
              \"metadata\": {{\"name\": \"{name}\", \"labels\": {{\"kubernetes.io/service-name\": \"web\"}}}}, \
              \"ports\": [{{\"name\": \"http\", \"port\": {}}}], \
              \"endpoints\": [{{\"addresses\": [\"{}\"], \"conditions\": {{\"ready\": {ready}}}, \"zone\": \"a\", \
              \"targetRef\": {{\"kind\": \"Pod\", \"namespace\": \"default\", \"name\": \"{name}-pod\"}}}}]}}",
            backend.port(),
            backend.ip()
        );
        let mut args = vec!["-k", "-X", method, "-H", TOKEN, &url];
        if method != "DELETE" {
            args.extend(["-H", "Content-Type: application/json", "-d", &slice]);
        }
        let (worked, said) = curl(&args);
        assert!(worked, "{method} {name}: {said}");
    }
}

/// Endpoints for documentation (RFC 5737), which get no requests here: Kubernetes refuses endpoints
/// of loopback.
const ENDPOINTS: [&str; 2] = ["192.0.2.1:8081", "192.0.2.2:8082"];

#[test]
#[ignore = "needs kube-apiserver: make test-discovery"]
fn a_real_kube_apiserver_is_listed_and_watched() {
    let mut kubernetes = Kubernetes::start();
    let [first, second] = ENDPOINTS.map(|text| text.parse().unwrap());
    kubernetes.slice("POST", "web-a", first, true);
    let options = format!(
        "[pool.discover.kubernetes]\nurl = '{}'\nservice = 'web'\ntoken-file = '{{folder}}/token'\nca = '{}'",
        kubernetes.url(""),
        kubernetes.folder.path("certs/apiserver.crt").display()
    );
    let folder = Folder::new("kubernetes-real");
    let token = folder.write("token", "the-token\n");
    std::fs::set_permissions(token, std::fs::Permissions::from_mode(0o600)).unwrap();
    let instance = Instance::start("kubernetes-real", folder, &options);
    let [first_text, second_text] = ENDPOINTS;
    instance.has(&[first_text]);
    assert_eq!(instance.pool()["backends"][0]["name"], "web-a-pod");
    kubernetes.slice("POST", "web-b", second, false);
    kubernetes.slice("PUT", "web-b", second, true);
    instance.has(&[first_text, second_text]);
    kubernetes.slice("PUT", "web-a", first, false);
    instance.has(&[second_text]);
    instance.folder.write("token", "wrong\n");
    kubernetes.slice("PUT", "web-a", first, true);
    instance.has_problem("answered 401 Unauthorized");
    assert_eq!(instance.addresses(), [second_text]);
    instance.folder.write("token", "the-token\n");
    instance.has(&[first_text, second_text]);
    instance.has_no_problem();
    kubernetes.server = None;
    instance.has_problem("cannot be reached");
    assert_eq!(instance.addresses(), [first_text, second_text]);
    kubernetes.run();
    kubernetes.slice("DELETE", "web-b", second, true);
    instance.has(&[first_text]);
    instance.has_no_problem();
}

#[test]
#[ignore = "needs consul: make test-discovery"]
fn a_real_consul_agent_is_followed() {
    let (folder, port) = (Folder::new("consul"), free_port());
    let rest: Vec<_> = (0..4).map(|_| free_port()).collect();
    let number = |at: usize| rest[at].address().port().to_string();
    let run = || {
        let mut command = Command::new(servers().join("consul"));
        command
            .args(["agent", "-dev", "-bind", "127.0.0.1", "-grpc-port", "-1", "-dns-port", "-1"])
            .args(["-server-port", &number(0), "-serf-lan-port", &number(1)])
            .args(["-serf-wan-port", &number(2), "-http-port", &port.address().port().to_string()]);
        let server = Server::start(command, &folder.path("log"));
        let leader = format!("http://{}/v1/status/leader", port.address());
        let has_leader = || {
            let (answers, leader) = curl(&[&leader]);
            answers && leader.contains("127.0.0.1:")
        };
        let log = || std::fs::read_to_string(folder.path("log")).unwrap();
        assert!(eventually(has_leader), "{}", log());
        server
    };
    let api = |path: &str, body: &str| {
        let url = format!("http://{}/v1/{path}", port.address());
        let (worked, said) = curl(&["-X", "PUT", "-d", body, &url]);
        assert!(worked, "{path}: {said}");
    };
    let register = |id: &str, backend: &HttpBackend, weight: u32| {
        let (ip, number) = (backend.address().ip(), backend.address().port());
        let service = format!(
            "{{\"Name\": \"web\", \"ID\": \"{id}\", \"Address\": \"{ip}\", \"Port\": {number}, \"Tags\": [\"v1\"], \
              \"Meta\": {{\"zone\": \"a\"}}, \"Weights\": {{\"Passing\": {weight}, \"Warning\": 1}}, \
              \"Check\": {{\"CheckID\": \"{id}\", \"TTL\": \"1h\", \"Status\": \"passing\"}}}}"
        );
        api("agent/service/register", &service);
    };
    let server = run();
    let (a, b) = (HttpBackend::named("a"), HttpBackend::named("b"));
    let (at_a, at_b) = (a.address().to_string(), b.address().to_string());
    register("web-1", &a, 7);
    let options = format!(
        "[pool.discover]\nlabels = 'zone=a'\n[pool.discover.consul]\nurl = 'http://{}'\nservice = 'web'\ntag = 'v1'",
        port.address()
    );
    let instance = Instance::start("consul-real", Folder::new("consul-real"), &options);
    instance.has(&[&at_a]);
    let backend = instance.pool()["backends"][0].clone();
    assert_eq!((&backend["name"], &backend["weight"]), (&"web-1".into(), &7.into()));
    register("web-2", &b, 1);
    instance.has(&[&at_a, &at_b]);
    api("agent/check/fail/web-1", "");
    instance.has(&[&at_b]);
    assert_eq!(instance.ask(), (200, "b".into()));
    api("agent/check/pass/web-1", "");
    instance.has(&[&at_a, &at_b]);
    drop(server);
    instance.has_problem("cannot be reached");
    instance.has(&[&at_a, &at_b]);
    // Its state was in memory: it comes back without instances.
    let _server = run();
    instance.has_problem("the source reports no backend");
    register("web-1", &a, 7);
    instance.has(&[&at_a]);
}
