//! Authentication, authorization and audit middleware.

use std::sync::Arc;
use std::time::{Duration, Instant, SystemTime};

use axum::extract::{MatchedPath, Query, Request, State};
use axum::http::{HeaderMap, HeaderName, HeaderValue, Method, StatusCode, header};
use axum::middleware::Next;
use axum::response::{IntoResponse, Response};
use equipoise_basics::lock;

use crate::Problem;
use crate::api::Api;
use crate::audit::{Asked, Happened, Line};
use crate::auth::{
    self, Access, Caller, ClientCertificate, Peer, Shown, TurnedAwayFor, Unknown, Who,
};
use crate::change::Notes;

/// Longest time until an answer begins. A reload that waits for a resolver takes longest.
pub(crate) const ANSWER_TIMEOUT: Duration = Duration::from_secs(60);

/// Admits or rejects a request. Changes and rejections are written to the audit log.
pub(crate) async fn admit<O: Send + Sync + 'static>(
    State(api): State<Api<O>>,
    mut request: Request,
    next: Next,
) -> Response {
    let Some(peer) = request.extensions().get::<Peer>().copied() else {
        // Rejects a request without peer information from the listener.
        return no_peer().into_response();
    };
    let mut asked = asked(&request, peer);
    let path = request.extensions().get::<MatchedPath>().map(MatchedPath::as_str);
    let access = api.access(request.method(), path);
    // A POST that needs no more than the role of readers is a question.
    let is_change =
        !matches!(*request.method(), Method::GET | Method::HEAD) && access > Access::READ;
    let turned_away = match auth::refuse(&request, peer) {
        Some(problem) => {
            let only_counted =
                api.gate().is_too_often(peer, TurnedAwayFor::Request, Instant::now());
            Some(TurnedAway { only_counted, ..*TurnedAway::plain(problem) })
        }
        None => match may(&api, &request, peer, access) {
            Ok(caller) => {
                request.extensions_mut().insert(caller.clone());
                asked.caller = Some(caller);
                None
            }
            Err(away) => {
                asked.caller.clone_from(&away.caller);
                Some(*away)
            }
        },
    };
    if let Some(away) = turned_away {
        if away.only_counted {
            api.audit().count();
        } else {
            let happened = happened_in(&away.response, &Notes::default());
            api.audit().write(Line::new(asked, happened, SystemTime::now())).await;
        }
        return away.response;
    }
    if let Err(problem) = check_query(&api, &request) {
        let response = problem.into_response();
        if is_change {
            let happened = happened_in(&response, &Notes::default());
            api.audit().write(Line::new(asked, happened, SystemTime::now())).await;
        }
        return response;
    }
    if !is_change {
        return in_time(next.run(request)).await;
    }
    let notes = Notes::default();
    request.extensions_mut().insert(Notes::clone(&notes));
    // A change is completed and audited whether or not its caller still waits for it.
    let change = tokio::spawn(async move {
        let response = next.run(request).await;
        let line = Line::new(asked, happened_in(&response, &notes), SystemTime::now());
        api.audit().write(line).await;
        response
    });
    in_time(async { change.await.unwrap_or_else(|_| panicked().into_response()) }).await
}

/// Checks that the route of a request has each key of the query. Probes of other systems add keys
/// of their own to paths outside /v1.
fn check_query<O>(api: &Api<O>, request: &Request) -> Result<(), Problem> {
    let path = request.extensions().get::<MatchedPath>().map(MatchedPath::as_str);
    let route = api.declared(request.method(), path).filter(|it| it.path.starts_with("/v1/"));
    let Some(route) = route else { return Ok(()) };
    let query = Query::<Vec<(String, String)>>::try_from_uri(request.uri());
    let Ok(Query(pairs)) = query else { return Ok(()) };
    let Some((key, _)) = pairs.iter().find(|(key, _)| !route.query.contains(key)) else {
        return Ok(());
    };
    let accepted = match route.query.is_empty() {
        true => "it has no query".to_owned(),
        false => format!("accepted: `{}`", route.query.join("`, `")),
    };
    let (method, path) = (&route.method, route.path);
    let detail =
        format!("`{}` is no key of the query of {method} {path}; {accepted}", key.escape_debug());
    Err(Problem::new(StatusCode::BAD_REQUEST, "unknown query key", detail))
}

fn asked(request: &Request, peer: Peer) -> Asked {
    let path = request.uri().path_and_query().map_or("", |path| path.as_str());
    let if_match = request.headers().get(header::IF_MATCH);
    Asked {
        peer: Some(peer),
        caller: None,
        method: request.method().to_string(),
        path: path.to_owned(),
        if_match: if_match.map(|value| String::from_utf8_lossy(value.as_bytes()).into_owned()),
    }
}

fn happened_in(response: &Response, notes: &Notes) -> Happened {
    let mut noted = lock(notes);
    let problem = response.extensions().get::<Problem>();
    Happened {
        status: Some(response.status().as_u16()),
        detail: problem.map(|problem| problem.detail.clone()),
        before: noted.before.take(),
        after: noted.after.take(),
    }
}

async fn in_time(answer: impl Future<Output = Response>) -> Response {
    tokio::time::timeout(ANSWER_TIMEOUT, answer).await.unwrap_or_else(|_| {
        let detail = format!(
            "no answer within {} s; a change continues: see /v1/status for its outcome",
            ANSWER_TIMEOUT.as_secs()
        );
        Problem::new(StatusCode::SERVICE_UNAVAILABLE, "not answered in time", detail)
            .into_response()
    })
}

