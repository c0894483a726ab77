//! Flows of the packet level, and pins.

use std::sync::Arc;

use axum::extract::State;
use axum::http::HeaderMap;

use super::Routes;
use crate::answer::{Answer, Tagged};
use crate::auth::Access;
use crate::change::Turn;
use crate::condition::ETag;
use crate::extract::{Asked, Body};
use crate::wire::packet::{FlowAnswer, FlowQuestion, Pin, PinKey, Pins};
use crate::{Operator, PacketOperator, Problem};

pub(super) fn routes<O: Operator>() -> Routes<O> {
    Routes::default()
        .get(Access::READ, "/v1/flow", flow::<O>, "Explain where the next packet of a flow goes")
        .get(Access::READ, "/v1/pins", pins::<O>, "The flows that are pinned to a backend")
        .post(Access::OPERATE, "/v1/pins", add::<O>, "Pin a flow to a backend")
        .put(Access::OPERATE, "/v1/pins", move_to::<O>, "Pin a pinned flow to another backend")
        .delete(
            Access::OPERATE,
            "/v1/pins",
            remove::<O>,
            "Remove a pin; the flow stays at its backend until it ends",
        )
}

async fn flow<O: PacketOperator>(
    State(operator): State<Arc<O>>,
    Asked(question): Asked<FlowQuestion>,
) -> Result<Answer<FlowAnswer>, Problem> {
    Ok(Answer::new(operator.explain_flow(question).await?))
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
