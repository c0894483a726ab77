//! `equipoise flow CLIENT VIP`: explains where a flow goes; with `--source`, which clients a source
//! of full-nat has.

use std::process::ExitCode;

use equipoise_api::routes::packet::{CLIENTS, FLOW};
use equipoise_api::wire::packet::{
    FlowAnswer, FlowQuestion, SourceFlow, SourceFlows, SourceQuestion,
};

use crate::output::AnswerArgs;
use crate::process::ApiArgs;

/// Arguments of `equipoise flow`.
#[derive(Debug, clap::Args)]
pub struct Args {
    /// The client's address and port, such as 198.51.100.7:40000
    #[arg(value_name = "CLIENT", required_unless_present = "source", requires = "vip")]
    client: Option<String>,
    /// The flow's destination, such as 192.0.2.10:443/tcp
    #[arg(value_name = "VIP")]
    vip: Option<String>,
    /// The sender's MAC address, for VIPs with the key `source-mac`
    #[arg(long)]
    mac: Option<String>,
    /// full-nat: find the clients of this address and port, which backends see
    #[arg(long, value_name = "IP:PORT", conflicts_with_all = ["client", "mac"])]
    source: Option<String>,
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
    let client = args.api.client().await?;
    if let Some(source) = &args.source {
        let found = client.ask(CLIENTS, &SourceQuestion { source: source.clone() }).await?;
        let code = if found.flows.is_empty() { ExitCode::FAILURE } else { ExitCode::SUCCESS };
        return args.answer.print(&found, |found| clients(source, found)).map(|_| code);
    }
    let (first, second) = (args.client.unwrap_or_default(), args.vip.unwrap_or_default());
    let (source, vip) = flow_then_vip(first, second);
    let question = FlowQuestion { source, vip, mac: args.mac };
    let answer = client.ask(FLOW, &question).await?;
    args.answer.print(&answer, |it| text(&question, it))
}

/// The flow and the VIP, given in either order: a VIP ends with its protocol.
pub(crate) fn flow_then_vip(first: String, second: String) -> (String, String) {
    let is_vip = |text: &str| text.ends_with("/tcp") || text.ends_with("/udp");
    if is_vip(&first) && !is_vip(&second) { (second, first) } else { (first, second) }
}

/// The clients of a source.
fn clients(source: &str, found: &SourceFlows) -> String {
    if found.flows.is_empty() {
        return format!("no flow has the source {source}\n");
    }
    let mut text = String::new();
    for SourceFlow { client, vip, pool, backend, idle_seconds } in &found.flows {
        let backend = backend.as_ref().map_or_else(
            || "a backend that has left".to_owned(),
            |backend| format!("backend {pool}/{backend}"),
        );
        text.push_str(&format!(
            "{client} -> {vip}: {backend} sees {source}, last packet {idle_seconds} s ago\n"
        ));
    }
    text
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
        ("source at the backend", &answer.source),
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
    fn flow_and_vip_may_be_given_in_either_order() {
        let (flow, vip) = ("198.51.100.7:40000", "192.0.2.10:443/tcp");
        for (first, second) in [(flow, vip), (vip, flow)] {
            let ordered = flow_then_vip(first.into(), second.into());
            assert_eq!(ordered, (flow.to_owned(), vip.to_owned()));
        }
    }

    #[test]
    fn a_flow_explanation_starts_with_the_result_and_gives_the_reason() {
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
            source: Some("10.0.0.200:5003".into()),
            reason: None,
            digest: Some("00ff".into()),
            pinned_to: None,
            why: "the VIP's table says so".into(),
        };
        assert_eq!(
            text(&question, &answer),
            "198.51.100.7:40000 -> 192.0.2.10:443/tcp: backend web/b1 (10.0.0.1)\n  \
             why: the VIP's table says so\n  source at the backend: 10.0.0.200:5003\n  by: ring\n  VIP: 192.0.2.10:443/tcp\n  digest: 00ff\n"
        );
        let dropped = FlowAnswer { verdict: "dropped".into(), backend: None, ..answer };
        assert!(
            text(&question, &dropped)
                .starts_with("198.51.100.7:40000 -> 192.0.2.10:443/tcp: dropped\n")
        );
    }
}