/// A request that is rejected.
struct TurnedAway {
    /// The caller, if it is known.
    caller: Option<Caller>,
    response: Response,
    /// The request is only counted, without its own line in the audit log.
    only_counted: bool,
}

impl TurnedAway {
    fn plain(problem: Problem) -> Box<TurnedAway> {
        let response = problem.into_response();
        Box::new(TurnedAway { caller: None, response, only_counted: false })
    }

    fn with_header(mut self: Box<Self>, name: HeaderName, value: &str) -> Box<TurnedAway> {
        if let Ok(value) = HeaderValue::from_str(value) {
            self.response.headers_mut().insert(name, value);
        }
        self
    }
}

fn may<O>(
    api: &Api<O>,
    request: &Request,
    peer: Peer,
    access: Access,
) -> Result<Caller, Box<TurnedAway>> {
    if access == Access::Anyone {
        return Ok(Caller { who: Who::Anonymous, role: None });
    }
    let certificate = request.extensions().get::<Arc<ClientCertificate>>().map(|it| &**it);
    let shown = Shown { token: bearer(request.headers()), certificate };
    let caller = api.gate().know(peer, shown, Instant::now());
    let caller = caller.map_err(|unknown| unauthorized(unknown, certificate))?;
    if access.allows(caller.role) {
        return Ok(caller);
    }
    let mut away = forbidden(&caller, access);
    away.caller = Some(caller);
    away.only_counted = api.gate().is_too_often(peer, TurnedAwayFor::Role, Instant::now());
    Err(away)
}

/// The bearer token of a request (RFC 6750, section 2.1). Two headers count as none.
fn bearer(headers: &HeaderMap) -> Option<&[u8]> {
    let mut lines = headers.get_all(header::AUTHORIZATION).iter();
    let line = lines.next().filter(|_| lines.next().is_none())?.as_bytes();
    let (scheme, token) = line.split_at_checked(b"bearer ".len())?;
    scheme.eq_ignore_ascii_case(b"bearer ").then(|| token.trim_ascii())
}

const HOW_TO: &str = "send `Authorization: Bearer TOKEN` with the token of an [[api.token]] of the configuration (on the \
                      command line: --token-file FILE, or EQUIPOISE_API_TOKEN), use the certificate of an \
                      [[api.client]] (--certificate FILE), or use the unix socket";

fn unauthorized(unknown: Unknown, certificate: Option<&ClientCertificate>) -> Box<TurnedAway> {
    let problem = |detail: &str| {
        Problem::new(StatusCode::UNAUTHORIZED, "not authenticated", format!("{detail}: {HOW_TO}"))
    };
    match unknown {
        Unknown::NoToken => TurnedAway::plain(problem("a token is needed"))
            .with_header(header::WWW_AUTHENTICATE, "Bearer realm=\"equipoise\""),
        Unknown::WrongToken => TurnedAway::plain(problem("this token is not known")).with_header(
            header::WWW_AUTHENTICATE,
            "Bearer realm=\"equipoise\", error=\"invalid_token\"",
        ),
        Unknown::Certificate => {
            let subject = certificate.map_or("", |it| &it.identity.subject);
            TurnedAway::plain(problem(&format!(
                "the certificate `{subject}` is none of an [[api.client]]"
            )))
            .with_header(header::WWW_AUTHENTICATE, "Bearer realm=\"equipoise\"")
        }
        Unknown::TooMany { after } => {
            let seconds = after.as_secs() + 1;
            let detail = format!(
                "too many requests from this address without a known token (option `api.auth-failures`); \
                 retry after {seconds} s, or at once with a token: {HOW_TO}"
            );
            let problem = Problem::new(StatusCode::TOO_MANY_REQUESTS, "too many failures", detail);
            let away = TurnedAway::plain(problem);
            let mut away = away.with_header(header::RETRY_AFTER, &seconds.to_string());
            away.only_counted = true;
            away
        }
    }
}

fn forbidden(caller: &Caller, access: Access) -> Box<TurnedAway> {
    let Access::Needs(needed) = access else { return TurnedAway::plain(no_peer()) };
    let detail = match &caller.who {
        Who::Token(name) => format!(
            "token `{name}` has the role `{}`, but this request needs `{needed}`",
            caller.role.map_or("none", super::Role::word)
        ),
        Who::Client(name) => format!(
            "client `{name}` has the role `{}`, but this request needs `{needed}`",
            caller.role.map_or("none", super::Role::word)
        ),
        _ => "without an [[api.token]] or an [[api.client]], every user of this machine could use TCP, so TCP is read-only; \
              use the unix socket, or configure a token and reload (equipoise api-token FILE creates one)"
            .into(),
    };
    let challenge =
        format!("Bearer realm=\"equipoise\", error=\"insufficient_scope\", scope=\"{needed}\"");
    TurnedAway::plain(Problem::new(StatusCode::FORBIDDEN, "not with this role", detail))
        .with_header(header::WWW_AUTHENTICATE, &challenge)
}

fn no_peer() -> Problem {
    let detail = "this connection did not come through one of the API's listeners";
    Problem::new(StatusCode::FORBIDDEN, "unknown connection", detail)
}

fn panicked() -> Problem {
    let detail = "the change ended early because of a bug in equipoise; its log has the place. Please report it";
    Problem::new(StatusCode::INTERNAL_SERVER_ERROR, "fault", detail)
}
