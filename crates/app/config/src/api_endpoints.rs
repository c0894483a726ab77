//! Endpoints at which the process of a configuration file serves the API.
//!
//! Commands that only need to reach the process read `[api]` alone. Errors in other tables and in
//! files that the configuration names do not stop them.

use std::io;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};

use super::problem::Findings;
use super::tables::{Api, ApiTls, Certificate, Cluster, File};
use super::text::ApiListen;
use super::view::View;
use super::{ConfigErrors, FileKind, default_api_socket, files, read_despite, read_document};

/// API endpoints that a configuration file states.
#[derive(Debug)]
pub struct ApiEndpoints {
    /// `api.socket`; `None` means the default.
    pub socket: Option<PathBuf>,
    /// Socket of `equipoise agent` with this file; `None` without `[cluster]`.
    pub agent_socket: Option<PathBuf>,
    /// `api.listen`; `None` if the file does not state it.
    pub listen: Option<SocketAddr>,
    /// The chains of `api.tls`, the default first; `None`: `listen` speaks HTTP in the clear.
    pub tls_chains: Option<Vec<PathBuf>>,
}

/// Reasons why a file gives no endpoints.
#[derive(Debug, thiserror::Error)]
pub enum ApiEndpointsError {
    /// The file cannot be read.
    #[error("cannot be read")]
    Unread(#[source] io::Error),
    /// The file is not TOML, or its `[api]` table has errors.
    #[error(transparent)]
    Wrong(ConfigErrors),
}

/// Reads the API endpoints of a configuration file.
///
/// # Errors
/// [`ApiEndpointsError`] if the file cannot be read, or if its `[api]` table is wrong.
pub fn api_endpoints(file: &Path) -> Result<ApiEndpoints, ApiEndpointsError> {
    let text = files::read(file, FileKind::Config).map_err(ApiEndpointsError::Unread)?;
    let mut findings = Findings::new(&text);
    let states_api = text.lines().any(is_api_header);
    let mut values = read_despite(&text, &mut findings, |at| is_in_api(&text, at));
    if states_api && (values.is_none() || findings.has_error_below("api")) {
        // A syntax error before `[api]` may have hidden the table.
        findings = Findings::new(&text);
        values = read_document(&text, &mut findings);
    }
    let usable = values.filter(|_| !findings.has_error_below("api"));
    let Some(values) = usable else {
        let problems = findings.into_problems();
        return Err(ApiEndpointsError::Wrong(ConfigErrors { file: file.into(), problems }));
    };
    let file: View<'_, File> = View::new(&values);
    let api = file.get(File::API);
    let socket = api.get(Api::SOCKET).map(PathBuf::from);
    let listen = api.given(Api::LISTEN).then(|| api.get(Api::LISTEN));
    let chains = |tls: View<'_, ApiTls>| {
        let certificates = tls.get(ApiTls::CERTIFICATES).into_iter().flatten();
        certificates.filter_map(|it| it.get(Certificate::CHAIN).map(PathBuf::from)).collect()
    };
    let state = file.get(File::CLUSTER).map(|cluster| cluster.get(Cluster::STATE));
    Ok(ApiEndpoints {
        socket: socket.filter(|socket| *socket != default_api_socket()),
        agent_socket: state.map(|state| equipoise_cluster::agent_socket(Path::new(state))),
        listen: listen.and_then(|ApiListen(address)| address),
        tls_chains: api.get(Api::TLS).map(chains),
    })
}

/// Whether a line is a header of the table `[api]`, or a mistyped one.
fn is_api_header(line: &str) -> bool {
    let name = line.trim_start().strip_prefix('[').map(str::trim_start);
    let rest = name.and_then(|name| name.strip_prefix("api"));
    rest.is_some_and(|rest| !rest.starts_with(|c: char| c.is_alphanumeric() || "-_".contains(c)))
}

/// Whether byte `at` is in the table `[api]`, by the last header before it.
fn is_in_api(text: &str, at: usize) -> bool {
    let end = text.get(at..).and_then(|rest| rest.find('\n')).map_or(text.len(), |end| at + end);
    let header = text[..end].lines().rev().find(|line| line.trim_start().starts_with('['));
    header.is_some_and(is_api_header)
}

#[cfg(test)]
mod tests {
    use equipoise_testkit::Folder;

    use super::*;

    #[test]
    fn a_syntax_error_hides_the_endpoints_only_if_it_is_in_their_table() {
        let folder = Folder::new("api-endpoints");
        let socket = |text: &str| {
            let found = api_endpoints(&folder.write("f.toml", text));
            found.map(|found| found.socket).map_err(|error| error.to_string())
        };
        let api = "[api]\nsocket = \"/run/a.sock\"\n";
        let there = Ok(Some(PathBuf::from("/run/a.sock")));
        assert_eq!(socket(&format!("{api}[[pool]]\nname = \n")), there);
        assert_eq!(socket(&format!("[[pool]]\nname = \"a\n{api}")), there);
        for wrong in [
            format!("{api}listen =\n[[pool]]\nname = \"a\"\n"),
            "[api\nsocket = \"/run/a.sock\"\n".to_string(),
            format!("name = [\n{api}"),
            format!("[[pool]\nname = \"a\"\n{api}"),
        ] {
            let error = socket(&wrong).unwrap_err();
            assert!(error.contains("not TOML"), "{wrong}: {error}");
        }
    }
}
