//! A site with all processes that run on it.

use std::path::PathBuf;
use std::time::{Duration, Instant};

use equipoise_testkit::netns::{Guest, Host, Site, SiteShape, unavailable};
use rustix::process::Signal;

use crate::common::{EQUIPOISE, Folder, text};
use crate::method::Method;

/// Longest time for any step. It is long, for busy machines. Handshakes during a change are sent
/// again after one second, then after three.
pub(crate) const PATIENCE: Duration = Duration::from_secs(60);

/// Hosts, backends' servers, and the balancer under test. Dropping it ends all of them, the
/// balancer first.
pub(crate) struct Bed {
    pub(crate) balancer: Option<Guest>,
    /// The sample backend on each backend's host.
    pub(crate) servers: Vec<Option<Guest>>,
    others: Vec<Guest>,
    pub(crate) site: Site,
    folder: Folder,
    /// The name under which the program and its maps are pinned.
    instance: String,
}

/// Polls until `condition` holds; `false` if it does not in time. Only for conditions without an
/// event to wait for.
pub(crate) fn soon(mut condition: impl FnMut() -> bool) -> bool {
    let end = Instant::now() + PATIENCE;
    while !condition() {
        if Instant::now() > end {
            return false;
        }
        std::thread::sleep(Duration::from_millis(20));
    }
    true
}

impl Bed {
    /// Builds the site and starts the backends' processes. Prints the reason and returns `None` if
    /// namespaces cannot be created.
    pub(crate) fn new(test: &str, shape: SiteShape) -> Option<Bed> {
        if let Some(reason) = unavailable() {
            println!("skipped: {reason}");
            return None;
        }
        let site = Site::new(shape).expect("a site can be built");
        let servers = (0..shape.backends).map(|index| Some(serve(&site, index))).collect();
        let folder = Folder::new(&format!("packet-{test}"));
        let instance = format!("test-{test}-{}", std::process::id());
        Some(Bed { balancer: None, servers, others: Vec::new(), site, folder, instance })
    }

    /// Prepares backends for these methods: VIPs on loopback, decapsulation.
    pub(crate) fn prepare(&mut self, methods: &[Method]) {
        for backend in &self.site.backends {
            for method in methods.iter().filter(|method| !method.translates()) {
                backend.hidden_address(method.vip_address()).expect("an address can be given");
            }
            if methods.iter().any(|method| method.encapsulates()) {
                let guest = start(backend, &["decap", "--interface", "eth0"]);
                wait_for_text(&guest, "ready");
                self.others.push(guest);
            }
        }
    }

    /// Starts an iperf3 server on each backend.
    pub(crate) fn serve_iperf(&mut self) {
        for backend in &self.site.backends {
            let guest = backend.start("iperf3", &["-s", "--forceflush"]).expect("iperf3 runs");
            wait_for_text(&guest, "Server listening");
            self.others.push(guest);
        }
    }

    /// Restarts the server of a backend after its end.
    pub(crate) fn serve_again(&mut self, index: usize) {
        self.servers[index] = Some(serve(&self.site, index));
    }

    /// Writes the configuration: instance and flows, then `rest`.
    pub(crate) fn configure(&self, rest: &str) -> PathBuf {
        let socket = self.socket();
        let head = format!(
            "[instance]\nname = \"{}\"\n\n[api]\nsocket = \"{}\"\n\n\
             [flows]\nmax = 65536\npins-max = 16384\nvips-max = 32\n\
             seed = \"the same in every run\"\n{rest}",
            self.instance,
            socket.display()
        );
        self.folder.write("equipoise.toml", &head)
    }

    /// The name under which the program and its maps are pinned.
    pub(crate) fn instance(&self) -> &str {
        &self.instance
    }

    fn socket(&self) -> PathBuf {
        self.folder.path("api.sock")
    }

    /// Starts the balancer with the written configuration, and waits until it is ready.
    pub(crate) fn balance(&mut self) {
        self.balance_by(EQUIPOISE);
    }

    /// The same, with the program at this path, which upgrades start again.
    pub(crate) fn balance_by(&mut self, program: &str) {
        let file = self.folder.path("equipoise.toml");
        let started = self.site.balancer.start(program, &["run", text(&file)]);
        // Stored before it is ready, so that its pinned objects are also removed if it never is.
        let guest = self.balancer.insert(started.expect("the binary runs"));
        wait_for_text(guest, " ready ");
    }

