//! The file with BIRD's static routes, and the command that makes BIRD read it.

use std::collections::BTreeSet;
use std::fmt::Write;
use std::net::IpAddr;
use std::path::PathBuf;
use std::process::Stdio;
use std::time::Duration;

use anyhow::Context;
use equipoise_basics::files;
use tokio::process::Command;

const FIRST_LINE: &str =
    "# The addresses that this machine serves now. `equipoise announce` writes this file.\n";
/// Longest time that BIRD may take to read its configuration.
const RELOAD_WITHIN: Duration = Duration::from_secs(10);

/// The routes that BIRD has.
pub(super) struct Bird {
    file: PathBuf,
    reload: String,
    /// The routes in the file; `None` before it was written.
    written: Option<BTreeSet<IpAddr>>,
    /// BIRD has read the file.
    is_applied: bool,
    /// The last failure, which is reported once.
    failure: Option<String>,
}

impl Bird {
    pub(super) fn new(file: PathBuf, reload: String) -> Bird {
        Bird { file, reload, written: None, is_applied: false, failure: None }
    }

    /// The addresses in the file that an earlier process left.
    ///
    /// # Errors
    /// The file cannot be read, or is another one.
    pub(super) fn announced(&self) -> anyhow::Result<BTreeSet<IpAddr>> {
        Ok(addresses(&super::ours(&self.file, FIRST_LINE)?))
    }

    pub(super) fn is_applied(&self) -> bool {
        self.is_applied
    }

    /// Writes the file if the addresses have changed, and runs the command until it succeeds once.
    /// Failures are logged.
    pub(super) async fn apply(&mut self, addresses: &BTreeSet<IpAddr>) {
        if self.written.as_ref() == Some(addresses) && self.is_applied {
            return;
        }
        match self.try_apply(addresses).await {
            Ok(()) => {
                self.is_applied = true;
                self.failure = None;
            }
            Err(error) => {
                let failure = format!("{error:#}");
                if self.failure.as_ref() != Some(&failure) {
                    eprintln!("equipoise: {failure}; it is tried again");
                }
                self.failure = Some(failure);
            }
        }
    }

    async fn try_apply(&mut self, addresses: &BTreeSet<IpAddr>) -> anyhow::Result<()> {
        if self.written.as_ref() != Some(addresses) {
            self.is_applied = false;
            files::replace_volatile(&self.file, text(addresses).as_bytes(), 0o644)
                .with_context(|| format!("cannot write {}", self.file.display()))?;
            self.written = Some(addresses.clone());
        }
        let mut command = Command::new("sh");
        command.args(["-c", &self.reload]).stdin(Stdio::null()).kill_on_drop(true);
        let output = tokio::time::timeout(RELOAD_WITHIN, command.output()).await;
        let output = output.map_err(|_| anyhow::anyhow!("`{}` takes too long", self.reload))?;
        let output = output.with_context(|| format!("cannot run `{}`", self.reload))?;
        if output.status.success() {
            return Ok(());
        }
        let said = [output.stdout, output.stderr].concat();
        let said = String::from_utf8_lossy(&said);
        let last = said.lines().rfind(|line| !line.trim().is_empty()).unwrap_or("no output");
        anyhow::bail!("`{}` failed ({}): {last}", self.reload, output.status)
    }
}

/// The addresses in a file of this kind.
fn addresses(text: &str) -> BTreeSet<IpAddr> {
    let routes = text.lines().filter_map(|line| line.trim().strip_prefix("route "));
    routes.filter_map(|line| line.split_once('/')?.0.parse().ok()).collect()
}

/// The file. A route leads to the loopback interface, so that BIRD may also give it to the kernel.
/// It is preferred to the one that `protocol direct` finds for an address of that interface.
fn text(addresses: &BTreeSet<IpAddr>) -> String {
    let mut text = String::from(FIRST_LINE);
    for (name, channel, bits) in [("equipoise4", "ipv4", 32), ("equipoise6", "ipv6", 128)] {
        let _ = writeln!(text, "protocol static {name} {{\n    {channel} {{ preference 250; }};");
        for address in addresses.iter().filter(|it| it.is_ipv4() == (bits == 32)) {
            let _ = writeln!(text, "    route {address}/{bits} via \"lo\";");
        }
        text.push_str("}\n");
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn routes_are_found_again_in_the_file() {
        let all = BTreeSet::from(["192.0.2.1", "2001:db8::2"].map(|it| it.parse().unwrap()));
        let text = text(&all);
        assert!(text.contains("    route 192.0.2.1/32 via \"lo\";\n"), "{text}");
        assert!(text.contains("    route 2001:db8::2/128 via \"lo\";\n"), "{text}");
        assert_eq!(addresses(&text), all);
    }
}
