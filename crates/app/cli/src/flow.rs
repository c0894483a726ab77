//! `equipoise flow SOURCE VIP`: explains where a flow goes.

use std::process::ExitCode;

use equipoise_api::routes::packet::FLOW;
use equipoise_api::wire::packet::{FlowAnswer, FlowQuestion};

use crate::output::AnswerArgs;
use crate::process::ApiArgs;

/// Arguments of `equipoise flow`.
#[derive(Debug, clap::Args)]
pub struct Args {
    /// The client's address and port, such as 198.51.100.7:40000
    #[arg(value_name = "IP:PORT")]
    source: String,
    /// The flow's destination, such as 192.0.2.10:443/tcp
    #[arg(value_name = "IP:PORT/PROTOCOL")]
    vip: String,
    /// The sender's MAC address, for VIPs with the key `source-mac`
    #[arg(long)]
    mac: Option<String>,
    #[command(flatten)]
    answer: AnswerArgs,
    #[command(flatten)]
    api: ApiArgs,
}

/// Runs the command.
///
/// # Errors
/// The process that is asked does not answer or refuses, or standard output cannot be written.
pub async fn run(args: Args) -> anyhow::Result<ExitCode> {
    let question = FlowQuestion { source: args.source, vip: args.vip, mac: args.mac };
    let answer = args.api.client().await?.ask(FLOW, &question).await?;
    args.answer.print(&answer, |it| text(&question, it))
}

fn text(question: &FlowQuestion, answer: &FlowAnswer) -> String {
    let mut text = format!("{} -> {}: ", question.source, question.vip);
    match (&answer.backend, &answer.address, &answer.pool) {
        (Some(backend), Some(address), Some(pool)) if answer.verdict == "forwarded" => {
            text.push_str(&format!("backend {pool}/{backend}"));
            if backend != address {
                text.push_str(&format!(" ({address})"));
            }
        }
        _ => text.push_str(&answer.verdict),
    }
    text.push_str(&format!("\n  why: {}\n", answer.why));
    let lines = [
        ("by", &answer.by),
        ("VIP", &answer.vip),
        ("pinned to", &answer.pinned_to),
        ("digest", &answer.digest),
    ];
    for (name, value) in lines {
        if let Some(value) = value {
            text.push_str(&format!("  {name}: {value}\n"));
        }
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_answer_begins_with_the_backend_and_says_why() {
        let question = FlowQuestion {
            source: "198.51.100.7:40000".into(),
            vip: "192.0.2.10:443/tcp".into(),
            mac: None,
        };
        let answer = FlowAnswer {
            verdict: "forwarded".into(),
            vip: Some("192.0.2.10:443/tcp".into()),
            pool: Some("web".into()),
            backend: Some("b1".into()),
            address: Some("10.0.0.1".into()),
            by: Some("ring".into()),
            reason: None,
            digest: Some("00ff".into()),
            pinned_to: None,
            why: "the VIP's table says so".into(),
        };
        assert_eq!(
            text(&question, &answer),
            "198.51.100.7:40000 -> 192.0.2.10:443/tcp: backend web/b1 (10.0.0.1)\n  \
             why: the VIP's table says so\n  by: ring\n  VIP: 192.0.2.10:443/tcp\n  digest: 00ff\n"
        );
        let dropped = FlowAnswer { verdict: "dropped".into(), backend: None, ..answer };
        assert!(
            text(&question, &dropped)
                .starts_with("198.51.100.7:40000 -> 192.0.2.10:443/tcp: dropped\n")
        );
    }
}
