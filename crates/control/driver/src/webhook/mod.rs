//! The webhook driver: asks a service of the operator, with one POST for each request. Requests and
//! answers are JSON.

mod client;
mod retry;

use std::fmt;
use std::path::PathBuf;
use std::time::Duration;

use async_trait::async_trait;
use equipoise_http_client::HttpError;
use hyper::Uri;
use serde::{Deserialize, Serialize};

use crate::Backoff;
use crate::driver::{Added, Ask, Driver, DriverError, Listed};
use crate::options::{OptionRefused, Refuse};
use crate::wire::{self, AnswerError};
use client::{Answer, Client};

/// Options of the webhook driver.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct WebhookOptions {
    /// URL to add a backend. The answer is `{"address": "IP:PORT", "id": "..."}`.
    pub add: String,
    /// URL to remove a backend. Status 404 and 410 mean that the backend does not exist.
    pub remove: String,
    /// URL to list the backends, if the service can. The answer is
    /// `{"backends": [{"name", "address", "id", "size"}]}`.
    pub list: Option<String>,
    /// Bearer token of every request.
    pub token: Option<Token>,
    /// PEM file of trusted certificates; the system's if `None`.
    pub ca: Option<PathBuf>,
    /// Timeout of one attempt.
    pub timeout: Duration,
    /// Number of attempts before the failure is reported.
    pub tries: u32,
    /// Waits between attempts, unless the answer has `Retry-After`.
    pub retry: Backoff,
}

/// A secret, which is never shown.
#[derive(Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(transparent)]
pub struct Token(String);

impl Token {
    /// Accepts any text. [`WebhookOptions::check`] checks it.
    pub fn new(token: impl Into<String>) -> Token {
        Token(token.into())
    }
}

impl fmt::Debug for Token {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Token(...)")
    }
}

impl Default for WebhookOptions {
    fn default() -> Self {
        WebhookOptions {
            add: String::new(),
            remove: String::new(),
            list: None,
            token: None,
            ca: None,
            timeout: Duration::from_secs(30),
            tries: 4,
            retry: Backoff { first: Duration::from_millis(500), most: Duration::from_secs(10) },
        }
    }
}

impl WebhookOptions {
    /// Checks the options.
    ///
    /// # Errors
    /// [`OptionRefused`] names the first option that is wrong.
    pub fn check(&self) -> Result<(), OptionRefused> {
        let refuse = Refuse("webhook");
        url(&refuse, "add", &self.add)?;
        url(&refuse, "remove", &self.remove)?;
        if let Some(list) = &self.list {
            url(&refuse, "list", list)?;
        }
        if let Some(Token(token)) = &self.token
            && (token.is_empty() || !token.bytes().all(|byte| byte.is_ascii_graphic()))
        {
            return Err(refuse.with(
                "token",
                "(not shown)",
                "printable ASCII characters, no spaces",
            ));
        }
        refuse.within("timeout", self.timeout, 100, 3600)?;
        refuse.within("retry-first", self.retry.first, 10, 3600)?;
        refuse.within("retry-most", self.retry.most, 10, 3600)?;
        if !(1..=20).contains(&self.tries) {
            return Err(refuse.with("tries", self.tries, "1 to 20"));
        }
        Ok(())
    }
}

fn url(refuse: &Refuse, option: &'static str, text: &str) -> Result<Uri, OptionRefused> {
    let accepted = "a URL such as https://scale.example/add, without a user name";
    let wrong = || refuse.with(option, text, accepted);
    let uri: Uri = text.parse().map_err(|_| wrong())?;
    let has_scheme = matches!(uri.scheme_str(), Some("http" | "https"));
    let authority = uri.authority().ok_or_else(wrong)?;
    if !has_scheme || authority.host().is_empty() || authority.as_str().contains('@') {
        return Err(wrong());
    }
    Ok(uri)
}

/// A service's failure.
#[derive(Debug, thiserror::Error)]
pub enum WebhookError {
    /// No attempt got an answer.
    #[error("cannot ask {url} (tried {tries} times)")]
    Ask {
        /// The URL.
        url: String,
        /// Number of attempts.
        tries: u32,
        /// The error of the last attempt.
        #[source]
        source: HttpError,
    },
    /// The service answered with an error.
    #[error("{url} answered {status} (tried {tries} times): {body:?}")]
    Refused {
        /// The URL.
        url: String,
        /// The status of the last answer.
        status: u16,
        /// Number of attempts.
        tries: u32,
        /// The beginning of the last answer.
        body: String,
    },
    /// The answer is invalid.
    #[error("{url}")]
    Answer {
        /// The URL.
        url: String,
        /// The cause.
        #[source]
        source: AnswerError,
    },
}

