//! Requests with a bearer token and TLS.

use std::io;
use std::path::Path;
use std::time::Duration;

use equipoise_basics::files;
use equipoise_http_client::{Authorities, AuthoritiesError, HttpAnswer, HttpError, head};
use http_body_util::Empty;
use hyper::body::Bytes;
use hyper::header::{ACCEPT, HeaderName, HeaderValue};
use hyper::{Request, StatusCode, Uri};

use crate::background::Background;
use crate::options::Access;

/// Largest file of a token, in bytes.
const TOKEN_BYTES_MAX: u64 = 64 << 10;

/// A client of one server.
pub(crate) struct Client {
    access: Access,
    /// The header that has the token, and what stands before it.
    token: (HeaderName, &'static str),
    files: Background<Result<Files, GetError>>,
}

struct Files {
    token: Option<String>,
    /// The authorities, if they are needed.
    authorities: Option<Authorities>,
}

/// The reason why a request has no usable answer.
#[derive(Debug, thiserror::Error)]
pub(crate) enum GetError {
    #[error("{path} cannot be read")]
    File { path: String, source: io::Error },
    #[error(transparent)]
    Authorities(#[from] AuthoritiesError),
    #[error("{0} is not a URL")]
    Url(String),
    #[error(transparent)]
    Http(#[from] HttpError),
    #[error("{host} answered {status}")]
    Status { host: String, status: StatusCode },
}

impl Client {
    pub(crate) fn new(access: Access, token: (HeaderName, &'static str)) -> Client {
        Client { access, token, files: Background::new() }
    }

    /// The URL of the server.
    pub(crate) fn url(&self) -> &str {
        &self.access.url
    }

    /// Sends a GET, and waits for the head of the response at most `within`. Files are read each
    /// time, because tokens and certificates change.
    ///
    /// # Errors
    /// [`GetError`]; for instance a status other than 200.
    pub(crate) async fn get(
        &mut self,
        url: &str,
        within: Duration,
    ) -> Result<HttpAnswer, GetError> {
        let uri: Uri = url.parse().map_err(|_| GetError::Url(url.into()))?;
        let is_secure = uri.scheme_str() == Some("https");
        let (token_file, ca) = (self.access.token_file.clone(), self.access.ca.clone());
        let read = move || read_files(token_file.as_deref(), ca.as_deref(), is_secure);
        let failed = |source| GetError::File { path: "a file".into(), source };
        let files = tokio::time::timeout(within, self.files.run(read)).await;
        let files = files.unwrap_or_else(|_| Err(io::ErrorKind::TimedOut.into()));
        let files = files.map_err(failed)??;
        let request = self.request(uri, files.token.as_deref());
        let answer = head(request, files.authorities.as_ref(), within).await?;
        match answer.status() {
            StatusCode::OK => Ok(answer),
            status => Err(GetError::Status { host: answer.host().into(), status }),
        }
    }

    fn request(&self, uri: Uri, token: Option<&str>) -> Request<Empty<Bytes>> {
        let mut request = Request::new(Empty::new());
        *request.uri_mut() = uri;
        let headers = request.headers_mut();
        headers.insert(ACCEPT, HeaderValue::from_static("application/json"));
        let (name, scheme) = &self.token;
        let value = token.and_then(|it| HeaderValue::from_str(&format!("{scheme}{it}")).ok());
        headers.extend(value.map(|mut value| {
            value.set_sensitive(true);
            (name.clone(), value)
        }));
        request
    }
}

fn read_files(token: Option<&Path>, ca: Option<&Path>, is_secure: bool) -> Result<Files, GetError> {
    let token = match token {
        Some(path) => {
            let unreadable = |source| GetError::File { path: path.display().to_string(), source };
            let text = files::read_text(path, TOKEN_BYTES_MAX).map_err(unreadable)?;
            Some(text.trim().to_string())
        }
        None => None,
    };
    let authorities = if is_secure { Some(Authorities::load(ca)?) } else { None };
    Ok(Files { token, authorities })
}
