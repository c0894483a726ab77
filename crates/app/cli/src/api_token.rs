//! `equipoise api-token FILE`: creates a token for the API.

use std::fs::OpenOptions;
use std::io::{self, Write as _};
use std::os::unix::fs::OpenOptionsExt;
use std::path::PathBuf;
use std::process::ExitCode;

use anyhow::Context;
use equipoise_api::{Token, TokenDigest};
use serde::Serialize;

use crate::argument::warn_of_token_file;
use crate::output::AnswerArgs;

/// Arguments of `equipoise api-token`.
#[derive(Debug, clap::Args)]
pub struct Args {
    /// The file to create (mode 0600), or an existing token file
    #[arg(value_name = "FILE")]
    file: PathBuf,
    #[command(flatten)]
    answer: AnswerArgs,
}

/// The table of the configuration that accepts the token.
#[derive(Debug, Serialize)]
struct Accepting {
    file: PathBuf,
    hash: String,
}

/// Runs the command.
///
/// # Errors
/// The process that is asked does not answer or refuses, or standard output cannot be written.
pub fn run(args: &Args) -> anyhow::Result<ExitCode> {
    let path = args.file.display();
    let token = match make(args) {
        Ok(token) => token,
        Err(error) if error.kind() == io::ErrorKind::AlreadyExists => {
            let text = std::fs::read_to_string(&args.file);
            let text = text.with_context(|| format!("cannot read {path}"))?;
            let token = text.parse();
            let token = token.with_context(|| format!("{path} exists and is not a token file"))?;
            warn_of_token_file(&args.file);
            token
        }
        Err(error) => return Err(error).with_context(|| format!("cannot create {path}")),
    };
    let absolute = std::path::absolute(&args.file).unwrap_or_else(|_| args.file.clone());
    let digest = TokenDigest::of(token.reveal().as_bytes());
    let accepting = Accepting { file: absolute, hash: digest.to_string() };
    args.answer.print(&accepting, |Accepting { file, hash }| {
        format!(
            "# The token is in {path}. Add this table to the configuration, with the name and role that you want:\n\
             [[api.token]]\nname = \"operator\"\nrole = \"operate\"\nfile = {:?}\n\
             # or, to keep the token off that machine, in place of `file`:\n\
             # hash = \"{hash}\"\n",
            file.display().to_string()
        )
    })
}

/// Creates a token in a new file.
fn make(args: &Args) -> io::Result<Token> {
    let token = Token::of_randomness(rand::random());
    let mut file = OpenOptions::new().create_new(true).write(true).mode(0o600).open(&args.file)?;
    writeln!(file, "{}", token.reveal())?;
    Ok(token)
}
