//! `[pool.elastic.process]`, `exec` and `webhook`: the driver of an elastic pool.

use std::collections::BTreeMap;
use std::path::Path;

use equipoise_driver::{
    DriverOptions, ExecOptions, Limits, LogOptions, Ports, ProcessOptions, SizeLimit, Token,
    WebhookOptions,
};
use equipoise_planning::Maker;

use super::problem::Findings;
use super::secret_file::{self, Readers};
use super::tables::{Elastic, ElasticSize, Exec, Process};
use super::text::PortRange;
use super::values::Values;
use super::view::View;
use super::{FileKind, Surroundings};

const KINDS: [&str; 3] = ["process", "exec", "webhook"];

/// Builds the driver of `[pool.elastic]`. `None` if the table has none, or if it has an error.
pub(super) fn maker(
    elastic: &Values,
    is_in_cluster: bool,
    around: &Surroundings<'_>,
    findings: &mut Findings<'_>,
) -> Option<Maker> {
    let given: Vec<&str> = KINDS.into_iter().filter(|kind| elastic.given(kind)).collect();
    let [kind] = given[..] else {
        match given.as_slice() {
            // Another member may create the backends; a controller may only plan.
            [] if is_in_cluster => {}
            [] => {
                let text = "no driver is configured, so the plan is not carried out; add a [pool.elastic.process], \
                            [pool.elastic.exec] or [pool.elastic.webhook] table";
                findings.warning(elastic.at, &elastic.path, text.to_string());
            }
            several => {
                let text = format!("{} are given; accepted: one of them", several.join(" and "));
                findings.error(elastic.at(several[1]), &elastic.path_of(several[1]), text);
            }
        }
        return None;
    };
    let values = elastic.table(kind)?;
    let driver = match kind {
        "process" => DriverOptions::Process(process(values.typed(), elastic.typed())),
        "exec" => DriverOptions::Exec(exec(values.typed())),
        _ => DriverOptions::Webhook(webhook(values, around, findings)?),
    };
    let limits = Limits {
        parallel: elastic.amount("parallel"),
        drain_timeout: elastic.duration("drain-timeout"),
        ..Limits::default()
    };
    let checked = driver.check().and_then(|()| limits.check());
    if let Err(error) = checked
        && !findings.has_error_below(&values.path)
    {
        let table = if error.driver == "elastic" { elastic } else { values };
        let (at, path) = match table.spec.option(error.option) {
            Some(_) => (table.at(error.option), table.path_of(error.option)),
            None => (table.at, table.path.clone()),
        };
        findings.error(at, &path, error.to_string());
    }
    Some(Maker { driver, limits })
}

fn words(texts: Option<&[String]>) -> Vec<String> {
    texts.unwrap_or_default().to_vec()
}

fn variables(texts: &[String]) -> BTreeMap<String, String> {
    let pair = |text: &String| {
        let (name, value) = text.split_once('=')?;
        Some((name.to_string(), value.to_string()))
    };
    texts.iter().filter_map(pair).collect()
}

fn process(values: View<'_, Process>, elastic: View<'_, Elastic>) -> ProcessOptions {
    let defaults = ProcessOptions::default();
    let logs = values.get(Process::LOGS);
    let logs = logs.map(|folder| LogOptions { folder: folder.into(), ..LogOptions::default() });
    ProcessOptions {
        command: words(values.get(Process::COMMAND)),
        environment: variables(values.get(Process::ENVIRONMENT)),
        inherit_environment: values.get(Process::INHERIT_ENVIRONMENT),
        folder: values.get(Process::FOLDER).map(Into::into),
        user: values.get(Process::USER).map(Into::into),
        address: values.get(Process::ADDRESS),
        ports: match values.get(Process::PORTS) {
            PortRange(Some((first, last))) => Ports::Range(first, last),
            PortRange(None) => Ports::Free,
        },
        ready_timeout: values.get(Process::READY_TIMEOUT),
        stop_timeout: values.get(Process::STOP_TIMEOUT),
        logs,
        limits: elastic.get(Elastic::SIZES).iter().filter_map(limit).collect(),
        ..defaults
    }
}

/// The resource limits of a size. `None` if it has none.
fn limit(size: View<'_, ElasticSize>) -> Option<(String, SizeLimit)> {
    let cpus = Some(size.get(ElasticSize::CPUS)).filter(|cpus| *cpus > 0.0);
    let memory_bytes = size.get(ElasticSize::MEMORY);
    let is_limited = cpus.is_some() || memory_bytes.is_some();
    let name = size.get(ElasticSize::NAME)?.to_string();
    is_limited.then_some((name, SizeLimit { cpus, memory_bytes }))
}

fn exec(values: View<'_, Exec>) -> ExecOptions {
    ExecOptions {
        add: words(values.get(Exec::ADD)),
        remove: words(values.get(Exec::REMOVE)),
        list: values.get(Exec::LIST).map(<[String]>::to_vec),
        environment: variables(values.get(Exec::ENVIRONMENT)),
        timeout: values.get(Exec::TIMEOUT),
        ..ExecOptions::default()
    }
}

fn webhook(
    values: &Values,
    around: &Surroundings<'_>,
    findings: &mut Findings<'_>,
) -> Option<WebhookOptions> {
    let token = match values.text("token-file") {
        None => None,
        Some(file) => match (around.read)(Path::new(file), FileKind::Secret) {
            Ok(text) => {
                let readers = Readers::OwnerAndGroup;
                secret_file::warn(values, "token-file", readers, "the token", around, findings);
                Some(Token::new(text.trim_end()))
            }
            Err(error) => {
                let text = format!("\"{file}\" cannot be read: {error}");
                let option = values.path_of("token-file");
                findings.error(values.at("token-file"), &option, text);
                return None;
            }
        },
    };
    Some(WebhookOptions {
        add: values.text("add")?.to_string(),
        remove: values.text("remove")?.to_string(),
        list: values.text("list").map(Into::into),
        token,
        ca: values.text("ca").map(Into::into),
        timeout: values.duration("timeout"),
        tries: values.amount("tries"),
        ..WebhookOptions::default()
    })
}
