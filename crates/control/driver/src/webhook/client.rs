use std::path::Path;

use equipoise_basics::with_causes;
use equipoise_http_client::{Authorities, HttpError, whole};
use http_body_util::Full;
use hyper::body::Bytes;
use hyper::header::{ACCEPT, AUTHORIZATION, CONTENT_TYPE, HeaderValue, RETRY_AFTER};
use hyper::{Request, Uri};
use tokio::time::sleep;

use super::retry::{self, Tried};
use super::{Token, WebhookOptions};
use crate::options::{OptionRefused, Refuse};
use crate::wire::ANSWER_BYTES_MAX;

/// Sends JSON by POST, with retries.
pub(super) struct Client {
    options: WebhookOptions,
    /// `None`: no URL is of https.
    authorities: Option<Authorities>,
}

pub(super) struct Answer {
    pub(super) status: u16,
    pub(super) body: Bytes,
    retry_after_s: Option<u64>,
}

impl Client {
    pub(super) fn open(
        options: WebhookOptions,
        is_secure: bool,
        refuse: &Refuse,
    ) -> Result<Client, OptionRefused> {
        let ca = options.ca.as_deref();
        let authorities = is_secure.then(|| authorities(ca, refuse)).transpose()?;
        Ok(Client { options, authorities })
    }

    /// Sends a request. Returns the last answer or error, and the number of attempts.
    pub(super) async fn ask(
        &self,
        url: &Uri,
        key: &str,
        body: Vec<u8>,
    ) -> (Result<Answer, HttpError>, u32) {
        let body = Bytes::from(body);
        let mut tries = 1;
        loop {
            let outcome = self.attempt(url, key, body.clone()).await;
            let tried = match &outcome {
                Ok(answer) => Tried::Answered(answer.status, answer.retry_after_s),
                // The answer to a further attempt would be as long.
                Err(HttpError::Large { .. }) => return (outcome, tries),
                Err(_) => Tried::Unanswered,
            };
            match retry::next(self.options.retry, tries, self.options.tries, tried) {
                Some(wait) => sleep(wait).await,
                None => return (outcome, tries),
            }
            tries += 1;
        }
    }

    async fn attempt(&self, url: &Uri, key: &str, body: Bytes) -> Result<Answer, HttpError> {
        let request = self.request(url, key, body);
        let (authorities, within) = (self.authorities.as_ref(), self.options.timeout);
        let answer = whole(request, authorities, within, ANSWER_BYTES_MAX as u64).await?;
        let stated = answer.headers().get(RETRY_AFTER).and_then(|value| value.to_str().ok());
        let retry_after_s = stated.and_then(|text| text.trim().parse().ok());
        Ok(Answer { status: answer.status().as_u16(), body: answer.into_body(), retry_after_s })
    }

    fn request(&self, url: &Uri, key: &str, body: Bytes) -> Request<Full<Bytes>> {
        let mut request = Request::new(Full::new(body));
        *request.method_mut() = hyper::Method::POST;
        *request.uri_mut() = url.clone();
        let headers = request.headers_mut();
        let text = |text: &str| HeaderValue::from_str(text).ok();
        let token = self.options.token.as_ref().and_then(|Token(token)| {
            let mut value = text(&format!("Bearer {token}"))?;
            value.set_sensitive(true);
            Some(value)
        });
        let key = Some(key).filter(|key| !key.is_empty()).and_then(text);
        headers.extend(token.map(|value| (AUTHORIZATION, value)));
        headers.insert(CONTENT_TYPE, HeaderValue::from_static("application/json"));
        headers.insert(ACCEPT, HeaderValue::from_static("application/json"));
        if let Some(key) = key {
            headers.insert("idempotency-key", key);
        }
        request
    }
}

/// Trusts the certificates of option `ca`, or those of the system.
fn authorities(ca: Option<&Path>, refuse: &Refuse) -> Result<Authorities, OptionRefused> {
    Authorities::load(ca).map_err(|error| {
        let from = ca.map_or_else(|| "the system".to_string(), |path| path.display().to_string());
        let accepted = format!("a PEM file with trusted certificates ({})", with_causes(&error));
        refuse.with("ca", from, accepted)
    })
}
