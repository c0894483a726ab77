//! The configuration file: TOML in, a validated [`Config`] or everything that is wrong with it out.
//!
//! [`tables`] defines every option once. [`read`] checks a document against that, option by option;
//! [`build`] makes the typed configuration and [`relations`] checks what options mean to each other,
//! both by which front doors, VIPs and names use a pool ([`users`]);
//! [`schema`] and [`reference`] describe the options to editors and to people.

mod api;
mod api_endpoints;
mod build;
mod cluster;
mod declared;
mod dispatch;
mod dns;
mod driver;
mod files;
mod labels;
mod loading;
mod names;
mod option;
mod packet;
mod peer_tls;
mod planning;
mod problem;
mod read;
pub mod reference;
mod relations;
pub mod schema;
mod secret_file;
mod slice;
mod tables;
#[cfg(test)]
mod tests;
mod text;
mod users;
mod values;

use std::io;
use std::net::SocketAddr;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use equipoise_api::Policy;
use equipoise_api::audit::AuditTarget;
use equipoise_core::SchedulerKind;
use equipoise_dns::DnsConfig;
use equipoise_packet::abi::{FlowKey, Forward};
use equipoise_packet::config::PacketConfig;
use equipoise_session::config::SessionConfig;
use toml::de::DeTable;

pub(crate) use api_endpoints::{ApiEndpointsError, api_endpoints};
pub use cluster::{Cluster, ClusterRole, EtcdPlace, TokenPlace};
pub use declared::Declaration;
pub(crate) use declared::text_for;
pub(crate) use dispatch::{peer_check_interval, peers_of};
pub use driver::Maker;
pub use files::FileKind;
pub(crate) use loading::Loader;
pub use loading::load;
pub use names::NamesByLoad;
pub use planning::Planning;
pub use problem::{ConfigErrors, Problem, Severity};
pub use slice::{Multicast, SliceNetwork, SliceStream, SliceType};
pub use text::AccessLog;

use problem::Findings;
use values::Values;

/// A validated configuration.
#[derive(Clone, Debug, PartialEq)]
pub struct Config {
    /// `[instance]`.
    pub instance: Instance,
    /// `[api]`, `[log]`, `[shutdown]`.
    pub operations: Operations,
    /// `[[pool]]`, `[[session]]` and `[[dispatch]]`.
    pub session: SessionConfig,
    /// `[[packet]]` and `[flows]`.
    pub packet: PacketConfig,
    /// `[load]`, `[controller]` and `[pool.elastic]`.
    pub planning: Planning,
    /// `[cluster]`; `None`: this machine is alone.
    pub cluster: Option<Cluster>,
    /// `[[dns]]` and `[nameserver]`.
    pub dns: DnsConfig,
    /// `[[slice]]`.
    pub slices: Vec<SliceStream>,
}

impl Config {
    /// Whether the file states nothing, as an empty one does.
    pub(crate) fn is_empty(&self) -> bool {
        *self == Config::default()
    }
}

/// This process.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Instance {
    /// What it calls itself.
    pub name: Arc<str>,
    /// Data-plane threads; 0: one for each core.
    pub threads: usize,
}

/// How the process is watched, steered and stopped.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Operations {
    /// The API's unix socket.
    pub api_socket: PathBuf,
    /// The API's HTTP address; `None`: the socket only.
    pub api_listen: Option<SocketAddr>,
    /// Who may ask the API over TCP.
    pub api_policy: Policy,
    /// Where changes are noted.
    pub audit: AuditTarget,
    /// The least severe events that are logged.
    pub log_level: LogLevel,
    /// How events are written.
    pub log_format: LogFormat,
    /// Where the access log goes.
    pub access_log: AccessLog,
    /// How long what is in flight may take when the process stops.
    pub grace: Duration,
}

/// The least severe events that are logged.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LogLevel {
    /// Something does not work.
    Error,
    /// Something needs attention.
    Warn,
    /// Changes of state.
    Info,
    /// What led to them.
    Debug,
    /// Everything.
    Trace,
}

/// How events are written.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LogFormat {
    /// A line for people.
    Text,
    /// A JSON object on a line.
    Json,
}

/// A configuration that can be used.
#[derive(Clone, Debug, PartialEq)]
pub struct Loaded {
    /// What to do.
    pub config: Config,
    /// What its writer likely did not mean.
    pub warnings: Vec<Problem>,
}

/// What a configuration takes from the machine that it is loaded on.
pub struct Surroundings<'r> {
    /// The default of `instance.name`.
    pub host_name: String,
    /// The default of `api.socket`.
    pub api_socket: PathBuf,
    /// Reads a file that the configuration names. Must not block for good: [`equipoise_files`].
    pub read: &'r dyn Fn(&Path, FileKind) -> io::Result<String>,
    /// A file's permissions, as `chmod` has them.
    pub mode: &'r dyn Fn(&Path) -> io::Result<u32>,
}

