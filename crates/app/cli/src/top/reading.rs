//! The answers of a process at one moment.

use std::time::{Duration, Instant};

use equipoise_api::client::{Client, ClientError};
use equipoise_api::routes::plan::NODES;
use equipoise_api::routes::process::{HEALTH, STATUS};
use equipoise_api::routes::slice::STREAMS;
use equipoise_api::wire::Status;
use equipoise_api::wire::plan::NodeStatus;
use equipoise_api::wire::slice::StreamStatus;

/// Longest time for a reading.
const PATIENCE: Duration = Duration::from_secs(3);

/// The answers of one moment.
#[derive(Clone, Debug)]
pub(super) struct Reading {
    pub(super) at: Instant,
    pub(super) status: Status,
    /// Parts that have failed although traffic continues.
    pub(super) degraded: Vec<String>,
    /// Members that report here; empty if this process has no controller.
    pub(super) nodes: Vec<NodeStatus>,
    pub(super) streams: Vec<StreamStatus>,
}

impl Reading {
    /// Asks the process.
    ///
    /// # Errors
    /// The process refuses, or does not answer in time; without `Some`, there was no answer at all.
    pub(super) async fn take(client: &Client) -> Result<Reading, Option<ClientError>> {
        match tokio::time::timeout(PATIENCE, ask(client)).await {
            Ok(reading) => reading.map_err(Some),
            Err(_) => Err(None),
        }
    }
}

async fn ask(client: &Client) -> Result<Reading, ClientError> {
    let status = client.ask(STATUS, &()).await?;
    // A process that stops has no health, and one without a controller no nodes.
    let degraded = client.ask(HEALTH, &()).await.map(|health| health.degraded).unwrap_or_default();
    let nodes = match status.controller {
        Some(_) => client.ask(NODES, &()).await.map(|nodes| nodes.nodes).unwrap_or_default(),
        None => Vec::new(),
    };
    let streams = match status.streams[..] {
        [] => Vec::new(),
        _ => client.ask(STREAMS, &()).await.map(|streams| streams.streams).unwrap_or_default(),
    };
    Ok(Reading { at: Instant::now(), status, degraded, nodes, streams })
}
