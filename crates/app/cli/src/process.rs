//! Selects the running process that a command asks, by one rule for all commands.
//!
//! `--api` names its API, and `--config` its configuration file. Without them, the variables
//! `EQUIPOISE_API` and `EQUIPOISE_CONFIG` do, in this order; then the default file and the default
//! socket. If a process was named, no other process is asked in its place.

use std::ffi::OsString;
use std::fmt;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};

use anyhow::{Context, anyhow, bail};
use equipoise_api::Token;
use equipoise_api::client::{Client, ClientError, Endpoint, Place};

use crate::argument::{DEFAULT_CONFIG, warn_of_token_file};
use crate::secure::TlsArgs;
use equipoise_api::routes::process::STATUS;
use equipoise_basics::with_causes;
use equipoise_config::{self as config, ApiEndpointsError};

const API_VARIABLE: &str = "EQUIPOISE_API";
const CONFIG_VARIABLE: &str = "EQUIPOISE_CONFIG";
/// The token is not an argument, because every user can read the arguments of processes.
const TOKEN_VARIABLE: &str = "EQUIPOISE_API_TOKEN";

/// The arguments that select the process.
#[derive(Clone, Debug, Default, clap::Args)]
pub(crate) struct ApiArgs {
    /// Ask the equipoise with this API: the path of its unix socket, http://HOST:PORT or
    /// https://HOST:PORT [env: EQUIPOISE_API]
    #[arg(long, value_name = "SOCKET|URL", conflicts_with = "config")]
    api: Option<Endpoint>,
    /// Ask the equipoise that runs with this file; about the cluster, its controllers [env:
    /// EQUIPOISE_CONFIG, if no EQUIPOISE_API]
    #[arg(long, value_name = "FILE")]
    config: Option<PathBuf>,
    /// A file with the token for HTTP; without it, EQUIPOISE_API_TOKEN is the token
    #[arg(long, env = "EQUIPOISE_API_TOKEN_FILE", value_name = "FILE")]
    token_file: Option<PathBuf>,
    #[command(flatten)]
    tls: TlsArgs,
}

/// The way in which the process was named.
enum Named {
    Api(Endpoint, Origin),
    File(PathBuf, Origin),
    Nothing,
}

/// Where a command about the cluster sends its request.
pub(crate) enum ClusterPlace {
    /// To the API of a member.
    Api(Client),
    /// To the controllers in this machine's file.
    File(PathBuf, Origin),
}

/// The source of the process's name.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Origin {
    Flag(&'static str),
    Variable(&'static str),
    Default,
}

impl fmt::Display for Origin {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Origin::Flag(flag) => write!(f, "from {flag}"),
            Origin::Variable(variable) => write!(f, "from the variable {variable}"),
            Origin::Default => f.write_str("the default"),
        }
    }
}

impl ApiArgs {
    /// The options with which another command asks the same process. A token in a variable is not
    /// among them.
    pub(crate) fn options(&self) -> anyhow::Result<String> {
        let mut options = match self.named()? {
            Named::Api(endpoint, _) => vec![("--api", endpoint.to_string())],
            Named::File(file, _) => vec![("--config", absolute(&file)?)],
            Named::Nothing => Vec::new(),
        };
        let token_file = self.token_file.as_ref().map(|file| ("--token-file", file));
        for (option, file) in token_file.into_iter().chain(self.tls.files()) {
            options.push((option, absolute(file)?));
        }
        if let Some((option, value)) = options
            .iter()
            .find(|(_, value)| value.contains(|c: char| c.is_whitespace() || c == '"'))
        {
            bail!("{option} {value:?} has white space or quotes; accepted: a path without");
        }
        Ok(options.iter().map(|(option, value)| format!(" {option} {value}")).collect())
    }

    /// A client of the named process, or of the default one.
    pub(crate) async fn client(self) -> anyhow::Result<Client> {
        let token = self.token()?;
        let client = match self.named()? {
            Named::Api(endpoint, origin) => self.stated(endpoint, origin)?,
            Named::File(file, origin) => of_file(&file, origin, token.as_ref(), &self.tls).await?,
            Named::Nothing => Client::new(usual()?),
        };
        Ok(client.with_token(token))
    }

    /// Where commands about the cluster send their request.
    pub(crate) fn cluster_place(self) -> anyhow::Result<ClusterPlace> {
        Ok(match self.named()? {
            Named::Api(endpoint, origin) => {
                let client = self.stated(endpoint, origin)?.with_token(self.token()?);
                ClusterPlace::Api(client)
            }
            Named::File(file, origin) => ClusterPlace::File(file, origin),
            Named::Nothing => ClusterPlace::File(DEFAULT_CONFIG.into(), Origin::Default),
        })
    }

