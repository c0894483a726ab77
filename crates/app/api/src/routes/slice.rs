//! The slice level: streams, workers, slices.

use std::collections::BTreeMap;
use std::sync::Arc;

use axum::extract::State;
use axum::http::HeaderMap;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::Routes;
use crate::answer::{Answer, Tagged};
use crate::change::Turn;
use crate::condition::ETag;
use crate::extract::{Body, Named};
use crate::wire::slice::{
    SliceMove, SliceMoves, SlicePin, SlicePlan, SliceResize, SliceResizing, SliceWorker,
    StreamStatus, Streams,
};
use crate::{OperateError, Operator, Problem};

/// Path of a stream.
#[derive(Deserialize, JsonSchema)]
struct StreamPath {
    /// The stream's name.
    stream: String,
}

/// Path of a worker.
#[derive(Deserialize, JsonSchema)]
struct WorkerPath {
    /// The stream's name.
    stream: String,
    /// The worker's name.
    worker: String,
}

/// Path of a slice.
#[derive(Deserialize, JsonSchema)]
struct SlicePath {
    /// The stream's name.
    stream: String,
    /// The slice's number.
    slice: u32,
}

operations! {
    /// The streams of the slice level, with workers and slices
    STREAMS = GET "/v1/slices", READ, () => Streams;

    /// A stream; its ETag covers drained workers and pinned slices
    STREAM = GET "/v1/slices/{stream}", READ, () => StreamStatus;

    /// The moves that a balancing round would start now
    MOVES_PLANNED = GET "/v1/slices/{stream}/plan", READ, () => SlicePlan;

    /// Move slices to a worker now
    MOVE = POST "/v1/slices/{stream}/moves", OPERATE, SliceMove => SliceMoves;

    /// Split or join slices, so that there are twice or half as many
    RESIZE = POST "/v1/slices/{stream}/resize", OPERATE, SliceResize => StreamStatus;

    /// Drain a worker: move its slices to others
    DRAIN_WORKER = POST "/v1/slices/{stream}/workers/{worker}/drain", OPERATE, () => SliceWorker;

    /// Give a drained worker slices again
    UNDRAIN_WORKER = POST "/v1/slices/{stream}/workers/{worker}/undrain",
        OPERATE, () => SliceWorker;

    /// Keep a slice on a worker while the worker is present
    PIN = PUT "/v1/slices/{stream}/pins/{slice}", OPERATE, SlicePin => StreamStatus;

    /// Let balancing move a pinned slice again
    UNPIN = DELETE "/v1/slices/{stream}/pins/{slice}", OPERATE, () => StreamStatus;
}

/// Operations on the slice level. Without implementations, there is no slice level.
pub trait SliceOperator: Send + Sync + 'static {
    /// The streams of the slice level.
    fn streams(&self) -> impl Future<Output = Result<Streams, OperateError>> + Send {
        async { Err(OperateError::NoSliceLevel) }
    }

    /// Returns the moves of a balancing round that would start now.
    fn slice_plan(
        &self,
        _stream: &str,
    ) -> impl Future<Output = Result<SlicePlan, OperateError>> + Send {
        async { Err(OperateError::NoSliceLevel) }
    }

    /// Moves slices to a worker.
    fn move_slices(
        &self,
        _stream: &str,
        _wish: SliceMove,
    ) -> impl Future<Output = Result<SliceMoves, OperateError>> + Send {
        async { Err(OperateError::NoSliceLevel) }
    }

    /// Splits or joins the slices of a stream. Returns the stream.
    fn resize_stream(
        &self,
        _stream: &str,
        _slices: u32,
    ) -> impl Future<Output = Result<StreamStatus, OperateError>> + Send {
        async { Err(OperateError::NoSliceLevel) }
    }

    /// Drains a worker of its slices, or gives it slices again. Returns the stream.
    fn drain_worker(
        &self,
        _stream: &str,
        _worker: &str,
        _drained: bool,
    ) -> impl Future<Output = Result<StreamStatus, OperateError>> + Send {
        async { Err(OperateError::NoSliceLevel) }
    }

    /// Keeps a slice on a worker or, with `None`, allows moves again. Returns the stream.
    fn pin_slice(
        &self,
        _stream: &str,
        _slice: u32,
        _worker: Option<String>,
    ) -> impl Future<Output = Result<StreamStatus, OperateError>> + Send {
        async { Err(OperateError::NoSliceLevel) }
    }
}

