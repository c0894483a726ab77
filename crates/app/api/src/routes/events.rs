//! Events: a document of those that are kept, or a stream that goes on.

use std::convert::Infallible;

use aide::generate::GenContext;
use aide::openapi::{MediaType, Operation, Response as Described, StatusCode};
use aide::{OperationInput, OperationOutput};
use axum::body::Body;
use axum::extract::{FromRequestParts, State};
use axum::http::request::Parts;
use axum::http::{HeaderName, StatusCode as Status, header};
use axum::response::{IntoResponse, Response};
use futures_util::{StreamExt, stream};
use schemars::JsonSchema;

use super::Routes;
use crate::answer::{Answer, Answers};
use crate::api::Api;
use crate::events::{self, Filter, Reader, Stopping};
use crate::extract::{Asked, header_parameter};
use crate::wire::events::{Events, EventsQuestion};
use crate::{Operator, Problem};

const EVENT_STREAM: &str = "text/event-stream";
const LAST_EVENT_ID: &str = "last-event-id";
/// The first part of a stream: the time after which a browser connects again, in milliseconds.
const RETRY: &str = "retry: 1000\n\n";

operations! {
    /// The last events; with `Accept: text/event-stream` a stream that goes on with new ones
    EVENTS = GET "/v1/events", READ, EventsQuestion => Events;
}

pub(super) fn routes<O: Operator>() -> Routes<O> {
    Routes::default().serve(EVENTS, events::<O>)
}

async fn events<O: Operator>(
    State(api): State<Api<O>>,
    Asked(question): Asked<EventsQuestion>,
    Subscription { last, streams, stopping }: Subscription,
) -> Result<Told, Problem> {
    let kinds = question.kind.as_deref().map_or(Ok(()), events::check);
    let after = question.after.as_deref().map_or(Ok(()), events::check_id);
    kinds
        .and(after)
        .map_err(|detail| Problem::new(Status::BAD_REQUEST, "query not readable", detail))?;
    let filter = Filter::new(question.kind.as_deref(), question.subject.as_deref());
    let after = last.or(question.after);
    let mut reader = Reader::new(api.journal(), filter, after.as_deref());
    if !streams {
        let events = reader.rest();
        return Ok(Told::Document(Events { last: reader.last(), events }));
    }
    let place = api.journal().stream().ok_or_else(|| {
        let detail = "too many clients follow the events: end one of them, or ask without \
                      `Accept: text/event-stream`";
        Problem::new(Status::SERVICE_UNAVAILABLE, "too many event streams", detail)
    })?;
    let state = (reader, stopping, place);
    let parts = stream::unfold(state, |(mut reader, mut stopping, place)| async move {
        let part = reader.next_part(&mut stopping).await?;
        Some((part, (reader, stopping, place)))
    });
    let all = stream::iter([RETRY.to_owned()]).chain(parts);
    Ok(Told::Stream(Body::from_stream(all.map(Ok::<_, Infallible>))))
}

/// The form that a client wants, and where it continues.
struct Subscription {
    last: Option<String>,
    /// It asks for a stream.
    streams: bool,
    /// Ends with the listener.
    stopping: Option<Stopping>,
}

impl<S: Send + Sync> FromRequestParts<S> for Subscription {
    type Rejection = Infallible;

    async fn from_request_parts(parts: &mut Parts, _: &S) -> Result<Self, Infallible> {
        let text = |name: HeaderName| parts.headers.get(name).and_then(|it| it.to_str().ok());
        Ok(Subscription {
            last: text(HeaderName::from_static(LAST_EVENT_ID)).map(str::to_owned),
            streams: text(header::ACCEPT).is_some_and(|accept| accept.contains(EVENT_STREAM)),
            stopping: parts.extensions.get::<Stopping>().cloned(),
        })
    }
}

impl OperationInput for Subscription {
    fn operation_input(ctx: &mut GenContext, operation: &mut Operation) {
        let json_schema = String::json_schema(&mut ctx.schema);
        let description = "The id of the last event that the client has; as `after` in the query";
        header_parameter(ctx, operation, "Last-Event-ID", description, json_schema);
    }
}

/// The events in the requested form.
enum Told {
    Document(Events),
    Stream(Body),
}

impl IntoResponse for Told {
    fn into_response(self) -> Response {
        match self {
            Told::Document(events) => Answer::new(events).into_response(),
            Told::Stream(body) => {
                let head =
                    [(header::CONTENT_TYPE, EVENT_STREAM), (header::CACHE_CONTROL, "no-store")];
                (head, body).into_response()
            }
        }
    }
}

impl Answers<Events> for Told {}

impl OperationOutput for Told {
    type Inner = Events;

    fn inferred_responses(
        ctx: &mut GenContext,
        operation: &mut Operation,
    ) -> Vec<(Option<StatusCode>, Described)> {
        let Some(mut described) = Answer::<Events>::operation_response(ctx, operation) else {
            return Vec::new();
        };
        described.description = "The form is negotiated by Accept".into();
        described.content.insert(EVENT_STREAM.into(), MediaType::default());
        vec![(Some(StatusCode::Code(200)), described)]
    }
}
