//! The slice level: streams, workers, slices.

use hyper::Method;
use hyper::body::Bytes;

use super::{Client, ClientError, encoded, to_json};
use crate::wire::slice::{
    SliceMove, SliceMoves, SlicePin, SlicePlan, SliceResize, SliceWorker, StreamStatus, Streams,
};

impl Client {
    /// `GET /v1/slices`.
    ///
    /// # Errors
    /// [`ClientError`].
    pub async fn streams(&self) -> Result<Streams, ClientError> {
        self.ask(Method::GET, "/v1/slices", Bytes::new()).await
    }

    /// `GET /v1/slices/STREAM/plan`.
    ///
    /// # Errors
    /// [`ClientError`].
    pub async fn slice_plan(&self, stream: &str) -> Result<SlicePlan, ClientError> {
        let path = format!("/v1/slices/{}/plan", encoded(stream));
        self.ask(Method::GET, &path, Bytes::new()).await
    }

    /// `POST /v1/slices/STREAM/moves`.
    ///
    /// # Errors
    /// [`ClientError`].
    pub async fn move_slices(
        &self,
        stream: &str,
        wish: &SliceMove,
    ) -> Result<SliceMoves, ClientError> {
        let path = format!("/v1/slices/{}/moves", encoded(stream));
        self.ask(Method::POST, &path, to_json(wish)).await
    }

    /// `POST /v1/slices/STREAM/resize`.
    ///
    /// # Errors
    /// [`ClientError`].
    pub async fn resize_stream(
        &self,
        stream: &str,
        slices: u32,
    ) -> Result<StreamStatus, ClientError> {
        let path = format!("/v1/slices/{}/resize", encoded(stream));
        self.ask(Method::POST, &path, to_json(&SliceResize { slices })).await
    }

    /// `GET /v1/slices/STREAM`.
    ///
    /// # Errors
    /// [`ClientError`].
    pub async fn stream(&self, stream: &str) -> Result<StreamStatus, ClientError> {
        let path = format!("/v1/slices/{}", encoded(stream));
        self.ask(Method::GET, &path, Bytes::new()).await
    }

    /// `POST /v1/slices/STREAM/workers/WORKER/drain` or `undrain`; `action` is this last part.
    ///
    /// # Errors
    /// [`ClientError`].
    pub async fn change_worker(
        &self,
        stream: &str,
        worker: &str,
        action: &str,
    ) -> Result<SliceWorker, ClientError> {
        let path = format!("/v1/slices/{}/workers/{}/{action}", encoded(stream), encoded(worker));
        self.ask(Method::POST, &path, Bytes::new()).await
    }

    /// `PUT /v1/slices/STREAM/pins/SLICE`, or `DELETE` without a worker.
    ///
    /// # Errors
    /// [`ClientError`].
    pub async fn pin_slice(
        &self,
        stream: &str,
        slice: u32,
        worker: Option<&str>,
    ) -> Result<StreamStatus, ClientError> {
        let path = format!("/v1/slices/{}/pins/{slice}", encoded(stream));
        match worker {
            Some(worker) => {
                let pin = SlicePin { worker: worker.to_owned() };
                self.ask(Method::PUT, &path, to_json(&pin)).await
            }
            None => self.ask(Method::DELETE, &path, Bytes::new()).await,
        }
    }
}
