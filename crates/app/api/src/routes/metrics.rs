//! Metrics for Prometheus.

use std::sync::Arc;

use aide::OperationOutput;
use aide::generate::GenContext;
use aide::openapi::{MediaType, Operation, Response as Described, StatusCode};
use axum::extract::State;
use axum::http::{HeaderMap, StatusCode as Status, header};
use axum::response::{IntoResponse, Response};

use super::Routes;
use crate::answer::Answers;
use crate::{Operator, Problem, ProcessOperator, metrics};

operations! {
    /// Metrics for Prometheus
    METRICS = GET "/metrics", READ, () => String;
}

pub(super) fn routes<O: Operator>() -> Routes<O> {
    Routes::default().serve(METRICS, scrape::<O>)
}

/// Metrics in the requested format.
struct Figures {
    media_type: &'static str,
    text: String,
}

async fn scrape<O: ProcessOperator>(
    State(operator): State<Arc<O>>,
    headers: HeaderMap,
) -> Result<Figures, Problem> {
    let text = metrics::render(operator.metrics().await?).map_err(|error| {
        Problem::new(
            Status::INTERNAL_SERVER_ERROR,
            "metrics not rendered",
            format!("cannot write the metrics as text: {error}"),
        )
    })?;
    let accept = headers.get(header::ACCEPT).and_then(|value| value.to_str().ok());
    Ok(match accept {
        Some(accept) if accept.contains("application/openmetrics-text") => {
            Figures { media_type: metrics::OPEN_METRICS, text }
        }
        _ => Figures { media_type: metrics::PLAIN_TEXT, text: metrics::to_plain_text(&text) },
    })
}

impl IntoResponse for Figures {
    fn into_response(self) -> Response {
        ([(header::CONTENT_TYPE, self.media_type)], self.text).into_response()
    }
}

impl Answers<String> for Figures {}

impl OperationOutput for Figures {
    type Inner = String;

    fn inferred_responses(
        _: &mut GenContext,
        _: &mut Operation,
    ) -> Vec<(Option<StatusCode>, Described)> {
        let content = [metrics::PLAIN_TEXT, metrics::OPEN_METRICS]
            .map(|media_type| (media_type.to_owned(), MediaType::default()));
        let described = Described {
            description: "All metrics; the format is negotiated by Accept".into(),
            content: content.into_iter().collect(),
            ..Described::default()
        };
        vec![(Some(StatusCode::Code(200)), described)]
    }
}
