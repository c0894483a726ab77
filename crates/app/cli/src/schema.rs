//! `equipoise schema`: prints the schema or the reference page of the configuration file.

use std::io::{self, Write};
use std::process::ExitCode;

use equipoise_config::{reference, schema};

/// Prints the JSON Schema of the configuration file, for editors.
#[derive(Clone, Debug, clap::Args)]
pub struct SchemaArgs {
    /// Print the reference page in Markdown instead.
    #[arg(long)]
    pub reference: bool,
}

/// Runs the command.
///
/// # Errors
/// Standard output cannot be written.
pub fn run(args: &SchemaArgs) -> io::Result<ExitCode> {
    let mut stdout = io::stdout().lock();
    if args.reference {
        stdout.write_all(reference::reference().as_bytes())?;
    } else {
        writeln!(stdout, "{:#}", schema::schema())?;
    }
    Ok(ExitCode::SUCCESS)
}