pub(super) fn routes<O: Operator>() -> Routes<O> {
    Routes::default()
        .serve(STREAMS, streams::<O>)
        .serve(STREAM, stream::<O>)
        .serve(MOVES_PLANNED, plan::<O>)
        .serve(MOVE, move_slices::<O>)
        .serve(RESIZE, resize::<O>)
        .serve(DRAIN_WORKER, drain::<O>)
        .serve(UNDRAIN_WORKER, undrain::<O>)
        .serve(PIN, pin::<O>)
        .serve(UNPIN, unpin::<O>)
}

/// The writable state of a stream.
#[derive(Serialize)]
struct Written {
    drained: Vec<String>,
    pins: BTreeMap<u32, String>,
}

impl From<&StreamStatus> for Written {
    fn from(stream: &StreamStatus) -> Self {
        let drained = stream.workers.iter().filter(|worker| worker.drained);
        let pins = stream.slices.iter();
        Written {
            drained: drained.map(|worker| worker.name.clone()).collect(),
            pins: pins.filter_map(|it| Some((it.slice, it.pinned.clone()?))).collect(),
        }
    }
}

fn tag(stream: &StreamStatus) -> ETag {
    ETag::of(&Written::from(stream))
}

/// The writable state of a worker.
#[derive(Serialize)]
struct Wanted<'w> {
    worker: &'w str,
    drained: bool,
}

/// The writable state of a slice.
#[derive(Serialize)]
struct Kept {
    slice: u32,
    pinned: Option<String>,
}

impl Kept {
    fn of(stream: &StreamStatus, slice: u32) -> Kept {
        let state = stream.slices.iter().find(|it| it.slice == slice);
        Kept { slice, pinned: state.and_then(|it| it.pinned.clone()) }
    }
}

async fn streams<O: SliceOperator>(
    State(operator): State<Arc<O>>,
) -> Result<Answer<Streams>, Problem> {
    Ok(Answer::new(operator.streams().await?))
}

async fn one<O: SliceOperator>(operator: &O, name: &str) -> Result<StreamStatus, OperateError> {
    let streams = operator.streams().await?.streams;
    let known: Vec<String> = streams.iter().map(|stream| stream.name.clone()).collect();
    let found = streams.into_iter().find(|stream| stream.name == name);
    found.ok_or_else(|| {
        let known = known.join("`, `");
        OperateError::NotFound(format!("there is no stream `{name}`; the streams are `{known}`"))
    })
}

async fn stream<O: SliceOperator>(
    State(operator): State<Arc<O>>,
    Named(StreamPath { stream }): Named<StreamPath>,
    headers: HeaderMap,
) -> Result<Tagged<StreamStatus>, Problem> {
    let found = one(&*operator, &stream).await?;
    let tag = tag(&found);
    Ok(Tagged::new(found, tag).unless_seen(&headers))
}

async fn plan<O: SliceOperator>(
    State(operator): State<Arc<O>>,
    Named(StreamPath { stream }): Named<StreamPath>,
) -> Result<Answer<SlicePlan>, Problem> {
    Ok(Answer::new(operator.slice_plan(&stream).await?))
}

/// Moves have no tag of ownership, since balancing changes it at any time.
async fn move_slices<O: SliceOperator>(
    State(operator): State<Arc<O>>,
    Named(StreamPath { stream }): Named<StreamPath>,
    turn: Turn,
    Body(wish): Body<SliceMove>,
) -> Result<Tagged<SliceMoves>, Problem> {
    let change = turn.wait().await;
    let before = one(&*operator, &stream).await?;
    change.of(&tag(&before))?;
    let owners = before.slices.iter().filter(|it| wish.slices.contains(&it.slice));
    let owners: BTreeMap<u32, Option<String>> =
        owners.map(|it| (it.slice, it.owner.clone())).collect();
    change.before(&owners);
    let moves = operator.move_slices(&stream, wish).await?;
    change.after(&moves);
    Ok(Tagged::new(moves, tag(&one(&*operator, &stream).await?)))
}

