//! The state of a member by its own knowledge, for the case that no controller answers.

use std::fmt::Write as _;
use std::path::Path;
use std::process::ExitCode;
use std::time::Duration;

use equipoise_api::client::ClientError as ApiError;
use equipoise_api::routes::process::STATUS;
use equipoise_api::wire::Status;
use equipoise_api::wire::cluster::{ClusterStanding, OwnLoad};
use equipoise_cluster::ClientError;
use serde::Serialize;

use super::members::{cores, seconds};
use crate::controller::line;
use crate::process::{self, Origin};
use crate::secure::TlsArgs;
use crate::table::{Align, Cell, Table, Tone};
use crate::view::View;
use equipoise_basics::with_causes;

/// The output in place of the members.
#[derive(Debug, Serialize)]
struct Alone<'a> {
    /// Answer or error of each controller that was asked.
    unanswered: Vec<String>,
    /// Status of this machine's process.
    node: Option<&'a Status>,
    /// Error of this machine's process, if it does not answer.
    node_problem: Option<String>,
}

/// Prints the knowledge of a member's own process. The command fails, since it could not show the
/// members.
pub(super) fn print(
    asked: anyhow::Result<Status>,
    error: &anyhow::Error,
    json: bool,
) -> anyhow::Result<ExitCode> {
    let controllers = error.downcast_ref::<ClientError>();
    let alone = Alone {
        unanswered: controllers
            .map_or_else(|| vec![with_causes(&**error)], ClientError::by_controller),
        node: asked.as_ref().ok(),
        node_problem: asked.as_ref().err().map(|error| with_causes(&**error)),
    };
    if json {
        outln!("{}", serde_json::to_string_pretty(&alone)?);
        return Ok(ExitCode::FAILURE);
    }
    let mut out = String::new();
    let what = match (controllers, error.downcast_ref()) {
        (Some(error), _) if error.status().is_some() => "a controller refused the request",
        (_, Some(ApiError::Refused(_))) => "this process cannot show the members",
        _ => "no controller answers",
    };
    let _ = writeln!(out, "{what}:");
    for line in &alone.unanswered {
        let _ = writeln!(out, "  {line}");
    }
    out.push('\n');
    match asked {
        Ok(status) => own(&status, &mut out),
        // The error goes to standard output, because it is part of the answer.
        Err(error) => {
            let _ = writeln!(
                out,
                "the process of this machine does not answer either: {}",
                with_causes(&*error)
            );
        }
    }
    out!("{out}");
    Ok(ExitCode::FAILURE)
}

/// Asks the process that runs with this machine's configuration file.
pub(super) async fn ask(file: &Path, origin: Origin) -> anyhow::Result<Status> {
    Ok(process::of_file(file, origin, None, &TlsArgs::default()).await?.ask(STATUS, &()).await?)
}

/// Prints the process's own knowledge. Here and below: writing to a string cannot fail.
fn own(status: &Status, out: &mut String) {
    if let Some(controller) = &status.controller {
        let (name, pid) = (&status.instance, status.pid);
        let _ = writeln!(out, "{name} by its own knowledge (pid {pid}):\n  {}", line(controller));
        return;
    }
    let Some(cluster) = &status.cluster else {
        let _ = writeln!(
            out,
            "{} runs and is in no cluster; check whether its file was changed after the start",
            status.instance
        );
        return;
    };
    let _ = writeln!(
        out,
        "the {} {} by its own knowledge (pid {}):",
        cluster.kind, status.instance, status.pid
    );
    for line in lines(cluster) {
        let _ = writeln!(out, "  {line}");
    }
    out.push('\n');
    controllers(cluster).render(View::PLAIN, out);
    if let Some(load) = &cluster.load {
        out.push('\n');
        own_load(&status.instance, load).render(View::PLAIN, out);
    }
}

fn lines(cluster: &ClusterStanding) -> Vec<String> {
    let ago = |age: f64| seconds(Duration::try_from_secs_f64(age).unwrap_or_default());
    let mut lines = Vec::new();
    lines.push(match (cluster.term, cluster.generation, cluster.age_seconds) {
        (Some(term), Some(generation), Some(age)) => {
            let kept = if cluster.kept { ", saved before its restart" } else { "" };
            format!("follows instructions {term}.{generation} of {} ago{kept}", ago(age))
        }
        _ => "it has received no instructions and follows its file".to_string(),
    });
    lines.push(match cluster.heard_seconds {
        Some(age) => format!("a controller last answered {} ago", ago(age)),
        None => "no controller has answered since it started".to_string(),
    });
    lines.push(match cluster.certificate_seconds {
        Some(left) if left > 0.0 => format!("its certificate is valid for {}", ago(left)),
        Some(_) => "its certificate has expired: it needs a token to join again".to_string(),
        None => "it has not joined: it has no certificate of the cluster".to_string(),
    });
    // The table has the last answer of each controller.
    let told: Vec<&str> =
        cluster.controllers.iter().filter_map(|it| it.problem.as_deref()).collect();
    let others = cluster.problems.iter().filter(|problem| !told.contains(&problem.as_str()));
    lines.extend(others.cloned());
    lines
}

