use std::future::Future;
use std::io;
use std::sync::Arc;

use axum::extract::rejection::QueryRejection;
use axum::extract::rejection::{JsonRejection, PathRejection};
use axum::extract::{DefaultBodyLimit, Path, Query, State};
use axum::http::{HeaderMap, StatusCode, header};
use axum::response::{IntoResponse, Response};
use axum::routing::{get, post, put};
use axum::{Json, Router, middleware};

use crate::listen::{ApiTcp, ApiUnix};
use crate::wire::packet::{FlowAnswer, FlowQuestion, Pin, PinKey, Pins};
use crate::wire::{Admin, Changed, Liveness, Phase, Reloaded, SetWeight, Status};
use crate::{Operator, Problem, guard, metrics, openapi};

/// Requests carry a weight at the most.
const BODY_BYTES_MAX: usize = 16 << 10;

/// The API over `operator`, for a unix socket: whoever may open that may ask anything.
pub fn router<O: Operator>(operator: Arc<O>) -> Router {
    let backend = "/v1/pools/{pool}/backends/{backend}";
    let mut router = Router::new()
        .route("/v1/status", get(status::<O>))
        .route("/v1/health", get(health::<O>))
        .route("/v1/reload", post(reload::<O>))
        .route("/v1/flow", get(flow::<O>))
        .route(
            "/v1/pins",
            get(pins::<O>).post(add_pin::<O>).put(move_pin::<O>).delete(remove_pin::<O>),
        )
        .route("/v1/openapi.json", get(description))
        .route("/metrics", get(scrape::<O>))
        .route(&format!("{backend}/weight"), put(weight::<O>));
    for (action, admin) in ACTIONS {
        let set = move |state, path| set_admin::<O>(state, path, admin);
        router = router.route(&format!("{backend}/{action}"), post(set));
    }
    router
        .fallback(no_such_path)
        .method_not_allowed_fallback(wrong_method)
        .layer(DefaultBodyLimit::max(BODY_BYTES_MAX))
        .layer(middleware::from_fn(guard::refuse_browser_changes))
        .with_state(operator)
}

/// The last part of a backend's path, and what it asks for. `enable` and `undrain` end in the same
/// state; both exist so that each undoes its opposite by its own name.
const ACTIONS: [(&str, Admin); 4] = [
    ("drain", Admin::Drain),
    ("undrain", Admin::Up),
    ("enable", Admin::Up),
    ("disable", Admin::Down),
];

/// Serves on a unix socket until `stop` is done.
///
/// # Errors
/// What accepting fails with.
pub async fn serve_unix<O: Operator>(
    listener: ApiUnix,
    operator: Arc<O>,
    stop: impl Future<Output = ()> + Send + 'static,
) -> io::Result<()> {
    let (listener, _unlink_when_done) = listener.into_parts();
    axum::serve(listener, router(operator)).with_graceful_shutdown(stop).await
}

/// Serves on TCP until `stop` is done. On loopback, only requests for a name of loopback are answered.
///
/// # Errors
/// What accepting fails with.
pub async fn serve_tcp<O: Operator>(
    listener: ApiTcp,
    operator: Arc<O>,
    stop: impl Future<Output = ()> + Send + 'static,
) -> io::Result<()> {
    let mut router = router(operator);
    if listener.local_addr()?.ip().is_loopback() {
        router = router.layer(middleware::from_fn(guard::require_loopback_host));
    }
    axum::serve(listener.into_inner(), router).with_graceful_shutdown(stop).await
}

async fn status<O: Operator>(State(operator): State<Arc<O>>) -> Result<Json<Status>, Problem> {
    Ok(Json(operator.status().await?))
}

async fn health<O: Operator>(State(operator): State<Arc<O>>) -> (StatusCode, Json<Liveness>) {
    let phase = operator.phase();
    let status = match phase {
        Phase::Running => StatusCode::OK,
        Phase::Stopping => StatusCode::SERVICE_UNAVAILABLE,
    };
    (status, Json(Liveness { phase }))
}

async fn scrape<O: Operator>(
    State(operator): State<Arc<O>>,
    headers: HeaderMap,
) -> Result<Response, Problem> {
    let text = metrics::render(operator.metrics().await?).map_err(|error| {
        Problem::new(
            StatusCode::INTERNAL_SERVER_ERROR,
            "metrics not rendered",
            format!("the metrics could not be written as text: {error}"),
        )
    })?;
    let accept = headers.get(header::ACCEPT).and_then(|value| value.to_str().ok());
    let (media_type, text) = match accept {
        Some(accept) if accept.contains("application/openmetrics-text") => {
            (metrics::OPEN_METRICS, text)
        }
        _ => (metrics::PLAIN_TEXT, metrics::to_plain_text(&text)),
    };
    Ok(([(header::CONTENT_TYPE, media_type)], text).into_response())
}

