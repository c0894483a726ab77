//! Flows of the packet level, pins, and captures of packets.

use std::convert::Infallible;
use std::sync::Arc;

use aide::OperationOutput;
use aide::generate::GenContext;
use aide::openapi::{MediaType, Operation, Response as Described, SchemaObject, StatusCode};
use axum::body;
use axum::extract::State;
use axum::http::{HeaderMap, header};
use axum::response::{IntoResponse, Response};
use futures_util::stream;
use tokio::sync::mpsc::Receiver;

use super::Routes;
use crate::answer::{Answer, Answers, Tagged};
use crate::change::Turn;
use crate::condition::ETag;
use crate::extract::{Asked, Body};
use crate::wire::packet::{
    CaptureQuestion, FlowAnswer, FlowQuestion, Pin, PinKey, Pins, SourceFlows, SourceQuestion,
};
use crate::{OperateError, Operator, Problem};

operations! {
    /// Explain where the next packet of a flow goes
    FLOW = GET "/v1/flow", READ, FlowQuestion => FlowAnswer;

    /// The clients of a source address and port of full-nat
    CLIENTS = GET "/v1/flow/clients", READ, SourceQuestion => SourceFlows;

    /// Capture packets of a VIP as a pcapng file, until the limits or the client end it; one
    /// capture at a time
    CAPTURE = POST "/v1/capture", ADMIN, CaptureQuestion => Vec<u8>;

    /// The flows that are pinned to a backend
    PINS = GET "/v1/pins", READ, () => Pins;

    /// Pin a flow to a backend
    ADD_PIN = POST "/v1/pins", OPERATE, Pin => Pin;

    /// Pin a pinned flow to another backend
    MOVE_PIN = PUT "/v1/pins", OPERATE, Pin => Pin;

    /// Remove a pin; the flow stays at its backend until it ends
    REMOVE_PIN = DELETE "/v1/pins", OPERATE, PinKey => Pins;
}

/// A capture: the parts of a pcapng file. Dropping it ends the capture.
pub struct CaptureFile {
    /// The parts, until the capture ends.
    pub parts: Receiver<Vec<u8>>,
    /// Ends the capture when it is dropped.
    pub capture: Box<dyn Send>,
}

/// Operations on the packet level. Without implementations, there is no packet level.
pub trait PacketOperator: Send + Sync + 'static {
    /// Explains where the next packet of a flow goes.
    fn explain_flow(
        &self,
        _question: FlowQuestion,
    ) -> impl Future<Output = Result<FlowAnswer, OperateError>> + Send {
        async { Err(OperateError::NoPacketLevel) }
    }

    /// Finds the clients of a source of full-nat.
    fn flows_of_source(
        &self,
        _question: SourceQuestion,
    ) -> impl Future<Output = Result<SourceFlows, OperateError>> + Send {
        async { Err(OperateError::NoPacketLevel) }
    }

    /// Captures packets.
    fn capture(
        &self,
        _question: CaptureQuestion,
    ) -> impl Future<Output = Result<CaptureFile, OperateError>> + Send {
        async { Err(OperateError::NoPacketLevel) }
    }

    /// The pinned flows.
    fn pins(&self) -> impl Future<Output = Result<Pins, OperateError>> + Send {
        async { Err(OperateError::NoPacketLevel) }
    }

    /// Pins a flow to a backend, until the pin is removed or the packet level stops.
    fn add_pin(&self, _pin: Pin) -> impl Future<Output = Result<Pin, OperateError>> + Send {
        async { Err(OperateError::NoPacketLevel) }
    }

    /// Pins a pinned flow to another backend.
    fn move_pin(&self, _pin: Pin) -> impl Future<Output = Result<Pin, OperateError>> + Send {
        async { Err(OperateError::NoPacketLevel) }
    }

    /// Removes a pin. The flow stays at its backend until it ends.
    fn remove_pin(&self, _pin: PinKey) -> impl Future<Output = Result<Pins, OperateError>> + Send {
        async { Err(OperateError::NoPacketLevel) }
    }
}

pub(super) fn routes<O: Operator>() -> Routes<O> {
    Routes::default()
        .serve(FLOW, flow::<O>)
        .serve(CLIENTS, clients::<O>)
        .serve(CAPTURE, capture::<O>)
        .serve(PINS, pins::<O>)
        .serve(ADD_PIN, add::<O>)
        .serve(MOVE_PIN, move_to::<O>)
        .serve(REMOVE_PIN, remove::<O>)
}

