//! The configuration file. In: TOML. Out: a validated [`Config`], or every error of the file.
//!
//! [`tables`] defines each option once. [`read`] checks a document against the tables, option by
//! option. [`users`] finds which front doors, VIPs and names use a pool. [`build`] makes the typed
//! configuration, and [`relations`] checks options against each other. [`schema`] and [`reference`]
//! describe the options for editors and for people.

mod access_log;
mod acme;
mod affinity;
mod api;
mod api_endpoints;
mod authorities;
mod build;
mod checked;
mod cluster;
#[cfg(feature = "slice")]
mod dds_stream;
mod declared;
mod declared_pool;
mod discover;
mod dispatch;
mod dns;
mod door_tls;
mod doors;
mod driver;
pub mod encryption;
mod etcd;
mod files;
mod health;
pub mod hosts;
mod key;
mod labels;
mod limits;
mod loading;
mod loops;
mod named_id;
mod names;
mod option;
mod packet;
mod peer_tls;
mod place;
mod planning;
mod pool_tls;
mod pools;
mod problem;
mod quic;
mod read;
pub mod reference;
mod relations;
mod replacing;
mod routes;
pub mod schema;
mod secret_file;
mod slice;
mod tables;
#[cfg(test)]
mod tests;
mod text;
mod users;
mod values;
mod view;

use std::io;
use std::net::SocketAddr;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use equipoise_acme::Acme;
use equipoise_api::Policy;
use equipoise_api::audit::AuditTarget;
use equipoise_cluster::Cluster;
use equipoise_core::LineFormat;
use equipoise_discovery::Discover;
use equipoise_dns::DnsConfig;
use equipoise_packet::abi::FlowKey;
use equipoise_packet::config::PacketConfig;
use equipoise_planning::Planning;
use equipoise_session::config::{ServerTls, SessionConfig};
use toml::de::DeTable;

pub use api_endpoints::{ApiEndpoints, ApiEndpointsError, api_endpoints};
pub use checked::{asked, checked};
#[cfg(feature = "slice")]
pub use dds_stream::dds_stream;
pub use declared_pool::declared_pool;
pub use dispatch::{node_mode, peer_check_interval, peers_of};
pub use files::FileKind;
pub use loading::Loader;
pub use loading::load;
pub use problem::{ConfigErrors, Problem, Severity, nearest};
pub use replacing::{Basis, Replacement};
pub use slice::{SliceNetwork, SliceStream, SliceType};
pub use tables::Multicast;
pub use text::{AccessLog, SyslogTo};

use key::Options as _;
use option::Choice as _;
use problem::Findings;
use values::Values;
use view::View;

/// A validated configuration.
#[derive(Clone, Debug, PartialEq)]
pub struct Config {
    /// `[instance]`.
    pub instance: Instance,
    /// `[api]`, `[log]`, `[shutdown]`.
    pub operations: Operations,
    /// `[[pool]]`, `[[session]]` and `[[dispatch]]`.
    pub session: SessionConfig,
    /// `[pool.discover]`.
    pub discovery: Vec<Discover>,
    /// `[[packet]]` and `[flows]`.
    pub packet: PacketConfig,
    /// `[load]`, `[controller]` and `[pool.elastic]`.
    pub planning: Planning,
    /// `[cluster]`; `None`: this machine is alone.
    pub cluster: Option<Cluster>,
    /// `[acme]`; `None`: no front door has automatic certificates.
    pub acme: Option<Acme>,
    /// `[tracing]`; `None`: no request is traced.
    pub tracing: Option<Tracing>,
    /// `[[dns]]` and `[nameserver]`.
    pub dns: DnsConfig,
    /// `[[slice]]`.
    pub slices: Vec<SliceStream>,
}

impl Config {
    /// Whether the configuration equals that of an empty file.
    pub fn is_empty(&self) -> bool {
        *self == Config::default()
    }

    /// The folder of this instance's files that outlive the process.
    pub fn state_folder(&self) -> PathBuf {
        equipoise_store::place::folder(self.planning.state.as_deref(), &self.instance.name)
    }
}

/// The process itself: `[instance]`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Instance {
    /// Name of the instance, in `Via` headers and logs; in a cluster, the member's name.
    pub name: Arc<str>,
    /// Data-plane threads; 0 means one for each core.
    pub threads: usize,
    /// Bytes that the process may have allocated; `None`: a share of the memory that it may use.
    pub memory_max: Option<u64>,
}

/// Options for operators: API, logs, shutdown.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Operations {
    /// The API's unix socket.
    pub api_socket: PathBuf,
    /// The API's HTTP address; `None`: the socket only.
    pub api_listen: Option<SocketAddr>,
    /// TLS of that address; `None`: HTTP in the clear.
    pub api_tls: Option<ServerTls>,
    /// Access over TCP: tokens, clients with certificates, and their roles.
    pub api_policy: Policy,
    /// Whether callers may replace the text of the configuration file.
    pub api_write_config: bool,
    /// Destination of the audit log.
    pub audit: AuditTarget,
    /// Least severe level that is logged.
    pub log_level: LogLevel,
    /// Format of log lines.
    pub log_format: LogFormat,
    /// Destination of the access log.
    pub access_log: AccessLog,
    /// Format of the access log.
    pub access_format: LineFormat,
    /// Time between a signal to stop and the refusal of new work.
    pub stop_delay: Duration,
    /// Time for work in flight to finish when the process stops.
    pub grace: Duration,
    /// Time for clients to finish when the process was replaced.
    pub upgrade_grace: Duration,
}

