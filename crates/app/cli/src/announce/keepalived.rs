//! Check scripts for keepalived.

use std::fmt::Write;
use std::path::Path;

use anyhow::{Context, bail};
use equipoise_basics::files;

use crate::readiness::Address;

const FIRST_LINE: &str =
    "# Written by `equipoise announce --keepalived`. Include this file, and list a script in\n";

/// Writes a script for each address. `options` select the process that it asks.
///
/// # Errors
/// There is no address, the file is another one, or it cannot be written.
pub(super) fn write(file: &Path, addresses: &[Address], options: &str) -> anyhow::Result<()> {
    if addresses.is_empty() {
        bail!("no address besides loopback and wildcards: name one with --address");
    }
    let program = std::env::current_exe().context("cannot find this program's path")?;
    let text = text(&program, addresses, options);
    if file == Path::new("-") {
        out!("{text}");
        return Ok(());
    }
    super::ours(file, FIRST_LINE)?;
    files::replace(file, text.as_bytes(), 0o644)
        .with_context(|| format!("cannot write {}", file.display()))
}

/// keepalived runs a script every second. After two failures the address leaves this machine, and
/// after five successes it comes back.
fn text(program: &Path, addresses: &[Address], options: &str) -> String {
    let mut text = String::from(FIRST_LINE);
    text.push_str("# `track_script` of the vrrp_instance that has its address.\n");
    for Address { address, .. } in addresses {
        let name = address.to_string().replace([':', '.'], "_");
        let program = program.display();
        let _ = write!(
            text,
            "vrrp_script equipoise_{name} {{\n    script \"{program} ready --quiet{options} {address}\"\n    \
             interval 1\n    timeout 3\n    fall 2\n    rise 5\n    user root\n}}\n"
        );
    }
    text
}
