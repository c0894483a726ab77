//! A service of the operator's that adds and removes backends: one POST with JSON, one answer with JSON.

mod client;
mod retry;

use std::fmt;
use std::path::PathBuf;
use std::time::Duration;

use async_trait::async_trait;
use hyper::Uri;
use serde::{Deserialize, Serialize};

use crate::Backoff;
use crate::driver::{Added, Ask, Driver, DriverError, Listed};
use crate::options::{OptionRefused, Refuse};
use crate::wire::{self, ANSWER_BYTES_MAX, AnswerError};
use client::{Answer, Client};

/// Where the service is, and how it is asked.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct WebhookOptions {
    /// URL to which a question to add is posted; the answer is `{"address": "IP:PORT", "id": "..."}`.
    pub add: String,
    /// URL for a question to remove; 404 and 410 mean that it is gone.
    pub remove: String,
    /// URL for a question to list, if there is one; the answer is `{"backends": [{"name", "address", "id", "size"}]}`.
    pub list: Option<String>,
    /// Sent as a bearer token.
    pub token: Option<Token>,
    /// A PEM file of certificates that are trusted in the place of the system's.
    pub ca: Option<PathBuf>,
    /// For one try.
    pub timeout: Duration,
    /// Tries, before the failure is reported.
    pub tries: u32,
    /// Waits between them, unless the service says `Retry-After`.
    pub retry: Backoff,
}

/// A secret that is not shown.
#[derive(Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(transparent)]
pub struct Token(String);

impl Token {
    /// Any text; [`WebhookOptions::check`] looks at it.
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
    /// Whether they can be followed.
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

/// A service that did not do what it was asked for.
#[derive(Debug, thiserror::Error)]
pub enum WebhookError {
    /// It cannot be asked.
    #[error("cannot ask {url} (tried {tries} times)")]
    Ask {
        /// Where.
        url: String,
        /// How often.
        tries: u32,
        /// Why not, the last time.
        #[source]
        source: AskError,
    },
    /// It refuses.
    #[error("{url} answered {status} (tried {tries} times): {body:?}")]
    Refused {
        /// Where.
        url: String,
        /// What it answered the last time.
        status: u16,
        /// How often it was asked.
        tries: u32,
        /// How its answer begins.
        body: String,
    },
    /// It answers something else.
    #[error("{url}")]
    Answer {
        /// Where.
        url: String,
        /// What is wrong.
        #[source]
        source: AnswerError,
    },
}

/// Why no answer came.
#[derive(Debug, thiserror::Error)]
pub enum AskError {
    /// Its name is unknown, or it is not reached.
    #[error("cannot connect to {host}")]
    Connect {
        /// Where to.
        host: String,
        /// Why.
        #[source]
        source: std::io::Error,
    },
    /// The exchange broke off.
    #[error("the exchange failed")]
    Exchange(#[source] hyper::Error),
    /// It takes too long.
    #[error("no whole answer within {0:?} (timeout)")]
    TimedOut(Duration),
    /// It answers too much.
    #[error("the answer has more than {ANSWER_BYTES_MAX} bytes")]
    TooLong,
}

/// Asks a service.
pub struct WebhookDriver {
    pool: String,
    client: Client,
    add: Uri,
    remove: Uri,
    list: Option<Uri>,
}

impl WebhookDriver {
    /// For a pool.
    ///
    /// # Errors
    /// [`OptionRefused`] also for certificates that cannot be read.
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
    fn options_that_cannot_be_followed_say_what_can() {
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
    fn a_token_is_not_shown() {
        let options = WebhookOptions { token: Some(Token::new("secret")), ..fine() };
        assert!(!format!("{options:?}").contains("secret"));
    }
}
