//! `equipoise cluster init`: creates the cluster's certificate authority.

use std::path::PathBuf;
use std::process::ExitCode;
use std::time::SystemTime;

use anyhow::bail;
use equipoise_cluster::{Authority, ClusterRole, StateFile, StateFolder};
use serde::Serialize;

use super::Here;
use crate::output::AnswerArgs;

#[derive(Debug, clap::Args)]
pub(super) struct Args {
    /// Issue the authority's certificate again for its key; certificates that it signed and tokens
    /// stay valid
    #[arg(long)]
    renew: bool,
    #[command(flatten)]
    answer: AnswerArgs,
    /// This machine's configuration
    #[arg(
        long,
        value_name = "FILE",
        env = "EQUIPOISE_CONFIG",
        default_value = crate::argument::DEFAULT_CONFIG
    )]
    config: PathBuf,
}

/// The authority, and its files.
#[derive(Debug, Serialize)]
struct Made {
    cluster: String,
    /// Fingerprint of the authority's key.
    authority: String,
    /// Public.
    certificate: PathBuf,
    /// The cluster's secret.
    key: PathBuf,
}

pub(super) fn run(args: &Args) -> anyhow::Result<ExitCode> {
    let here = Here::load(&args.config)?;
    let ClusterRole::Controller { name, .. } = &here.cluster.role else {
        bail!(
            "this machine is a node (`cluster.controllers`): run `init` on the first controller of the cluster"
        );
    };
    let (folder, now) = (here.cluster.folder(), SystemTime::now());
    let made = |authority: &Authority| made(&name.to_string(), authority, &folder);
    if args.renew {
        let renewed = Authority::load(&folder)?.renewed(now)?;
        folder.replace(StateFile::AuthorityCertificate, &renewed.certificate_pem())?;
        return args.answer.print(&made(&renewed), |made| {
            format!(
                "issued the authority's certificate again, for the same key\n\
                 copy {} to the other controllers, and restart\n",
                made.certificate.display()
            )
        });
    }
    let authority = Authority::new(name, now)?;
    // Writes the key first: a certificate without its key is of no use.
    folder.create(StateFile::AuthorityKey, &authority.key_pem())?;
    folder.create(StateFile::AuthorityCertificate, &authority.certificate_pem())?;
    args.answer.print(&made(&authority), created)
}

fn made(cluster: &str, authority: &Authority, folder: &StateFolder) -> Made {
    Made {
        cluster: cluster.to_owned(),
        authority: authority.fingerprint().to_string(),
        certificate: folder.path_of(StateFile::AuthorityCertificate),
        key: folder.path_of(StateFile::AuthorityKey),
    }
}

fn created(Made { cluster, authority, certificate, key }: &Made) -> String {
    let (certificate, key) = (certificate.display(), key.display());
    format!(
        "created the cluster {cluster}; its authority is {authority}\n  \
         {certificate} is public\n  \
         {key} is the cluster's secret: only controllers may have it\n\
         next: copy both to the same folder of the other controllers, start `equipoise run` on each,\n\
         and admit nodes: equipoise cluster token create\n"
    )
}