impl Surroundings<'static> {
    /// This machine.
    pub fn here() -> Surroundings<'static> {
        let host_name = std::fs::read_to_string("/proc/sys/kernel/hostname").unwrap_or_default();
        let host_name = match host_name.trim() {
            "" => "equipoise".to_string(),
            name => name.to_string(),
        };
        Surroundings {
            host_name,
            api_socket: default_api_socket(),
            read: &files::read,
            mode: &|file| Ok(std::fs::metadata(file)?.permissions().mode()),
        }
    }
}

/// Where the API's unix socket is unless the file says otherwise.
pub fn default_api_socket() -> PathBuf {
    // systemd's `RuntimeDirectory=equipoise` is where root's commands look.
    if let Some(directory) = std::env::var_os("RUNTIME_DIRECTORY").filter(|name| !name.is_empty()) {
        return Path::new(&directory).join("api.sock");
    }
    // SAFETY: geteuid reads a number of this process and cannot fail.
    let user = unsafe { libc::geteuid() };
    if user == 0 {
        return "/run/equipoise/api.sock".into();
    }
    match std::env::var_os("XDG_RUNTIME_DIR") {
        Some(directory) if !directory.is_empty() => Path::new(&directory).join("equipoise.sock"),
        // Without a login session there is no directory of the user's own that vanishes with it.
        _ => std::env::temp_dir().join(format!("equipoise-{user}.sock")),
    }
}

/// Validates a configuration; `file` is what problems call it.
///
/// # Errors
/// [`ConfigErrors`] with every error. What follows a syntax error cannot be judged, so where there is
/// one, only the syntax errors are given: all of them.
pub fn parse(text: &str, file: &Path, around: &Surroundings<'_>) -> Result<Loaded, ConfigErrors> {
    let mut findings = Findings::new(text);
    let config = read_document(text, &mut findings).map(|values| {
        relations::check(&values, around, &mut findings);
        build::config(&values, around, &mut findings)
    });
    let usable = !findings.has_errors();
    let problems = findings.into_problems();
    match config {
        Some(config) if usable => Ok(Loaded { config, warnings: problems }),
        _ => Err(ConfigErrors { file: file.into(), problems }),
    }
}

/// Every option of a document, each by itself; `None` after a syntax error.
fn read_document(text: &str, findings: &mut Findings<'_>) -> Option<Values> {
    read_despite(text, findings, |_| true)
}

/// Reads what can be read of a file with syntax errors, or nothing if one of them `matters` by the byte where it is.
fn read_despite(
    text: &str,
    findings: &mut Findings<'_>,
    matters: impl Fn(usize) -> bool,
) -> Option<Values> {
    let (document, mut syntax_errors) = DeTable::parse_recoverable(text);
    syntax_errors.retain(|error| matters(error.span().unwrap_or_default().start));
    for error in &syntax_errors {
        let span = error.span().unwrap_or_default();
        let message = match error.message() {
            // The parser calls an absent value an unquoted string.
            message if span.is_empty() && message.starts_with("string values must be quoted") => {
                "no value after `=`"
            }
            message => message,
        };
        findings.error(span.start, "", format!("not TOML: {message}"));
    }
    syntax_errors.is_empty().then(|| read::file(&tables::FILE, document.get_ref(), findings))
}

/// Why a token's file that was named on the command line is open to others, and what to do.
pub(crate) fn token_file_too_open(file: &Path) -> Option<String> {
    let mode = std::fs::metadata(file).ok()?.permissions().mode();
    secret_file::too_open(file, mode, secret_file::Readers::OwnerAndGroup, "the token")
}

/// A number and a unit, as the file has durations.
pub(crate) fn read_duration(text: &str) -> Option<Duration> {
    text::read_duration(text)
}

/// A topic of DDS, as the file has them.
#[cfg(feature = "slice")]
pub(crate) fn topic(text: &str) -> Result<String, String> {
    tables::TOPIC.read(text)
}

/// A type's name in DDS, as the file has it.
#[cfg(feature = "slice")]
pub(crate) fn type_name(text: &str) -> Result<String, String> {
    tables::TYPE.read(text)
}

/// More configuration of Cyclone DDS, as the file has it.
#[cfg(feature = "slice")]
pub(crate) fn cyclone(text: &str) -> Result<String, String> {
    tables::MORE.read(text)
}

/// `[[packet]] forward` as the file says it.
pub(crate) fn forward_word(forward: Forward) -> &'static str {
    tables::FORWARD.word(forward)
}

/// `[[packet]] key` as the file says it.
pub(crate) fn key_word(key: FlowKey) -> &'static str {
    tables::FLOW_KEY.word(key)
}

/// `[[packet]] scheduler` as the file says it.
pub(crate) fn packet_scheduler_word(scheduler: SchedulerKind) -> &'static str {
    tables::PACKET_SCHEDULER.word(scheduler)
}

impl Default for Config {
    fn default() -> Self {
        let loaded = parse("", Path::new("default"), &Surroundings::here());
        loaded.expect("an empty file is valid: a test parses one").config
    }
}
