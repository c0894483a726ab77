//! The hosts of the demo and their processes.

use std::time::Duration;

use anyhow::{Context, anyhow};
use equipoise_netns::{Guest, Host, Site, SiteShape};
use rustix::process::Signal;

use crate::files::Folder;
use crate::packet::method;

/// Ports of the sample backends.
pub(crate) const HTTP_PORT: u16 = 80;
pub(crate) const LINES_PORT: u16 = 7000;

/// Longest time for any step; then it has failed.
pub(crate) const PATIENCE: Duration = Duration::from_secs(15);

const BACKENDS: usize = 3;

/// The site with all hosts and processes. Dropping it removes everything.
#[derive(Debug)]
pub(crate) struct Stage {
    balancer: Guest,
    decapsulators: Vec<Guest>,
    _servers: Vec<Guest>,
    site: Site,
    folder: Folder,
}

/// Path of this program. It is not the program's name, because another build may have replaced that
/// file.
const SELF: &str = "/proc/self/exe";

impl Stage {
    pub(crate) fn build() -> anyhow::Result<Stage> {
        let folder = Folder::create().context("cannot create a folder for the demo's files")?;
        let site = Site::new(SiteShape { backends: BACKENDS, two_arms: false })?;
        let (mut servers, mut decapsulators) = (Vec::new(), Vec::new());
        for (index, host) in site.backends.iter().enumerate() {
            for address in method::ALL.iter().filter_map(method::Method::hidden_address) {
                // Two rows may share an address; it is added once.
                if !host.ip("addr show dev lo")?.contains(&format!(" {address}/")) {
                    host.hidden_address(address)?;
                }
            }
            let name = format!("backend-{}", index + 1);
            let (http, lines) = (HTTP_PORT.to_string(), LINES_PORT.to_string());
            let ports = ["--listen", "::", "--http", &http, "--tcp", &lines, "--delay", "5ms"];
            let server = [&["sample-backend", "--name", &name], &ports[..]].concat();
            servers.push(start(host, &server, "ready")?);
            decapsulators.push(start(host, &["decap", "--interface", "eth0"], "ready")?);
        }
        folder.write_config(&config(&site, &folder))?;
        let file = folder.config().display().to_string();
        let balancer = start(&site.balancer, &["run", &file], " ready ")?;
        Ok(Stage { balancer, decapsulators, _servers: servers, site, folder })
    }

    pub(crate) fn site(&self) -> &Site {
        &self.site
    }

    /// A list of the hosts and their addresses.
    pub(crate) fn map(&self) -> String {
        let site = &self.site;
        let way = format!("  client {} --- router ---", site.client_address(false));
        let mut text = format!(
            "equipoise balances at the packet level, between hosts made of network namespaces:\n\n\
             {way}+--- balancer  {}   (pid {})",
            site.balancer_address(false),
            self.balancer.pid(),
        );
        for index in 0..site.backends.len() {
            let (address, gap) = (site.backend_address(index, false), way.len());
            text += &format!("\n{:gap$}+--- backend-{} {address}", "", index + 1);
        }
        text + "\n\nEvery host has an IPv6 address too. The router sends all VIPs to the balancer."
    }

    /// Runs `curl` on the client.
    pub(crate) fn curl(&self, url: &str) -> anyhow::Result<String> {
        let seconds = PATIENCE.as_secs().to_string();
        let options = ["-q", "-sS", "--fail", "--noproxy", "*", "--max-time", &seconds, url];
        Ok(self.site.client.run("curl", &options)?)
    }

    /// Runs a command of this program against the balancer.
    pub(crate) fn command(&self, words: &[&str]) -> anyhow::Result<String> {
        let socket = self.folder.socket().display().to_string();
        Ok(self.site.balancer.run(SELF, &[words, &["--api", &socket]].concat())?)
    }

    /// The packet level's part of `equipoise status`: everything from its first table on.
    pub(crate) fn status(&self) -> anyhow::Result<String> {
        let all = self.command(&["status"])?;
        let lines = all.lines().skip_while(|line| !line.starts_with("VIP "));
        Ok(lines.collect::<Vec<_>>().join("\n"))
    }

    /// Stops balancer and decapsulators as an operator would. Returns the counts of the
    /// decapsulators.
    pub(crate) fn stop(mut self) -> anyhow::Result<String> {
        let mut text = String::new();
        for (index, guest) in self.decapsulators.iter_mut().enumerate() {
            stop(guest).with_context(|| format!("decap of backend-{}", index + 1))?;
            let printed = guest.printed();
            let counted = printed.lines().skip_while(|line| !line.contains("ready")).skip(1);
            text += &format!("backend-{}: {}\n", index + 1, counted.collect::<Vec<_>>().join("; "));
        }
        stop(&mut self.balancer).context("the balancer")?;
        Ok(text)
    }
}

fn config(site: &Site, folder: &Folder) -> String {
    let mut text = format!(
        "# The configuration of `equipoise demo packet`.\n\n[instance]\nname = \"demo-{}\"\n\n\
         [api]\nsocket = {:?}\n\n[flows]\nmax = 65536\npins-max = 16384\n\
         seed = \"no secret: it is a demo\"\n",
        std::process::id(),
        folder.socket().display().to_string()
    );
    for method in &method::ALL {
        text += &method.config(site);
    }
    text + &method::TUNNELLED.lines_config(site)
}

/// Starts this program on a host, and waits until it prints `ready`.
fn start(host: &Host, arguments: &[&str], ready: &str) -> anyhow::Result<Guest> {
    let guest = host.start(SELF, arguments)?;
    let word = arguments.first().copied().unwrap_or_default();
    let waited = guest.wait_for(PATIENCE, |printed| printed.contains(ready).then_some(()));
    waited.map_err(|printed| {
        anyhow!("`equipoise {word}` on {} is not ready; it printed:\n{printed}", host.name())
    })?;
    Ok(guest)
}

/// Stops a process as an operator would. Its output is complete afterwards.
fn stop(guest: &mut Guest) -> anyhow::Result<()> {
    guest.signal(Signal::TERM);
    let status = guest.wait()?;
    anyhow::ensure!(status.success(), "ended with {status}; it printed:\n{}", guest.printed());
    Ok(())
}