fn controllers(cluster: &ClusterStanding) -> Table {
    let mut table = Table::new(&[
        ("CONTROLLER", Align::Left),
        ("TRIED", Align::Right),
        ("HEARD", Align::Right),
        ("REPORTS", Align::Right),
        ("FAILED", Align::Right),
        ("LAST ERROR", Align::Left),
    ]);
    let ago = |age: Option<f64>| {
        let age = age.and_then(|age| Duration::try_from_secs_f64(age).ok());
        age.map_or_else(|| "never".to_string(), |age| format!("{} ago", seconds(age)))
    };
    for one in &cluster.controllers {
        // The row has the controller's address already, so it is cut from the error.
        let said = one.problem.as_deref().unwrap_or("-");
        let problem = said.strip_prefix(&format!("{}: ", one.address)).unwrap_or(said);
        let tone = if one.problem.is_some() { Tone::Bad } else { Tone::Plain };
        table.row(vec![
            (&one.address).into(),
            ago(one.tried_seconds).into(),
            ago(one.heard_seconds).into(),
            one.reports_taken_total.into(),
            one.reports_failed_total.into(),
            Cell::toned(problem, tone),
        ]);
    }
    table
}

/// The load that a member measured of itself. `equipoise status` of an agent shows it too.
pub(crate) fn own_load(name: &str, load: &OwnLoad) -> Table {
    let mut table = Table::new(&[
        ("MEMBER", Align::Left),
        ("CORES", Align::Right),
        ("CPU", Align::Right),
        ("MACHINE", Align::Right),
        ("MEMORY", Align::Right),
        ("NET", Align::Right),
        ("L1", Align::Right),
        ("L2", Align::Right),
    ]);
    let none = || "-".to_string();
    let percent = |value: Option<f64>| value.map_or_else(none, |value| format!("{value:.0} %"));
    let plain = |value: Option<f64>| value.map_or_else(none, |value| format!("{value:.0}"));
    table.row(vec![
        name.into(),
        cores(load.capacity).into(),
        percent(load.cpu_percent).into(),
        percent(load.machine_cpu_percent).into(),
        percent(load.memory_percent).into(),
        percent(load.net_percent).into(),
        plain(load.l1).into(),
        plain(load.l2).into(),
    ]);
    table
}

#[cfg(test)]
mod tests {
    use equipoise_api::wire::cluster::ControllerContact;

    use super::*;

    fn standing() -> ClusterStanding {
        let contact = |address: &str, problem: Option<&str>| ControllerContact {
            address: address.into(),
            tried_seconds: Some(1.25),
            heard_seconds: problem.map(|_| 42.0),
            reports_taken_total: 310,
            reports_failed_total: 9,
            problem: problem.map(Into::into),
        };
        ClusterStanding {
            kind: "node".into(),
            following: None,
            term: Some(3),
            generation: Some(14),
            age_seconds: Some(42.4),
            heard_seconds: Some(42.0),
            controllers: vec![
                contact("c1:9911", Some("c1:9911: no connection")),
                contact("c2:9911", None),
            ],
            load: None,
            kept: false,
            certificate_seconds: Some(80_000.0),
            problems: vec!["c1:9911: no connection".into(), "disk full".into()],
            stale: 0,
            not_understood: 0,
        }
    }

    #[test]
    fn a_node_shows_its_instructions_and_the_last_contact_per_controller() {
        assert_eq!(
            lines(&standing()),
            [
                "follows instructions 3.14 of 42 s ago",
                "a controller last answered 42 s ago",
                "its certificate is valid for 22 h",
                "disk full",
            ]
        );
        let mut out = String::new();
        controllers(&standing()).render(View::PLAIN, &mut out);
        assert_eq!(
            out,
            "CONTROLLER      TRIED     HEARD  REPORTS  FAILED  LAST ERROR\n\
             c1:9911     1.2 s ago  42 s ago      310       9  no connection\n\
             c2:9911     1.2 s ago     never      310       9  -\n"
        );
    }

    #[test]
    fn a_node_that_never_joined_reports_missing_contact_and_certificate() {
        let fresh = ClusterStanding {
            term: None,
            heard_seconds: None,
            certificate_seconds: None,
            kept: true,
            ..standing()
        };
        assert_eq!(
            lines(&fresh)[..3],
            [
                "it has received no instructions and follows its file",
                "no controller has answered since it started",
                "it has not joined: it has no certificate of the cluster",
            ]
        );
    }
}