/// The driver that asks a web service.
pub struct WebhookDriver {
    pool: String,
    client: Client,
    add: Uri,
    remove: Uri,
    list: Option<Uri>,
}

impl WebhookDriver {
    /// Creates the driver of a pool.
    ///
    /// # Errors
    /// [`OptionRefused`], also for certificates that cannot be read.
    pub fn open(pool: &str, options: WebhookOptions) -> Result<WebhookDriver, OptionRefused> {
        options.check()?;
        let refuse = Refuse("webhook");
        let add = url(&refuse, "add", &options.add)?;
        let remove = url(&refuse, "remove", &options.remove)?;
        let list = options.list.as_deref().map(|list| url(&refuse, "list", list)).transpose()?;
        let all = [Some(&add), Some(&remove), list.as_ref()];
        let is_secure = all.into_iter().flatten().any(|uri| uri.scheme_str() == Some("https"));
        let client = Client::open(options, is_secure, &refuse)?;
        Ok(WebhookDriver { pool: pool.to_string(), client, add, remove, list })
    }

    async fn ask(&self, url: &Uri, key: &str, body: Vec<u8>) -> Result<Answer, DriverError> {
        let (outcome, tries) = self.client.ask(url, key, body).await;
        let answer =
            outcome.map_err(|source| WebhookError::Ask { url: url.to_string(), tries, source })?;
        if (200..300).contains(&answer.status) {
            return Ok(answer);
        }
        let (status, mut body) = (answer.status, wire::beginning(&answer.body));
        if (300..400).contains(&status) {
            body += " (redirects are not followed: give the final URL)";
        }
        Err(WebhookError::Refused { url: url.to_string(), status, tries, body }.into())
    }
}

#[async_trait]
impl Driver for WebhookDriver {
    fn outlives_us(&self) -> bool {
        true
    }

    async fn add(&self, ask: &Ask) -> Result<Added, DriverError> {
        let key = format!("{}-add", ask.key);
        let answer = self.ask(&self.add, &key, wire::question("add", ask)).await?;
        let wrong = |source| WebhookError::Answer { url: self.add.to_string(), source };
        Ok(wire::added(&answer.body, &ask.name).map_err(wrong)?)
    }

    async fn remove(&self, ask: &Ask) -> Result<(), DriverError> {
        let key = format!("{}-remove", ask.key);
        match self.ask(&self.remove, &key, wire::question("remove", ask)).await {
            Err(DriverError::Webhook(WebhookError::Refused { status: 404 | 410, .. })) => Ok(()),
            outcome => outcome.map(|_| ()),
        }
    }

    async fn list(&self) -> Result<Option<Vec<Listed>>, DriverError> {
        let Some(list) = &self.list else { return Ok(None) };
        let answer = self.ask(list, "", wire::list_question(&self.pool)).await?;
        let wrong = |source| WebhookError::Answer { url: list.to_string(), source };
        Ok(Some(wire::listed(&answer.body).map_err(wrong)?))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn fine() -> WebhookOptions {
        let url = |path: &str| format!("https://scale.example/{path}");
        WebhookOptions { add: url("add"), remove: url("remove"), ..WebhookOptions::default() }
    }

    #[test]
    fn invalid_webhook_options_are_refused_with_the_accepted_values() {
        fn with(change: impl FnOnce(&mut WebhookOptions)) -> String {
            let mut options = fine();
            change(&mut options);
            options.check().unwrap_err().to_string()
        }
        let rows = [
            (with(|o| o.add.clear()), "webhook.add is \"\""),
            (with(|o| o.add = "/add".into()), "https://scale.example/add"),
            (with(|o| o.remove = "ftp://a/b".into()), "webhook.remove"),
            (with(|o| o.remove = "http://me:secret@a/b".into()), "without a user name"),
            (with(|o| o.list = Some("http://".into())), "webhook.list"),
            (with(|o| o.token = Some(Token::new("a b"))), "webhook.token is \"(not shown)\""),
            (with(|o| o.timeout = Duration::ZERO), "webhook.timeout"),
            (with(|o| o.tries = 0), "1 to 20"),
        ];
        for (found, expected) in rows {
            assert!(found.contains(expected), "{found:?} lacks {expected:?}");
        }
        assert_eq!(fine().check(), Ok(()));
    }

    #[test]
    fn debug_output_omits_the_token() {
        let options = WebhookOptions { token: Some(Token::new("secret")), ..fine() };
        assert!(!format!("{options:?}").contains("secret"));
    }
}