async fn flow<O: PacketOperator>(
    State(operator): State<Arc<O>>,
    Asked(question): Asked<FlowQuestion>,
) -> Result<Answer<FlowAnswer>, Problem> {
    Ok(Answer::new(operator.explain_flow(question).await?))
}

async fn clients<O: PacketOperator>(
    State(operator): State<Arc<O>>,
    Asked(question): Asked<SourceQuestion>,
) -> Result<Answer<SourceFlows>, Problem> {
    Ok(Answer::new(operator.flows_of_source(question).await?))
}

async fn capture<O: PacketOperator>(
    State(operator): State<Arc<O>>,
    Body(question): Body<CaptureQuestion>,
) -> Result<Capture, Problem> {
    Ok(Capture(operator.capture(question).await?))
}

/// pcapng has no registered type, and generated clients know only this one for files.
const FILE: &str = "application/octet-stream";

/// A file that grows while packets are captured. A client that leaves ends the capture.
struct Capture(CaptureFile);

impl IntoResponse for Capture {
    fn into_response(self) -> Response {
        let parts = stream::unfold(self.0, |mut file| async move {
            let part = file.parts.recv().await?;
            Some((Ok::<_, Infallible>(part), file))
        });
        let head = [(header::CONTENT_TYPE, FILE), (header::CACHE_CONTROL, "no-store")];
        (head, body::Body::from_stream(parts)).into_response()
    }
}

impl Answers<Vec<u8>> for Capture {}

impl OperationOutput for Capture {
    type Inner = Vec<u8>;

    fn inferred_responses(
        _: &mut GenContext,
        _: &mut Operation,
    ) -> Vec<(Option<StatusCode>, Described)> {
        let schema = SchemaObject {
            json_schema: schemars::json_schema!({ "type": "string", "format": "binary" }),
            external_docs: None,
            example: None,
        };
        let media = MediaType { schema: Some(schema), ..MediaType::default() };
        let described = Described {
            description: "The file".into(),
            content: [(FILE.to_owned(), media)].into_iter().collect(),
            ..Described::default()
        };
        vec![(Some(StatusCode::Code(200)), described)]
    }
}

async fn pins<O: PacketOperator>(
    State(operator): State<Arc<O>>,
    headers: HeaderMap,
) -> Result<Tagged<Pins>, Problem> {
    let pins = operator.pins().await?;
    let tag = tag(&pins);
    Ok(Tagged::new(pins, tag).unless_seen(&headers))
}

/// The tag does not cover whether a pin is in force, which depends on the backend.
fn tag(pins: &Pins) -> ETag {
    let written = |pin: &Pin| (pin.vip.clone(), pin.flow.clone(), pin.backend.clone());
    ETag::of(&pins.pins.iter().map(written).collect::<Vec<_>>())
}

fn pin_of<'p>(pins: &'p Pins, made: &Pin) -> Option<&'p Pin> {
    pins.pins.iter().find(|pin| (&pin.vip, &pin.flow) == (&made.vip, &made.flow))
}

async fn add<O: PacketOperator>(
    State(operator): State<Arc<O>>,
    turn: Turn,
    Body(pin): Body<Pin>,
) -> Result<Tagged<Pin>, Problem> {
    let change = turn.wait().await;
    change.of(&tag(&operator.pins().await?))?;
    let made = operator.add_pin(pin).await?;
    change.after(&made);
    Ok(Tagged::new(made, tag(&operator.pins().await?)))
}

async fn move_to<O: PacketOperator>(
    State(operator): State<Arc<O>>,
    turn: Turn,
    Body(pin): Body<Pin>,
) -> Result<Tagged<Pin>, Problem> {
    let change = turn.wait().await;
    let before = operator.pins().await?;
    change.of(&tag(&before))?;
    let made = operator.move_pin(pin).await?;
    // Only now the flow's name has the form in which pins are shown.
    change.before(&pin_of(&before, &made));
    change.after(&made);
    Ok(Tagged::new(made, tag(&operator.pins().await?)))
}

async fn remove<O: PacketOperator>(
    State(operator): State<Arc<O>>,
    turn: Turn,
    Asked(key): Asked<PinKey>,
) -> Result<Tagged<Pins>, Problem> {
    let change = turn.wait().await;
    let before = operator.pins().await?;
    change.of(&tag(&before))?;
    let left = operator.remove_pin(key).await?;
    change.before(&before.pins.iter().find(|pin| pin_of(&left, pin).is_none()));
    let tag = tag(&left);
    Ok(Tagged::new(left, tag))
}
