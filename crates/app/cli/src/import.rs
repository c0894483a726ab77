//! `equipoise import`: translates the configuration of another balancer, and tries the translation.

mod trial;

use std::io::{Read, Write};
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use anyhow::Context;
use equipoise_config::{self as config, FileKind, Surroundings};
use equipoise_import::{Import, Peer, Verdict};

use self::trial::Outcome;
use crate::view::View;

/// Translates a configuration of HAProxy, nginx, keepalived or ipvsadm.
///
/// Standard output has the translation, with a comment for each line that is not carried or
/// changes behaviour; standard error has those lines, the worst first, and what `equipoise check`
/// finds. Exits 0 if every line is carried or needs nothing, 2 if some line is not or changes
/// behaviour, and 1 if FILE is not understood or the translation cannot be used as it is.
#[derive(Clone, Debug, clap::Args)]
pub struct Args {
    /// haproxy.cfg, the output of `nginx -T`, keepalived.conf, or that of ipvsadm-save; `-`:
    /// standard input
    file: PathBuf,
    /// The program whose configuration it is [default: recognised by the text]
    #[arg(long, value_name = "PROGRAM", value_parser = ["haproxy", "nginx", "keepalived", "ipvsadm"])]
    from: Option<String>,
    /// Write the translation to this file instead, which must not exist
    #[arg(long, value_name = "FILE")]
    out: Option<PathBuf>,
    /// Run the translation on free ports of loopback, beside the old proxy, send both the same GET
    /// and HEAD requests, and print their answers in the place of the translation
    #[arg(long = "try")]
    is_tried: bool,
    /// Print one JSON object: the translation, each line with its result, and with --try the
    /// answers
    #[arg(long)]
    json: bool,
}

/// Runs the command.
///
/// # Errors
/// The file cannot be read or is not understood, the trial cannot be carried out, or the output
/// cannot be written.
pub async fn run(args: Args) -> anyhow::Result<ExitCode> {
    let import = import(&args)?;
    let problems = problems(&import.text);
    if !args.json {
        write(&args, &import)?;
        eprint!("{}", summary(&import, &problems));
    }
    let is_usable = problems.errors.is_empty();
    let outcome = match args.is_tried && is_usable {
        true => Some(trial::run(&import).await?),
        false => None,
    };
    match &outcome {
        _ if args.json => outln!("{}", json(&import, &problems, outcome.as_ref())?),
        Some(outcome) => out!("{}", outcome.page(View::of_stdout())),
        None if args.is_tried => eprintln!("not tried: the translation cannot be used as it is"),
        None => {}
    }
    let is_same = outcome.as_ref().is_none_or(Outcome::is_same);
    let is_whole = import.report.worst().is_empty() && problems.warnings.is_empty() && is_same;
    Ok(match (is_usable, is_whole) {
        (false, _) => ExitCode::FAILURE,
        (true, false) => ExitCode::from(2),
        (true, true) => ExitCode::SUCCESS,
    })
}

fn import(args: &Args) -> anyhow::Result<Import> {
    let text = read(&args.file)?;
    let shown = args.file.display();
    let peer = match args.from.as_deref() {
        Some("haproxy") => Peer::Haproxy,
        Some("nginx") => Peer::Nginx,
        Some("keepalived") => Peer::Keepalived,
        Some(_) => Peer::Ipvsadm,
        None => Peer::of(&text).with_context(|| {
            format!("{shown}: not recognised as a configuration of HAProxy, nginx, keepalived or ipvsadm; name it with --from")
        })?,
    };
    equipoise_import::import(peer, &text).with_context(|| shown.to_string())
}

/// Writes the translation to its file, or to standard output unless answers are for it.
fn write(args: &Args, import: &Import) -> anyhow::Result<()> {
    if let Some(out) = &args.out {
        let mut file = std::fs::File::create_new(out)
            .with_context(|| format!("cannot write {}", out.display()))?;
        file.write_all(import.text.as_bytes())
            .with_context(|| format!("cannot write {}", out.display()))?;
    } else if !args.is_tried {
        out!("{}", import.text);
    }
    Ok(())
}

fn read(path: &Path) -> anyhow::Result<String> {
    let most = FileKind::Config.bytes_max();
    let mut bytes = Vec::new();
    let of = || format!("cannot read {}", path.display());
    if path.as_os_str() == "-" {
        std::io::stdin().lock().take(most + 1).read_to_end(&mut bytes).with_context(of)?;
    } else {
        bytes = equipoise_basics::files::read(path, most).with_context(of)?;
    }
    anyhow::ensure!(bytes.len() as u64 <= most, "{}: larger than {most} bytes", path.display());
    String::from_utf8(bytes).with_context(|| format!("{}: not UTF-8", path.display()))
}

/// The problems that `equipoise check` finds in the translation.
struct Problems {
    errors: Vec<String>,
    warnings: Vec<String>,
}

fn problems(text: &str) -> Problems {
    let file = Path::new("(translation)");
    match config::parse(text, file, &Surroundings::here()) {
        Ok(loaded) => {
            let warnings = loaded.warnings.iter().map(|it| it.in_file(file)).collect();
            Problems { errors: Vec::new(), warnings }
        }
        Err(errors) => {
            let errors = errors.to_string().lines().map(str::to_string).collect();
            Problems { errors, warnings: Vec::new() }
        }
    }
}

fn summary(import: &Import, problems: &Problems) -> String {
    let mut text = String::new();
    for line in import.report.worst() {
        let (result, why) = parts(&line.verdict);
        text.push_str(&format!(
            "line {}: {}\n  {result}: {}\n",
            line.number,
            line.text,
            why.unwrap_or_default()
        ));
    }
    text.push_str(&format!("{}\n", import.report.summary()));
    if problems.errors.is_empty() && problems.warnings.is_empty() {
        text.push_str("equipoise check: valid\n");
    }
    for it in problems.errors.iter().chain(&problems.warnings) {
        text.push_str(&format!("equipoise check: {it}\n"));
    }
    text
}

/// A result in words, and its reason.
fn parts(verdict: &Verdict) -> (&'static str, Option<&str>) {
    match verdict {
        Verdict::NeedsNothing => ("needs nothing", None),
        Verdict::Carried => ("carried", None),
        Verdict::Changes(why) => ("changes behaviour", Some(why)),
        Verdict::Lost(why) => ("not carried", Some(why)),
    }
}

fn json(import: &Import, problems: &Problems, outcome: Option<&Outcome>) -> anyhow::Result<String> {
    let lines = import.report.lines().map(|line| {
        let (result, why) = parts(&line.verdict);
        serde_json::json!({ "line": line.number, "text": line.text, "result": result, "why": why })
    });
    let mut all = serde_json::json!({
        "configuration": import.text,
        "lines": lines.collect::<Vec<_>>(),
        "summary": import.report.summary(),
        "errors": problems.errors,
        "warnings": problems.warnings,
    });
    if let Some(outcome) = outcome {
        all["trial"] = serde_json::to_value(outcome)?;
    }
    Ok(serde_json::to_string_pretty(&all)?)
}
