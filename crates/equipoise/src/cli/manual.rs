//! `equipoise man FOLDER`: a manual page for each command, from the definition of the command line.

use std::io;
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use anyhow::Context;
use clap::{Args, Command, CommandFactory};
use clap_mangen::Man;
use clap_mangen::roff::{Roff, roman};

use super::{Cli, EXIT_CODES, NAME};

/// Arguments of `equipoise man`.
#[derive(Debug, Args)]
pub(crate) struct ManArgs {
    /// The folder for the pages: equipoise.1, equipoise-run.1, ...
    folder: PathBuf,
}

/// Runs the command.
pub(crate) fn run(args: &ManArgs) -> anyhow::Result<ExitCode> {
    // Its pages would only say that help is printed.
    let mut all = Cli::command().disable_help_subcommand(true);
    all.build();
    write(&all, &args.folder)?;
    Ok(ExitCode::SUCCESS)
}

/// Writes the page of a command, and those of its subcommands.
fn write(command: &Command, folder: &Path) -> anyhow::Result<()> {
    for below in command.get_subcommands().filter(|it| !it.is_hide_set()) {
        write(below, folder)?;
    }
    let name = command.get_display_name().unwrap_or(NAME).to_owned();
    let file = folder.join(format!("{name}.1"));
    let page = page(command, &name)?;
    std::fs::write(&file, page).with_context(|| format!("cannot write {}", file.display()))
}

fn page(command: &Command, name: &str) -> io::Result<Vec<u8>> {
    let source = format!("{NAME} {}", env!("CARGO_PKG_VERSION"));
    let man = Man::new(command.clone()).title(name.to_uppercase()).source(source);
    let mut out = Vec::new();
    man.render_title(&mut out)?;
    man.render_name_section(&mut out)?;
    man.render_synopsis_section(&mut out)?;
    man.render_description_section(&mut out)?;
    if command.get_arguments().any(|it| !it.is_hide_set()) {
        man.render_options_section(&mut out)?;
    }
    if command.has_subcommands() {
        man.render_subcommands_section(&mut out)?;
    }
    let mut end = Roff::new();
    if name != NAME
        && let Some(notes) = command.get_after_help()
    {
        as_it_is("NOTES", &notes.to_string(), &mut end);
    }
    as_it_is("EXIT STATUS", EXIT_CODES, &mut end);
    if name != NAME {
        end.control("SH", ["SEE ALSO"]);
        end.text([roman(format!("{NAME}(1)"))]);
    }
    end.to_writer(&mut out)?;
    Ok(out)
}

/// A section with the lines of a text.
fn as_it_is(title: &str, text: &str, out: &mut Roff) {
    out.control("SH", [title]);
    out.control("nf", []);
    for line in text.lines() {
        out.text([roman(line)]);
    }
    out.control("fi", []);
}