/// How many slices there are, and are to be.
#[derive(Serialize)]
struct Size<'s> {
    slices: u32,
    resizing: &'s Option<SliceResizing>,
}

impl<'s> Size<'s> {
    fn of(stream: &'s StreamStatus) -> Self {
        Size { slices: stream.slices_total, resizing: &stream.resizing }
    }
}

async fn resize<O: SliceOperator>(
    State(operator): State<Arc<O>>,
    Named(StreamPath { stream }): Named<StreamPath>,
    turn: Turn,
    Body(wish): Body<SliceResize>,
) -> Result<Tagged<StreamStatus>, Problem> {
    let change = turn.wait().await;
    let before = one(&*operator, &stream).await?;
    change.of(&tag(&before))?;
    change.before(&Size::of(&before));
    let after = operator.resize_stream(&stream, wish.slices).await?;
    change.after(&Size::of(&after));
    let tag = tag(&after);
    Ok(Tagged::new(after, tag))
}

async fn drain<O: SliceOperator>(
    operator: State<Arc<O>>,
    named: Named<WorkerPath>,
    turn: Turn,
) -> Result<Tagged<SliceWorker>, Problem> {
    set(operator, named, turn, true).await
}

async fn undrain<O: SliceOperator>(
    operator: State<Arc<O>>,
    named: Named<WorkerPath>,
    turn: Turn,
) -> Result<Tagged<SliceWorker>, Problem> {
    set(operator, named, turn, false).await
}

async fn set<O: SliceOperator>(
    State(operator): State<Arc<O>>,
    Named(WorkerPath { stream, worker }): Named<WorkerPath>,
    turn: Turn,
    drained: bool,
) -> Result<Tagged<SliceWorker>, Problem> {
    let change = turn.wait().await;
    let before = one(&*operator, &stream).await?;
    change.of(&tag(&before))?;
    let was = before.workers.iter().any(|it| it.name == worker && it.drained);
    change.before(&Wanted { worker: &worker, drained: was });
    let after = operator.drain_worker(&stream, &worker, drained).await?;
    change.after(&Wanted { worker: &worker, drained });
    let tag = tag(&after);
    let found = after.workers.into_iter().find(|it| it.name == worker);
    let found = found.ok_or_else(|| OperateError::NotFound(format!("{worker} is gone")))?;
    Ok(Tagged::new(found, tag))
}

async fn pin<O: SliceOperator>(
    operator: State<Arc<O>>,
    named: Named<SlicePath>,
    turn: Turn,
    Body(SlicePin { worker }): Body<SlicePin>,
) -> Result<Tagged<StreamStatus>, Problem> {
    keep(operator, named, turn, Some(worker)).await
}

async fn unpin<O: SliceOperator>(
    operator: State<Arc<O>>,
    named: Named<SlicePath>,
    turn: Turn,
) -> Result<Tagged<StreamStatus>, Problem> {
    keep(operator, named, turn, None).await
}

async fn keep<O: SliceOperator>(
    State(operator): State<Arc<O>>,
    Named(SlicePath { stream, slice }): Named<SlicePath>,
    turn: Turn,
    worker: Option<String>,
) -> Result<Tagged<StreamStatus>, Problem> {
    let change = turn.wait().await;
    let before = one(&*operator, &stream).await?;
    change.of(&tag(&before))?;
    change.before(&Kept::of(&before, slice));
    let after = operator.pin_slice(&stream, slice, worker).await?;
    change.after(&Kept::of(&after, slice));
    let tag = tag(&after);
    Ok(Tagged::new(after, tag))
}
