//! TLS between nodes, and its certificate files.

use std::path::Path;

use equipoise_cluster::PeerCredentials;
use equipoise_dispatch::Transport;
use equipoise_tls::PeerTls;

use super::key::{Key, Text};
use super::problem::Findings;
use super::secret_file::{self, Readers};
use super::tables::{Dispatch, DispatchTls, PeerTlsMode};
use super::view::View;
use super::{FileKind, Surroundings};
use crate::encryption::peer_tls;

/// The transport of delegated requests. In a cluster the node uses its cluster certificate, unless
/// the table names files.
pub(super) fn transport(
    values: View<'_, Dispatch>,
    instance: &str,
    is_clustered: bool,
    around: &Surroundings<'_>,
    findings: &mut Findings<'_>,
) -> Transport {
    let stated = values.get(Dispatch::PEER_TLS);
    let files = values.get(Dispatch::TLS);
    let usual = match is_clustered || files.is_some() {
        true => PeerTlsMode::Required,
        false => PeerTlsMode::Off,
    };
    let mode = stated.unwrap_or(usual);
    if mode != PeerTlsMode::Off && usual == PeerTlsMode::Off {
        let text = "this node has no certificate for its peers; accepted: with `tls = { certificate, key, \
                    authority }`, or in a [cluster]";
        findings.error(
            values.at(Dispatch::PEER_TLS),
            &values.path_of(Dispatch::PEER_TLS),
            text.to_string(),
        );
    }
    if mode == PeerTlsMode::Off && files.is_some() {
        let text = "it is not used, since `peer-tls` is \"off\"";
        findings.warning(
            values.at(Dispatch::TLS),
            &values.path_of(Dispatch::TLS),
            text.to_string(),
        );
    }
    let tls = files.and_then(|files| by_files(files, instance, around, findings));
    match mode {
        PeerTlsMode::Required => Transport::Encrypted(tls),
        PeerTlsMode::Accepted => Transport::Either(tls),
        PeerTlsMode::Off => Transport::Plain,
    }
}

/// Options in the order of the arguments of [`PeerCredentials::from_pem`].
const FILES: [Key<DispatchTls, Option<Text>>; 3] =
    [DispatchTls::CERTIFICATE, DispatchTls::KEY, DispatchTls::AUTHORITY];

fn by_files(
    files: View<'_, DispatchTls>,
    instance: &str,
    around: &Surroundings<'_>,
    findings: &mut Findings<'_>,
) -> Option<PeerTls> {
    let mut texts = Vec::new();
    for option in FILES {
        let path = files.get(option)?;
        match (around.read)(Path::new(path), FileKind::Certificates) {
            Ok(text) => texts.push(text),
            Err(error) => {
                let text = format!("\"{path}\" cannot be read: {error}; accepted: a file of PEM");
                findings.error(files.at(option), &files.path_of(option), text);
            }
        }
    }
    let [certificate, key, authority] = &texts[..] else { return None };
    match PeerCredentials::from_pem(certificate, key, authority, instance) {
        Ok(credentials) => {
            let secret = "the key, with which others can pose as this node";
            let option = DispatchTls::KEY;
            secret_file::warn(files, option, Readers::Owner, secret, around, findings);
            Some(peer_tls(credentials))
        }
        Err((which, error)) => {
            let (option, path) = (FILES[which], files.get(FILES[which]).unwrap_or_default());
            let text = format!("\"{path}\" has {error}");
            findings.error(files.at(option), &files.path_of(option), text);
            None
        }
    }
}
