//! Check scripts for keepalived.

use std::fmt::Write;
use std::path::Path;

use anyhow::Context;
use equipoise_basics::files;

use crate::readiness::Address;

/// Writes a script for each address.
///
/// # Errors
/// The file cannot be written.
pub(super) fn write(file: &Path, addresses: &[Address]) -> anyhow::Result<()> {
    let program = std::env::current_exe().context("cannot find this program's path")?;
    let text = text(&program, addresses);
    if file == Path::new("-") {
        out!("{text}");
        return Ok(());
    }
    files::replace(file, text.as_bytes(), 0o644)
        .with_context(|| format!("cannot write {}", file.display()))
}

/// keepalived runs a script every second. After two failures the address leaves this machine, and
/// after five successes it comes back.
fn text(program: &Path, addresses: &[Address]) -> String {
    let mut text = String::from(
        "# Written by `equipoise announce --keepalived`. Include this file, and list a script in\n\
         # `track_script` of the vrrp_instance that has its address.\n",
    );
    for Address { address, .. } in addresses {
        let name = address.to_string().replace([':', '.'], "_");
        let program = program.display();
        let _ = write!(
            text,
            "vrrp_script equipoise_{name} {{\n    script \"{program} ready --quiet {address}\"\n    \
             interval 1\n    timeout 3\n    fall 2\n    rise 5\n    user root\n}}\n"
        );
    }
    text
}
