//! `equipoise why`: explains where a request, connection, query or item would go.

use std::process::ExitCode;

use anyhow::bail;
use equipoise_api::routes::why::WHY;
use equipoise_api::wire::why::{
    FlowProtocol, WhyAnswer, WhyFlow, WhyItem, WhyName, WhyQuestion, WhyRequest,
};

use crate::output::AnswerArgs;
use crate::process::ApiArgs;

/// Arguments of `equipoise why`.
#[derive(Debug, clap::Args)]
pub struct Args {
    /// A URL; tcp or udp with the client's and the destination's IP:PORT; name NAME [TYPE]; or item
    /// STREAM with a slice, key=TEXT or number=N
    #[arg(value_name = "SUBJECT", required = true, num_args = 1..=3)]
    subject: Vec<String>,
    #[command(flatten)]
    details: Details,
    #[command(flatten)]
    answer: AnswerArgs,
    #[command(flatten)]
    api: ApiArgs,
}

/// Details of a request or a query.
#[derive(Debug, Default, clap::Args)]
pub(crate) struct Details {
    /// Method of the request [default: GET]
    #[arg(long)]
    method: Option<String>,
    /// A header field of the request; may be repeated
    #[arg(long = "header", value_name = "NAME: VALUE")]
    headers: Vec<String>,
    /// The client's address [default: 127.0.0.1]
    #[arg(long, value_name = "IP[:PORT]")]
    from: Option<String>,
    /// Name of the front door [default: the one that listens on the URL's port]
    #[arg(long, value_name = "NAME")]
    front_door: Option<String>,
    /// Explain each route that does not match, also if they are many
    #[arg(long)]
    all: bool,
}

/// Runs the command. The exit code is 1 if the process does not take the subject.
///
/// # Errors
/// The subject is none, the process that is asked does not answer or refuses, or standard output
/// cannot be written.
pub async fn run(args: Args) -> anyhow::Result<ExitCode> {
    let words: Vec<_> = args.subject.iter().map(String::as_str).collect();
    let question = question(&words, &args.details)?;
    let answer = args.api.client().await?.ask(WHY, &question).await?;
    args.answer.print(&answer, text)?;
    Ok(if answer.taken { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}

/// The question about a subject.
///
/// # Errors
/// The words are no subject, or the details are not of it.
pub(crate) fn question(words: &[&str], args: &Details) -> anyhow::Result<WhyQuestion> {
    let is_of_request =
        args.method.is_some() || args.front_door.is_some() || !args.headers.is_empty() || args.all;
    let flow = |protocol, from: &str, to: &str| {
        let (from, to) = (from.to_owned(), to.to_owned());
        WhyQuestion { flow: Some(WhyFlow { protocol, from, to }), ..WhyQuestion::default() }
    };
    let question = match *words {
        [url] if url.contains("://") => WhyQuestion {
            request: Some(WhyRequest {
                url: url.to_owned(),
                method: args.method.clone(),
                headers: args.headers.clone(),
                from: args.from.clone(),
                front_door: args.front_door.clone(),
                all_routes: args.all,
            }),
            ..WhyQuestion::default()
        },
        ["tcp", from, to] => flow(FlowProtocol::Tcp, from, to),
        ["udp", from, to] => flow(FlowProtocol::Udp, from, to),
        ["name", name] => of_name(name, None, args),
        ["name", name, record_type] => of_name(name, Some(record_type), args),
        ["item", stream, of] => item(stream, of)?,
        _ => bail!(
            "`{}` is no subject; accepted: a URL, such as https://shop.example/cart; tcp or udp \
             with two addresses, such as tcp 192.0.2.7:4711 198.51.100.1:443; name with a name, \
             such as name shop.example AAAA; or item with a stream and a slice or key, such as \
             item images 3",
            words.join(" ")
        ),
    };
    if is_of_request && question.request.is_none() {
        bail!("--method, --header, --front-door and --all are of a URL");
    }
    if args.from.is_some() && question.request.is_none() && question.name.is_none() {
        bail!("--from is of a URL or a name");
    }
    Ok(question)
}

fn of_name(name: &str, record_type: Option<&str>, args: &Details) -> WhyQuestion {
    let name = name.to_owned();
    let name = WhyName { name, record_type: record_type.map(Into::into), from: args.from.clone() };
    WhyQuestion { name: Some(name), ..WhyQuestion::default() }
}

/// An item of a stream, by its slice or its key.
fn item(stream: &str, of: &str) -> anyhow::Result<WhyQuestion> {
    let mut item = WhyItem { stream: stream.into(), ..WhyItem::default() };
    match of.split_once('=') {
        Some(("key", key)) => item.key = Some(key.into()),
        Some(("number", number)) => item.number = number.parse().ok(),
        _ => item.slice = of.parse().ok(),
    }
    if item.slice.is_none() && item.key.is_none() && item.number.is_none() {
        bail!("`{of}` is no item; accepted: a slice's number, key=TEXT or number=N");
    }
    Ok(WhyQuestion { item: Some(item), ..WhyQuestion::default() })
}

/// The decisions, line by line.
pub(crate) fn text(answer: &WhyAnswer) -> String {
    let mut text = format!("{}: {}\n", answer.subject, answer.outcome);
    for step in &answer.steps {
        text.push_str(&format!("  {}: {}\n", step.level, step.text));
    }
    text
}

#[cfg(test)]
mod tests {
    use clap::Parser;

    use super::*;

    #[derive(clap::Parser)]
    struct Line {
        #[command(flatten)]
        args: Args,
    }

    fn asked(words: &[&str]) -> anyhow::Result<WhyQuestion> {
        let line = Line::try_parse_from(["why"].iter().chain(words))?;
        let words: Vec<_> = line.args.subject.iter().map(String::as_str).collect();
        question(&words, &line.args.details)
    }

    #[test]
    fn a_subject_is_read_by_its_form() {
        let url = "http://a.example/x";
        let question = asked(&[url, "--header", "A: b", "--from", "192.0.2.1"]).unwrap();
        let request = question.request.unwrap();
        assert_eq!((&*request.url, request.from.as_deref()), (url, Some("192.0.2.1")));
        assert_eq!(request.headers, ["A: b"]);
        let flow = asked(&["udp", "192.0.2.1:1", "192.0.2.2:53"]).unwrap().flow.unwrap();
        assert_eq!((flow.protocol, &*flow.to), (FlowProtocol::Udp, "192.0.2.2:53"));
        let name = asked(&["name", "a.example", "AAAA", "--from", "192.0.2.1"]).unwrap();
        assert_eq!(name.name.unwrap().record_type.as_deref(), Some("AAAA"));
        let item = |of: &str| asked(&["item", "images", of]).unwrap().item.unwrap();
        assert_eq!((item("3").slice, item("key=3").key.as_deref()), (Some(3), Some("3")));
        assert_eq!(item("number=-3").number, Some(-3));
        let wrong = [&["a.example"][..], &["tcp", "a"], &["icmp", "a", "b"], &["item", "s", "x"]];
        for wrong in wrong {
            assert!(asked(wrong).unwrap_err().to_string().contains("accepted"), "{wrong:?}");
        }
        assert!(asked(&["tcp", "a", "b", "--from", "c"]).is_err());
    }
}