    /// A client of an endpoint that was named directly.
    fn stated(&self, endpoint: Endpoint, origin: Origin) -> anyhow::Result<Client> {
        let tls = match &endpoint {
            Endpoint::Tls(_) => Some(self.tls.by_url()?),
            Endpoint::Unix(_) | Endpoint::Tcp(_) => None,
        };
        Ok(Client::new(stated(endpoint, origin)).with_tls(tls))
    }

    fn named(&self) -> anyhow::Result<Named> {
        if let Some(endpoint) = &self.api {
            return Ok(Named::Api(endpoint.clone(), Origin::Flag("--api")));
        }
        if let Some(file) = &self.config {
            return Ok(Named::File(file.clone(), Origin::Flag("--config")));
        }
        if let Some(text) = variable(API_VARIABLE) {
            let text = text.to_string_lossy();
            let endpoint = text.parse().with_context(|| format!("the variable {API_VARIABLE}"))?;
            return Ok(Named::Api(endpoint, Origin::Variable(API_VARIABLE)));
        }
        Ok(match variable(CONFIG_VARIABLE) {
            Some(file) => Named::File(file.into(), Origin::Variable(CONFIG_VARIABLE)),
            None => Named::Nothing,
        })
    }

    fn token(&self) -> anyhow::Result<Option<Token>> {
        if let Some(file) = &self.token_file {
            let path = file.display();
            let text = std::fs::read_to_string(file)
                .with_context(|| format!("cannot read the token file {path}"))?;
            let token = text.parse().with_context(|| format!("{path} is not a token file"))?;
            warn_of_token_file(file);
            return Ok(Some(token));
        }
        match std::env::var(TOKEN_VARIABLE) {
            Ok(text) if !text.is_empty() => {
                let token =
                    text.parse().with_context(|| format!("{TOKEN_VARIABLE} is not a token"))?;
                Ok(Some(token))
            }
            _ => Ok(None),
        }
    }
}

fn absolute(file: &Path) -> anyhow::Result<String> {
    let file = std::path::absolute(file)?;
    Ok(file.to_str().with_context(|| format!("{} is not UTF-8", file.display()))?.to_owned())
}

/// A variable of the environment; `None` if it is empty.
fn variable(name: &str) -> Option<OsString> {
    std::env::var_os(name).filter(|value| !value.is_empty())
}

/// The place of an endpoint that was named directly.
fn stated(endpoint: Endpoint, origin: Origin) -> Place {
    let is_file = matches!(&endpoint, Endpoint::Unix(path) if path.is_file());
    let mut place = Place { origin: origin.to_string(), ..Place::from(endpoint) };
    if is_file {
        place.advice =
            "this is a file, not a socket; name a configuration file with --config".into();
    }
    place
}

/// The place if none is named.
fn usual() -> anyhow::Result<Place> {
    usual_of(Path::new(DEFAULT_CONFIG), config::default_api_socket())
}

/// The socket that the file states, otherwise the default one, `own`. The file's is often that of a
/// service. If this user cannot connect to that one, a command without it means the process that
/// the user has started.
fn usual_of(file: &Path, own: PathBuf) -> anyhow::Result<Place> {
    match config::api_endpoints(file) {
        Ok(endpoints) => {
            if let Some(socket) = endpoints.socket
                && (listens(&socket) || !listens(&own))
            {
                return Ok(stated_in(file, Endpoint::Unix(socket), "api.socket", Origin::Default));
            }
        }
        // Most machines do not have this file, and not every user may read it.
        Err(ApiEndpointsError::Unread(_)) => {}
        Err(ApiEndpointsError::Wrong(errors)) => return Err(errors.into()),
    }
    Ok(stated(Endpoint::Unix(own), Origin::Default))
}

/// Whether a process listens at the socket that this user may ask.
fn listens(socket: &Path) -> bool {
    UnixStream::connect(socket).is_ok()
}

/// The place of an endpoint that an option of a file states.
fn stated_in(file: &Path, endpoint: Endpoint, option: &str, origin: Origin) -> Place {
    let path = file.display();
    Place {
        endpoint,
        origin: format!("`{option}` of {path}, {origin}"),
        advice: format!(
            "start it with `equipoise run {path}`; if it runs, its file was changed after the start: name its API with --api"
        ),
    }
}