/// Where the spans of requests go.
#[derive(Clone, Debug, PartialEq)]
pub struct Tracing {
    /// The URL of the collector.
    pub otlp: String,
    /// Authorities that its certificate may be of, in PEM; `None`: those of the system.
    pub ca: Option<String>,
    /// Share of requests that are sampled.
    pub sample: f64,
    /// Name of the service.
    pub service: String,
}

/// Least severe level that is logged.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LogLevel {
    /// Something does not work.
    Error,
    /// Something needs attention.
    Warn,
    /// State changes.
    Info,
    /// Causes of state changes.
    Debug,
    /// Everything.
    Trace,
}

/// Format of log lines.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LogFormat {
    /// A line of text for people.
    Text,
    /// A JSON object on a line.
    Json,
}

/// A valid configuration, with warnings.
#[derive(Clone, Debug, PartialEq)]
pub struct Loaded {
    /// The configuration.
    pub config: Config,
    /// Likely mistakes that do not prevent its use.
    pub warnings: Vec<Problem>,
}

/// Facts about this machine that a configuration depends on.
pub struct Surroundings<'r> {
    /// The default of `instance.name`.
    pub host_name: String,
    /// The default of `api.socket`.
    pub api_socket: PathBuf,
    /// Reads a file that the configuration names. Must not block without a limit:
    /// [`equipoise_basics::files`].
    pub read: &'r dyn Fn(&Path, FileKind) -> io::Result<String>,
    /// Permission bits of a file, as for `chmod`.
    pub mode: &'r dyn Fn(&Path) -> io::Result<u32>,
}

impl Surroundings<'static> {
    /// The facts about the machine that this process runs on.
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

/// Default path of the API's unix socket.
pub fn default_api_socket() -> PathBuf {
    // systemd sets this with `RuntimeDirectory=equipoise`; commands run by root look there.
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
        // Without a login session no per-user directory exists that is removed at logout.
        _ => std::env::temp_dir().join(format!("equipoise-{user}.sock")),
    }
}

/// Validates a configuration. Problems name it `file`.
///
/// # Errors
/// [`ConfigErrors`] with every error. After a syntax error, the values that follow cannot be
/// checked; the result then has all syntax errors and no others.
pub fn parse(text: &str, file: &Path, around: &Surroundings<'_>) -> Result<Loaded, ConfigErrors> {
    let mut findings = Findings::new(text);
    let config = read_document(text, &mut findings).map(|values| {
        let file = View::new(&values);
        relations::check(file, around, &mut findings);
        build::config(file, around, &mut findings)
    });
    let usable = !findings.has_errors();
    let problems = findings.into_problems();
    match config {
        Some(config) if usable => Ok(Loaded { config, warnings: problems }),
        _ => Err(ConfigErrors { file: file.into(), problems }),
    }
}

/// Reads every option of a document by itself. `None` after a syntax error.
fn read_document(text: &str, findings: &mut Findings<'_>) -> Option<Values> {
    read_despite(text, findings, |_| true)
}

/// Reads as much as possible of a file with syntax errors. `None` if `matters` accepts the byte
/// position of one of them.
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
            // The TOML parser reports a missing value as an unquoted string.
            message if span.is_empty() && message.starts_with("string values must be quoted") => {
                "no value after `=`"
            }
            message => message,
        };
        findings.error(span.start, "", format!("not TOML: {message}"));
    }
    syntax_errors.is_empty().then(|| read::file(tables::File::TABLE, document.get_ref(), findings))
}

/// Reports a token file that other users can read, and how to fix it. `None` if the file is private
/// or cannot be examined.
pub fn token_file_too_open(file: &Path) -> Option<String> {
    let mode = std::fs::metadata(file).ok()?.permissions().mode();
    secret_file::too_open(file, mode, secret_file::Readers::OwnerAndGroup, "the token")
}

/// Reads a duration in the notation of the configuration file: a number and a unit.
pub fn read_duration(text: &str) -> Option<Duration> {
    text::read_duration(text)
}

/// Validates the name of a backend by the rules of the configuration file.
pub fn name(text: &str) -> Result<String, String> {
    tables::NAME.read(text)
}

/// Validates the name of a DDS topic by the rules of the configuration file.
#[cfg(feature = "slice")]
pub fn topic(text: &str) -> Result<String, String> {
    tables::TOPIC.read(text)
}

/// Validates the name of a DDS type by the rules of the configuration file.
#[cfg(feature = "slice")]
pub fn type_name(text: &str) -> Result<String, String> {
    tables::TYPE.read(text)
}

/// Validates settings of Cyclone DDS by the rules of the configuration file.
#[cfg(feature = "slice")]
pub fn cyclone(text: &str) -> Result<String, String> {
    tables::MORE.read(text)
}

/// The word for a kind of flow key in `[[packet]] key`.
pub fn key_word(key: FlowKey) -> &'static str {
    let any_length = match key {
        FlowKey::SourcePrefix(_) => FlowKey::SourcePrefix(0),
        key => key,
    };
    FlowKey::CHOICES.word(any_length)
}

impl Default for Config {
    fn default() -> Self {
        let loaded = parse("", Path::new("default"), &Surroundings::here());
        loaded.expect("an empty file is valid: a test parses one").config
    }
}
