//! Arguments that several commands have.

use std::convert::Infallible;
use std::path::Path;
use std::str::FromStr;

use equipoise_api::client::Client;
use equipoise_api::routes::process::STATUS;

/// Default path of the configuration file.
pub const DEFAULT_CONFIG: &str = "/etc/equipoise/equipoise.toml";

/// Warns on standard error if other users can read a token file, which is used nevertheless.
pub fn warn_of_token_file(file: &Path) {
    if let Some(text) = equipoise_config::token_file_too_open(file) {
        eprintln!("equipoise: warning: {text}");
    }
}

/// A backend as operators name it: `POOL/BACKEND`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct BackendName {
    /// The pool.
    pub pool: String,
    /// The backend.
    pub backend: String,
}

/// The text does not name a backend.
#[derive(Debug, thiserror::Error)]
#[error(
    "a backend is named POOL/BACKEND, for example web/10.0.0.11:8080; `equipoise status` lists them"
)]
pub struct NotABackendName;

impl FromStr for BackendName {
    type Err = NotABackendName;

    fn from_str(text: &str) -> Result<BackendName, NotABackendName> {
        match text.split_once('/') {
            Some((pool, backend)) if !pool.is_empty() && !backend.is_empty() => {
                Ok(BackendName { pool: pool.into(), backend: backend.into() })
            }
            _ => Err(NotABackendName),
        }
    }
}

/// The name of a backend of the process that a command asks. Without a pool it is refused with a
/// suggestion, which only that process can make.
#[derive(Clone, Debug)]
pub(crate) struct ExistingBackend(String);

impl FromStr for ExistingBackend {
    type Err = Infallible;

    fn from_str(text: &str) -> Result<ExistingBackend, Infallible> {
        Ok(ExistingBackend(text.to_owned()))
    }
}

impl From<String> for ExistingBackend {
    fn from(text: String) -> ExistingBackend {
        ExistingBackend(text)
    }
}

impl ExistingBackend {
    /// Parses the name.
    ///
    /// # Errors
    /// The text is not of the form `POOL/BACKEND`.
    pub(crate) async fn resolve(&self, client: &Client) -> anyhow::Result<BackendName> {
        let wrong = match self.0.parse() {
            Ok(name) => return Ok(name),
            Err(wrong) => wrong,
        };
        match did_you_mean(client, &self.0).await {
            Some(question) => anyhow::bail!("there is no backend `{}`; {question}", self.0),
            None => Err(anyhow::Error::new(wrong).context(format!("`{}`", self.0))),
        }
    }
}

/// Largest number of suggested names.
const SUGGESTED_MAX: usize = 4;

/// Suggests backends of the process for a name without a pool, as a question. `None` if there is
/// none like it, or the process does not answer.
pub(crate) async fn did_you_mean(client: &Client, text: &str) -> Option<String> {
    let status = client.ask(STATUS, &()).await.ok()?;
    let backends = status
        .pools
        .iter()
        .flat_map(|pool| pool.backends.iter().map(|it| [&*pool.name, &*it.name, &*it.address]));
    question(&like(text.trim_matches('/'), &backends.collect::<Vec<_>>()))
}

/// The backends that `text` names without their pool; else those of a pool with this name; else
/// those with a similar name. A backend is known by its pool, name and address.
fn like(text: &str, known: &[[&str; 3]]) -> Vec<String> {
    let those = |matches: &dyn Fn(&[&str; 3]) -> bool| -> Vec<String> {
        let found = known.iter().filter(|backend| matches(backend));
        found.map(|[pool, name, _]| format!("{pool}/{name}")).collect()
    };
    let near = equipoise_config::nearest(text, known.iter().map(|[_, name, _]| *name));
    let ways = [
        those(&|[_, name, address]| *name == text || *address == text),
        those(&|[pool, ..]| *pool == text),
        those(&|[_, name, _]| Some(*name) == near),
    ];
    ways.into_iter().find(|found| !found.is_empty()).unwrap_or_default()
}

/// "did you mean ...?"; `None` without names.
fn question(names: &[String]) -> Option<String> {
    let (last, others) = names.get(..SUGGESTED_MAX).unwrap_or(names).split_last()?;
    let others: Vec<String> = others.iter().map(|name| format!("`{name}`")).collect();
    let or = if others.is_empty() { "" } else { " or " };
    Some(format!("did you mean {}{or}`{last}`?", others.join(", ")))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_backend_is_named_after_its_pool() {
        let name: BackendName = "web/[::1]:80".parse().unwrap();
        assert_eq!((name.pool.as_str(), name.backend.as_str()), ("web", "[::1]:80"));
        for bad in ["web", "/b", "web/", ""] {
            assert!(bad.parse::<BackendName>().is_err(), "{bad}");
        }
    }

    #[test]
    fn a_name_without_its_pool_leads_to_the_backends_that_may_be_meant() {
        let known = [
            ["web", "web1", "10.0.0.1:80"],
            ["web", "web2", "10.0.0.2:80"],
            ["api", "web1", "10.0.0.1:81"],
            ["db", "primary", "10.0.0.9:5432"],
        ];
        for (text, names) in [
            ("web2", &["web/web2"][..]),
            ("web1", &["web/web1", "api/web1"]),
            ("10.0.0.2:80", &["web/web2"]),
            ("web", &["web/web1", "web/web2"]),
            ("primry", &["db/primary"]),
            ("node-7", &[]),
            ("", &[]),
        ] {
            assert_eq!(like(text, &known), names, "{text}");
        }
        let question = |count: usize| {
            let names: Vec<_> = (0..count).map(|number| format!("p/{number}")).collect();
            question(&names)
        };
        assert_eq!(question(0), None);
        assert_eq!(question(1).as_deref(), Some("did you mean `p/0`?"));
        assert_eq!(question(2).as_deref(), Some("did you mean `p/0` or `p/1`?"));
        assert_eq!(question(9).as_deref(), Some("did you mean `p/0`, `p/1`, `p/2` or `p/3`?"));
    }
}
