use std::io;
use std::sync::Arc;

use http_body_util::{BodyExt, Full};
use hyper::body::{Bytes, Incoming};
use hyper::client::conn::http1;
use hyper::header::{
    ACCEPT, AUTHORIZATION, CONNECTION, CONTENT_TYPE, HOST, HeaderValue, RETRY_AFTER, USER_AGENT,
};
use hyper::{Request, Uri};
use hyper_util::rt::TokioIo;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::TcpStream;
use tokio::time::{sleep, timeout};
use tokio_rustls::TlsConnector;
use tokio_rustls::rustls::pki_types::pem::PemObject;
use tokio_rustls::rustls::pki_types::{CertificateDer, ServerName};
use tokio_rustls::rustls::{ClientConfig, RootCertStore};

use super::retry::{self, Tried};
use super::{AskError, Token, WebhookOptions};
use crate::options::{OptionRefused, Refuse};
use crate::wire::ANSWER_BYTES_MAX;

/// Largest accepted file of certificates, in bytes.
const CA_BYTES_MAX: u64 = 4 << 20;

/// Sends JSON by POST, with retries. Each attempt opens a connection, because requests are rare.
pub(super) struct Client {
    options: WebhookOptions,
    tls: Option<TlsConnector>,
}

pub(super) struct Answer {
    pub(super) status: u16,
    pub(super) body: Vec<u8>,
    retry_after_s: Option<u64>,
}

impl Client {
    pub(super) fn open(
        options: WebhookOptions,
        is_secure: bool,
        refuse: &Refuse,
    ) -> Result<Client, OptionRefused> {
        let tls = if is_secure { Some(connector(&options, refuse)?) } else { None };
        Ok(Client { options, tls })
    }

    /// Sends a request. Returns the last answer or error, and the number of attempts.
    pub(super) async fn ask(
        &self,
        url: &Uri,
        key: &str,
        body: Vec<u8>,
    ) -> (Result<Answer, AskError>, u32) {
        let body = Bytes::from(body);
        let mut tries = 1;
        loop {
            let limit = self.options.timeout;
            let outcome = timeout(limit, self.attempt(url, key, body.clone())).await;
            let outcome = outcome.unwrap_or(Err(AskError::TimedOut(limit)));
            let tried = match &outcome {
                Ok(answer) => Tried::Answered(answer.status, answer.retry_after_s),
                // The answer to a further attempt would be as long.
                Err(AskError::TooLong) => return (outcome, tries),
                Err(_) => Tried::Unanswered,
            };
            match retry::next(self.options.retry, tries, self.options.tries, tried) {
                Some(wait) => sleep(wait).await,
                None => return (outcome, tries),
            }
            tries += 1;
        }
    }

    async fn attempt(&self, url: &Uri, key: &str, body: Bytes) -> Result<Answer, AskError> {
        let host = url.host().unwrap_or_default();
        let is_secure = url.scheme_str() == Some("https");
        let port = url.port_u16().unwrap_or(if is_secure { 443 } else { 80 });
        let failed = |source| AskError::Connect { host: format!("{host}:{port}"), source };
        // IPv6 addresses have brackets in a URL, and none in names.
        let bare = host.trim_start_matches('[').trim_end_matches(']');
        let stream = TcpStream::connect((bare, port)).await.map_err(failed)?;
        let request = self.request(url, key, body);
        match (&self.tls, is_secure) {
            (Some(tls), true) => {
                let name = ServerName::try_from(bare.to_string()).map_err(io::Error::other);
                let stream = tls.connect(name.map_err(failed)?, stream).await.map_err(failed)?;
                exchange(stream, request).await
            }
            _ => exchange(stream, request).await,
        }
    }