type BackendPath = Result<Path<(String, String)>, PathRejection>;

async fn set_admin<O: Operator>(
    State(operator): State<Arc<O>>,
    path: BackendPath,
    admin: Admin,
) -> Result<Json<Changed>, Problem> {
    let Path((pool, backend)) = path.map_err(bad_path)?;
    Ok(Json(operator.set_admin(&pool, &backend, admin).await?))
}

async fn weight<O: Operator>(
    State(operator): State<Arc<O>>,
    path: BackendPath,
    body: Result<Json<SetWeight>, JsonRejection>,
) -> Result<Json<Changed>, Problem> {
    let Path((pool, backend)) = path.map_err(bad_path)?;
    let Json(body) = body.map_err(|rejection| {
        Problem::new(
            rejection.status(),
            "not a weight",
            format!("{}; send {{\"weight\": 0..=1000}} as application/json", rejection.body_text()),
        )
    })?;
    Ok(Json(operator.set_weight(&pool, &backend, body.weight).await?))
}

async fn reload<O: Operator>(State(operator): State<Arc<O>>) -> Result<Json<Reloaded>, Problem> {
    Ok(Json(operator.reload().await?))
}

type Asked<T> = Result<Query<T>, QueryRejection>;

async fn flow<O: Operator>(
    State(operator): State<Arc<O>>,
    question: Asked<FlowQuestion>,
) -> Result<Json<FlowAnswer>, Problem> {
    let Query(question) = question.map_err(|rejection| {
        let accepted = "?source=IP:PORT&vip=IP:PORT/PROTOCOL, and &mac=MAC for VIPs of that key";
        bad_query(&rejection, accepted)
    })?;
    Ok(Json(operator.explain_flow(question).await?))
}

async fn pins<O: Operator>(State(operator): State<Arc<O>>) -> Result<Json<Pins>, Problem> {
    Ok(Json(operator.pins().await?))
}

type PinBody = Result<Json<Pin>, JsonRejection>;

async fn add_pin<O: Operator>(
    State(operator): State<Arc<O>>,
    body: PinBody,
) -> Result<Json<Pin>, Problem> {
    Ok(Json(operator.add_pin(pin_of(body)?).await?))
}

async fn move_pin<O: Operator>(
    State(operator): State<Arc<O>>,
    body: PinBody,
) -> Result<Json<Pin>, Problem> {
    Ok(Json(operator.move_pin(pin_of(body)?).await?))
}

async fn remove_pin<O: Operator>(
    State(operator): State<Arc<O>>,
    key: Asked<PinKey>,
) -> Result<Json<Pins>, Problem> {
    let Query(key) = key.map_err(|rejection| bad_query(&rejection, "?vip=VIP&flow=FLOW"))?;
    Ok(Json(operator.remove_pin(key).await?))
}

fn pin_of(body: PinBody) -> Result<Pin, Problem> {
    let Json(pin) = body.map_err(|rejection| {
        let detail = format!(
            "{}; send {{\"vip\": ..., \"flow\": ..., \"backend\": ...}} as application/json",
            rejection.body_text()
        );
        Problem::new(rejection.status(), "not a pin", detail)
    })?;
    Ok(pin)
}

async fn description() -> Json<serde_json::Value> {
    Json(openapi::document())
}

fn bad_query(rejection: &QueryRejection, accepted: &str) -> Problem {
    let detail = format!("{}; accepted: {accepted}", rejection.body_text());
    Problem::new(StatusCode::BAD_REQUEST, "query not readable", detail)
}

fn bad_path(rejection: PathRejection) -> Problem {
    Problem::new(
        StatusCode::BAD_REQUEST,
        "path not readable",
        format!("{}; pool and backend are percent-encoded UTF-8", rejection.body_text()),
    )
}

async fn no_such_path(uri: axum::http::Uri) -> Problem {
    Problem::new(
        StatusCode::NOT_FOUND,
        "no such path",
        format!(
            "there is no `{}`; the API has /v1/status, /v1/health, /v1/reload, \
             /v1/pools/POOL/backends/BACKEND/(drain|undrain|enable|disable|weight), /v1/flow, /v1/pins, \
             /v1/openapi.json and /metrics",
            uri.path()
        ),
    )
}

async fn wrong_method(method: axum::http::Method, uri: axum::http::Uri) -> Problem {
    Problem::new(
        StatusCode::METHOD_NOT_ALLOWED,
        "wrong method",
        format!(
            "`{}` does not take {method}; status, health, flow, pins and metrics are read with GET, weights \
             set with PUT, pins made with POST, moved with PUT and removed with DELETE, the rest is done with POST",
            uri.path()
        ),
    )
}