    /// The same, with this text as the balancer's `/etc/hosts`.
    pub(crate) fn balance_with_hosts(&mut self, hosts: &str) {
        let (file, hosts) = (self.path("equipoise.toml"), self.folder.write("hosts", hosts));
        let script = "mount --bind \"$0\" /etc/hosts && exec \"$@\"";
        let arguments = ["--mount", "--propagation", "private", "sh", "-c", script, text(&hosts)];
        let command = [&arguments[..], &[EQUIPOISE, "run", text(&file)]].concat();
        let started = self.site.balancer.start("unshare", &command).expect("the binary runs");
        let guest = self.balancer.insert(started);
        wait_for_text(guest, " ready ");
    }

    /// The balancer's output.
    pub(crate) fn log(&self) -> String {
        self.balancer.as_ref().map(Guest::printed).unwrap_or_default()
    }

    /// Runs a command of the binary against the balancer, and returns its output.
    pub(crate) fn command(&self, arguments: &[&str]) -> String {
        let socket = self.socket();
        let output = crate::common::equipoise(&[arguments, &["--api", text(&socket)]].concat());
        let printed = crate::common::stdout(&output) + &crate::common::stderr(&output);
        assert!(output.status.success(), "equipoise {arguments:?}: {printed}\n{}", self.log());
        printed
    }

    /// Runs a command that must exit with 1, and returns its output.
    pub(crate) fn denied(&self, arguments: &[&str]) -> String {
        let socket = self.socket();
        let output = crate::common::equipoise(&[arguments, &["--api", text(&socket)]].concat());
        assert_eq!(output.status.code(), Some(1), "equipoise {arguments:?}: {}", self.log());
        crate::common::stdout(&output)
    }

    /// Stops the process that has replaced the balancer, so that it removes its pinned objects.
    pub(crate) fn stop_newest(&self) {
        let status = self.command(&["status", "--json"]);
        let status: serde_json::Value = serde_json::from_str(&status).expect("it is JSON");
        let pid = status["pid"].as_u64().expect("a number") as u32;
        crate::common::kill(pid, libc::SIGTERM);
        let is_gone = || !self.socket().exists();
        assert!(soon(is_gone), "process {pid} does not stop: {}", self.log());
    }

    /// Runs `curl` on the client, and returns its output.
    ///
    /// # Errors
    /// The error output of `curl`.
    pub(crate) fn curl(&self, arguments: &[&str]) -> Result<String, String> {
        let seconds = PATIENCE.as_secs().to_string();
        let always = ["-q", "-sS", "--fail", "--noproxy", "*", "--max-time", &seconds];
        let outcome = self.site.client.run("curl", &[&always, arguments].concat());
        outcome.map_err(|error| error.to_string())
    }

    /// Creates a file of `bytes` bytes that differ by position.
    pub(crate) fn large_file(&self, bytes: usize) -> PathBuf {
        let mut pattern = equipoise_testkit::Pattern::new(7);
        let path = self.folder.path("large");
        std::fs::write(&path, pattern.next(bytes)).expect("the folder is ours");
        path
    }

    pub(crate) fn path(&self, name: &str) -> PathBuf {
        self.folder.path(name)
    }
}

impl Drop for Bed {
    /// Stops the balancer as an operator would, so that it removes its pinned objects. Killing it
    /// would leave them.
    fn drop(&mut self) {
        if let Some(balancer) = &mut self.balancer {
            balancer.signal(Signal::TERM);
            let _ = balancer.wait();
        }
    }
}

/// Starts the sample backend number `index` on all addresses of its host.
fn serve(site: &Site, index: usize) -> Guest {
    let name = format!("backend-{}", index + 1);
    let arguments = ["--listen", "::", "--http", "80", "--tcp", "7000", "--delay", "5ms"];
    let arguments = [&["sample-backend", "--name", &name], &arguments[..]].concat();
    let guest = start(&site.backends[index], &arguments);
    wait_for_text(&guest, "ready");
    guest
}

pub(crate) fn start(host: &Host, arguments: &[&str]) -> Guest {
    host.start(EQUIPOISE, arguments).expect("the binary runs")
}

pub(crate) fn wait_for_text(guest: &Guest, text: &str) {
    let found = guest.wait_for(PATIENCE, |printed| printed.contains(text).then_some(()));
    found.unwrap_or_else(|printed| panic!("waited in vain for `{text}`; printed:\n{printed}"));
}
