//! `[pool.elastic.process]`, `exec` and `webhook`: the driver of an elastic pool.

use std::collections::BTreeMap;
use std::path::Path;

use equipoise_driver::{
    DriverOptions, ExecOptions, Limits, LogOptions, Ports, ProcessOptions, SizeLimit, Token,
    WebhookOptions,
};
use equipoise_planning::Maker;

use super::key::{Any, Key, Options};
use super::problem::Findings;
use super::secret_file::{self, Readers};
use super::tables::{Elastic, ElasticSize, Exec, Process, Webhook};
use super::text::PortRange;
use super::view::{Location, View};
use super::{FileKind, Surroundings};

const KINDS: [Key<Elastic, Any>; 3] =
    [Elastic::PROCESS.any(), Elastic::EXEC.any(), Elastic::WEBHOOK.any()];

/// Builds the driver of `[pool.elastic]`. `None` if the table has none, or if it has an error.
pub(super) fn maker(
    elastic: View<'_, Elastic>,
    is_in_cluster: bool,
    around: &Surroundings<'_>,
    findings: &mut Findings<'_>,
) -> Option<Maker> {
    let given: Vec<_> = KINDS.into_iter().filter(|kind| elastic.given(*kind)).collect();
    let [_] = given[..] else {
        match given[..] {
            // Another member may create the backends; a controller may only plan.
            [] if is_in_cluster => {}
            [] => {
                let text = "no driver is configured, so the plan is not carried out; add a [pool.elastic.process], \
                            [pool.elastic.exec] or [pool.elastic.webhook] table";
                findings.warning(elastic.start(), elastic.path(), text.to_string());
            }
            [_, second, ..] | [second] => {
                let names: Vec<_> = given.iter().map(|kind| kind.name()).collect();
                let text = format!("{} are given; accepted: one of them", names.join(" and "));
                findings.error(elastic.at(second), &elastic.path_of(second), text);
            }
        }
        return None;
    };
    if let Some(values) = elastic.get(Elastic::PROCESS) {
        let driver = DriverOptions::Process(process(values, elastic));
        return Some(checked(driver, values, elastic, findings));
    }
    if let Some(values) = elastic.get(Elastic::EXEC) {
        return Some(checked(DriverOptions::Exec(exec(values)), values, elastic, findings));
    }
    let values = elastic.get(Elastic::WEBHOOK)?;
    let driver = DriverOptions::Webhook(webhook(values, around, findings)?);
    Some(checked(driver, values, elastic, findings))
}

/// Checks the options of a driver, which are those of `values`.
fn checked<T: Options>(
    driver: DriverOptions,
    values: View<'_, T>,
    elastic: View<'_, Elastic>,
    findings: &mut Findings<'_>,
) -> Maker {
    let limits = Limits {
        parallel: elastic.get(Elastic::PARALLEL),
        drain_timeout: elastic.get(Elastic::DRAIN_TIMEOUT),
        ..Limits::default()
    };
    let checked = driver.check().and_then(|()| limits.check());
    if let Err(error) = checked
        && !findings.has_error_below(values.path())
    {
        let Location { at, path } = match error.driver {
            "elastic" => named(elastic, error.option),
            _ => named(values, error.option),
        };
        findings.error(at, &path, error.to_string());
    }
    Maker { driver, limits }
}

/// The place of the option of that name, or of the table if it has none.
fn named<T: Options>(table: View<'_, T>, option: &str) -> Location {
    match Key::named(option) {
        Some(option) => table.location::<T, Any>(option),
        None => Location { at: table.start(), path: table.path().to_string() },
    }
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
    values: View<'_, Webhook>,
    around: &Surroundings<'_>,
    findings: &mut Findings<'_>,
) -> Option<WebhookOptions> {
    let token = match values.get(Webhook::TOKEN_FILE) {
        None => None,
        Some(file) => match (around.read)(Path::new(file), FileKind::Secret) {
            Ok(text) => {
                let readers = Readers::OwnerAndGroup;
                secret_file::warn(
                    values,
                    Webhook::TOKEN_FILE,
                    readers,
                    "the token",
                    around,
                    findings,
                );
                Some(Token::new(text.trim_end()))
            }
            Err(error) => {
                let text = format!("\"{file}\" cannot be read: {error}");
                let option = values.path_of(Webhook::TOKEN_FILE);
                findings.error(values.at(Webhook::TOKEN_FILE), &option, text);
                return None;
            }
        },
    };
    Some(WebhookOptions {
        add: values.get(Webhook::ADD)?.to_string(),
        remove: values.get(Webhook::REMOVE)?.to_string(),
        list: values.get(Webhook::LIST).map(Into::into),
        token,
        ca: values.get(Webhook::CA).map(Into::into),
        timeout: values.get(Webhook::TIMEOUT),
        tries: values.get(Webhook::TRIES),
        ..WebhookOptions::default()
    })
}