    fn request(&self, url: &Uri, key: &str, body: Bytes) -> Request<Full<Bytes>> {
        let path = url.path_and_query().map_or("/", |path| path.as_str());
        let mut request = Request::new(Full::new(body));
        *request.method_mut() = hyper::Method::POST;
        *request.uri_mut() = path.parse().unwrap_or_default();
        let headers = request.headers_mut();
        let text = |text: &str| HeaderValue::from_str(text).ok();
        let authority = url.authority().and_then(|authority| text(authority.as_str()));
        let token = self.options.token.as_ref().and_then(|Token(token)| {
            let mut value = text(&format!("Bearer {token}"))?;
            value.set_sensitive(true);
            Some(value)
        });
        let key = Some(key).filter(|key| !key.is_empty()).and_then(text);
        headers.extend(authority.map(|value| (HOST, value)));
        headers.extend(token.map(|value| (AUTHORIZATION, value)));
        headers.insert(CONTENT_TYPE, HeaderValue::from_static("application/json"));
        headers.insert(ACCEPT, HeaderValue::from_static("application/json"));
        headers.insert(USER_AGENT, HeaderValue::from_static("equipoise"));
        headers.insert(CONNECTION, HeaderValue::from_static("close"));
        if let Some(key) = key {
            headers.insert("idempotency-key", key);
        }
        request
    }
}

async fn exchange(
    stream: impl AsyncRead + AsyncWrite + Unpin,
    request: Request<Full<Bytes>>,
) -> Result<Answer, AskError> {
    let (mut sender, connection) =
        http1::handshake(TokioIo::new(stream)).await.map_err(AskError::Exchange)?;
    let answer = async {
        let response = sender.send_request(request).await.map_err(AskError::Exchange)?;
        let status = response.status().as_u16();
        let told = response.headers().get(RETRY_AFTER).and_then(|value| value.to_str().ok());
        let retry_after_s = told.and_then(|text| text.trim().parse().ok());
        let body = read(response.into_body()).await?;
        Ok(Answer { status, body, retry_after_s })
    };
    // The connection is driven in this future, so that dropping the attempt also closes it.
    let mut answer = std::pin::pin!(answer);
    tokio::select! {
        answer = &mut answer => answer,
        driven = connection => match driven {
            Ok(()) => answer.await,
            Err(error) => Err(AskError::Exchange(error)),
        },
    }
}

async fn read(mut body: Incoming) -> Result<Vec<u8>, AskError> {
    let mut bytes = Vec::new();
    while let Some(frame) = body.frame().await {
        if let Ok(chunk) = frame.map_err(AskError::Exchange)?.into_data() {
            if bytes.len() + chunk.len() > ANSWER_BYTES_MAX {
                return Err(AskError::TooLong);
            }
            bytes.extend_from_slice(&chunk);
        }
    }
    Ok(bytes)
}

/// Trusts the certificates of option `ca`, or those of the system.
fn connector(options: &WebhookOptions, refuse: &Refuse) -> Result<TlsConnector, OptionRefused> {
    let mut roots = RootCertStore::empty();
    let (trusted, from) = match &options.ca {
        Some(path) => {
            let wrong = |error: String| {
                refuse.with("ca", path, format!("a PEM file of certificates ({error})"))
            };
            let pem = equipoise_basics::files::read(path, CA_BYTES_MAX)
                .map_err(|error| wrong(error.to_string()))?;
            let all: Result<Vec<_>, _> = CertificateDer::pem_slice_iter(&pem).collect();
            (all.map_err(|error| wrong(error.to_string()))?, format!("{}", path.display()))
        }
        None => (rustls_native_certs::load_native_certs().certs, "the system".to_string()),
    };
    // The system may have certificates of kinds that rustls does not know.
    let (known, _) = roots.add_parsable_certificates(trusted);
    if known == 0 {
        let accepted = "a PEM file with trusted certificates";
        return Err(refuse.with("ca", format!("{from} (no certificates)"), accepted));
    }
    let config = ClientConfig::builder().with_root_certificates(roots).with_no_client_auth();
    Ok(TlsConnector::from(Arc::new(config)))
}
