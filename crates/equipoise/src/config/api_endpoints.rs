//! Endpoints at which the process of a configuration file answers.
//!
//! Of the file, this needs `[api]` alone: faults of other tables, and files that it names, are no concern of a command
//! which only looks for the process.

use std::io;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};

use super::problem::Findings;
use super::text::ApiListen;
use super::{ConfigErrors, FileKind, cluster, default_api_socket, files, read_document};

/// Endpoints of a process, as its file states them.
#[derive(Debug)]
pub(crate) struct ApiEndpoints {
    /// `api.socket`; `None`: the usual one.
    pub(crate) socket: Option<PathBuf>,
    /// The socket of `equipoise agent` by this file; `None` without `[cluster]`.
    pub(crate) agent_socket: Option<PathBuf>,
    /// `api.listen`; `None` if the file does not state it.
    pub(crate) listen: Option<SocketAddr>,
}

/// Why a file does not say where its process answers.
#[derive(Debug, thiserror::Error)]
pub(crate) enum ApiEndpointsError {
    /// It cannot be read.
    #[error("cannot be read")]
    Unread(#[source] io::Error),
    /// It is not TOML, or its `[api]` is wrong.
    #[error(transparent)]
    Wrong(ConfigErrors),
}

/// Reads where the process of a configuration file answers.
///
/// # Errors
/// [`ApiEndpointsError`].
pub(crate) fn api_endpoints(file: &Path) -> Result<ApiEndpoints, ApiEndpointsError> {
    let text = files::read(file, FileKind::Config).map_err(ApiEndpointsError::Unread)?;
    let mut findings = Findings::new(&text);
    let values = read_document(&text, &mut findings);
    let usable = values.filter(|_| !findings.has_error_below("api"));
    let Some(values) = usable else {
        let problems = findings.into_problems();
        return Err(ApiEndpointsError::Wrong(ConfigErrors { file: file.into(), problems }));
    };
    let api = values.table("api");
    let socket = api.and_then(|api| api.text("socket")).map(PathBuf::from);
    let listen = api.filter(|api| api.given("listen")).and_then(|api| api.parsed("listen"));
    let state = values.table("cluster").and_then(|cluster| cluster.text("state"));
    Ok(ApiEndpoints {
        socket: socket.filter(|socket| *socket != default_api_socket()),
        agent_socket: state.map(|state| cluster::agent_socket(Path::new(state))),
        listen: listen.and_then(|ApiListen(address)| address),
    })
}
