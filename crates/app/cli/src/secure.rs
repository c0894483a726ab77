//! TLS of commands with an API: the authorities that they trust, and their own certificate.

use std::path::{Path, PathBuf};

use anyhow::{Context, bail};
use equipoise_tls::{
    Certificate, CertificateFiles, ClientOptions, ClientTls, Profile, Protocols, Trust, chain_names,
};
use rustls::pki_types::ServerName;

/// The arguments for an API with TLS.
#[derive(Clone, Debug, Default, clap::Args)]
pub(crate) struct TlsArgs {
    /// For https: a file in PEM with the authorities that sign for the API, or with the API's own
    /// certificate; without it, the system's authorities. With --config, the certificates of the
    /// file
    #[arg(long, env = "EQUIPOISE_API_CA", value_name = "FILE")]
    ca: Option<PathBuf>,
    /// For https: a file in PEM with your own certificate, then those of its issuers
    #[arg(long, env = "EQUIPOISE_API_CERTIFICATE", value_name = "FILE")]
    certificate: Option<PathBuf>,
    /// The private key of --certificate; without it, that file has the key, too
    #[arg(long, env = "EQUIPOISE_API_KEY", value_name = "FILE")]
    key: Option<PathBuf>,
}

impl TlsArgs {
    /// The options that are given, with their files.
    pub(crate) fn files(&self) -> impl Iterator<Item = (&'static str, &PathBuf)> {
        let all = [("--ca", &self.ca), ("--certificate", &self.certificate), ("--key", &self.key)];
        all.into_iter().filter_map(|(option, file)| Some((option, file.as_ref()?)))
    }

    /// TLS with an API that was named directly.
    pub(crate) fn by_url(&self) -> anyhow::Result<ClientTls> {
        let trust = match &self.ca {
            Some(file) => trust("--ca", file)?,
            None => system()?,
        };
        self.with(trust, None)
    }

    /// TLS with the process that presents these chains. Its name is that of the default
    /// certificate, because it is reached by its address.
    pub(crate) fn by_chains(&self, chains: &[PathBuf]) -> anyhow::Result<ClientTls> {
        let default = chains.first().context("the file states no certificate in [api.tls]")?;
        let trust = match &self.ca {
            Some(file) => trust("--ca", file)?,
            None => trust(OF_FILE, default)?,
        };
        let names = chain_names(&read(OF_FILE, default)?);
        let names = names.map_err(|error| wrong(OF_FILE, default, &error))?;
        let name = names.into_iter().find_map(|name| ServerName::try_from(name).ok());
        self.with(trust, name)
    }

    fn with(
        &self,
        trust: Trust,
        server_name: Option<ServerName<'static>>,
    ) -> anyhow::Result<ClientTls> {
        let options = ClientOptions {
            trust,
            certificate: self.own()?,
            profile: Profile::Intermediate,
            server_name,
            protocols: Protocols::Http1,
        };
        Ok(ClientTls::new(options)?)
    }

    fn own(&self) -> anyhow::Result<Option<Certificate>> {
        let Some(chain) = &self.certificate else {
            if self.key.is_some() {
                bail!("--key needs --certificate");
            }
            return Ok(None);
        };
        let files = CertificateFiles { chain: chain.clone(), key: self.key.clone(), ocsp: None };
        let own = files.load(|path| std::fs::read_to_string(path));
        let option = if self.key.is_some() { "--certificate and --key" } else { "--certificate" };
        Ok(Some(own.with_context(|| format!("{option} cannot be used"))?))
    }
}

/// The certificates of the configuration that --config names.
const OF_FILE: &str = "the certificate of [api.tls]";

/// The authorities in a file, which `option` names.
fn trust(option: &str, file: &Path) -> anyhow::Result<Trust> {
    Trust::from_pem(&read(option, file)?).map_err(|error| wrong(option, file, &error))
}

fn read(option: &str, file: &Path) -> anyhow::Result<String> {
    let read = std::fs::read_to_string(file);
    read.with_context(|| format!("{option} cannot be read: {}", file.display()))
}

fn wrong(option: &str, file: &Path, error: &equipoise_tls::CertificateError) -> anyhow::Error {
    anyhow::anyhow!("{option} cannot be used: {} has {error}", file.display())
}

/// The system's authorities.
fn system() -> anyhow::Result<Trust> {
    let found = rustls_native_certs::load_native_certs().certs;
    if found.is_empty() {
        bail!("this system has no authorities (package ca-certificates); name one with --ca FILE");
    }
    Ok(Trust::Authorities(found))
}