/// A client of the process that runs with a file. If the file states no socket, the default sockets
/// may belong to processes with other files. The client then uses only a process that reports this
/// file.
pub(crate) async fn of_file(
    file: &Path,
    origin: Origin,
    token: Option<&Token>,
    secure: &TlsArgs,
) -> anyhow::Result<Client> {
    let endpoints = match config::api_endpoints(file) {
        Ok(endpoints) => endpoints,
        Err(ApiEndpointsError::Wrong(errors)) => return Err(errors.into()),
        Err(ApiEndpointsError::Unread(error)) => {
            bail!("cannot read {} ({origin}): {error}", file.display());
        }
    };
    if let Some(socket) = endpoints.socket {
        let place = stated_in(file, Endpoint::Unix(socket), "api.socket", origin);
        return Ok(Client::new(place));
    }
    let sockets = [Some(config::default_api_socket()), endpoints.agent_socket];
    let sockets = sockets.into_iter().flatten().map(|socket| Place::from(Endpoint::Unix(socket)));
    let chains = endpoints.tls_chains;
    let listen = endpoints.listen.map(reachable).map(|address| {
        let endpoint = if chains.is_some() { Endpoint::Tls } else { Endpoint::Tcp };
        stated_in(file, endpoint(address.to_string()), "api.listen", origin)
    });
    let mut failures = Vec::new();
    for place in sockets.chain(listen) {
        let tls = match (&place.endpoint, &chains) {
            (Endpoint::Tls(_), Some(chains)) => match secure.by_chains(chains) {
                Ok(tls) => Some(tls),
                Err(error) => {
                    failures.push(format!("{}: {error:#}", place.endpoint));
                    continue;
                }
            },
            _ => None,
        };
        let client = Client::new(place).with_tls(tls).with_token(token.cloned());
        let failure = match client.ask(STATUS, &()).await {
            Ok(status) if is_same(file, Path::new(&status.config_file)) => return Ok(client),
            // The command itself will be refused too, with an error that names the missing right.
            Err(ClientError::Refused(problem)) if matches!(problem.status, 401 | 403) => {
                return Ok(client);
            }
            Ok(status) => format!("this equipoise runs with {}", status.config_file),
            Err(ClientError::NotRunning { source, .. }) => source.to_string(),
            Err(error) => with_causes(&error),
        };
        failures.push(format!("{}: {failure}", client.place().endpoint));
    }
    let file = file.display();
    Err(anyhow!(
        "no equipoise that runs with {file} answers ({origin}; the file states no `api.socket`): start it with `equipoise run \
         {file}`, or name its API with --api; tried: {}",
        failures.join("; ")
    ))
}

/// Whether both paths lead to the same file.
fn is_same(one: &Path, other: &Path) -> bool {
    let resolved = |path: &Path| path.canonicalize().or_else(|_| std::path::absolute(path)).ok();
    resolved(one) == resolved(other)
}

/// An address at which this machine reaches a listener, which may listen on all addresses.
fn reachable(listen: SocketAddr) -> SocketAddr {
    let ip = match listen.ip() {
        IpAddr::V4(ip) if ip.is_unspecified() => Ipv4Addr::LOCALHOST.into(),
        IpAddr::V6(ip) if ip.is_unspecified() => Ipv6Addr::LOCALHOST.into(),
        ip => ip,
    };
    SocketAddr::new(ip, listen.port())
}

#[cfg(test)]
mod tests {
    use std::os::unix::net::UnixListener;

    use super::*;

    #[test]
    fn without_a_service_a_command_asks_the_process_of_the_user() {
        let folder = std::env::temp_dir().join(format!("equipoise-usual-{}", std::process::id()));
        std::fs::create_dir_all(&folder).expect("a folder");
        let path = |name: &str| folder.join(name);
        let (file, service, own) = (path("e.toml"), path("service.sock"), path("own.sock"));
        let asked = || usual_of(&file, own.clone()).expect("a place").endpoint;
        let (of_service, of_own) = (Endpoint::Unix(service.clone()), Endpoint::Unix(own.clone()));
        assert_eq!(asked(), of_own, "there is no file");
        std::fs::write(&file, format!("[api]\nsocket = {service:?}\n")).expect("a file");
        assert_eq!(asked(), of_service, "neither runs, and the error names the service");
        let of_user = UnixListener::bind(&own).expect("a socket");
        assert_eq!(asked(), of_own);
        let running = UnixListener::bind(&service).expect("a socket");
        assert_eq!(asked(), of_service, "both run");
        drop((of_user, running));
        std::fs::remove_dir_all(&folder).expect("the folder is ours");
    }
}
