//! Requests of checks over HTTP/2.

use std::pin::pin;

use bytes::Bytes;
use h2::RecvStream;
use h2::client::{Builder, SendRequest};
use http::{HeaderMap, Request};
use tokio::io::{AsyncRead, AsyncWrite};

use crate::CheckError;
use crate::fields::{BODY_BYTES, BUFFER_BYTES};

/// A response, with the begin of its body.
pub(super) struct Answer {
    pub(super) status: u16,
    pub(super) body: Vec<u8>,
    pub(super) headers: HeaderMap,
    pub(super) trailers: HeaderMap,
}

/// Sends a request over a new connection, which ends with the response.
pub(super) async fn exchange(
    stream: impl AsyncRead + AsyncWrite + Unpin,
    request: Request<()>,
    body: Bytes,
) -> Result<Answer, CheckError> {
    let handshake = Builder::new()
        .enable_push(false)
        .max_header_list_size(BUFFER_BYTES as u32)
        .initial_window_size(BODY_BYTES as u32)
        .handshake(stream)
        .await;
    let (sender, connection) = handshake.map_err(failed)?;
    // As for HTTP/1.1, the connection is polled here, so that the end of the check closes it.
    let (mut answer, mut connection) = (pin!(ask(sender, request, body)), pin!(connection));
    let mut connected = true;
    loop {
        tokio::select! {
            biased;
            result = &mut answer => return result.map_err(failed),
            _ = &mut connection, if connected => connected = false,
        }
    }
}

async fn ask(
    sender: SendRequest<Bytes>,
    request: Request<()>,
    body: Bytes,
) -> Result<Answer, h2::Error> {
    let mut sender = sender.ready().await?;
    let (response, mut stream) = sender.send_request(request, body.is_empty())?;
    if !body.is_empty() {
        stream.send_data(body, true)?;
    }
    let (head, mut incoming) = response.await?.into_parts();
    let (body, trailers) = read(&mut incoming).await?;
    Ok(Answer { status: head.status.as_u16(), body, headers: head.headers, trailers })
}

/// Reads the body up to the limit, and the trailers of a shorter one.
async fn read(incoming: &mut RecvStream) -> Result<(Vec<u8>, HeaderMap), h2::Error> {
    let mut body = Vec::new();
    while body.len() < BODY_BYTES {
        let Some(part) = incoming.data().await else {
            let trailers = incoming.trailers().await?;
            return Ok((body, trailers.unwrap_or_default()));
        };
        let part = part?;
        let _ = incoming.flow_control().release_capacity(part.len());
        body.extend_from_slice(&part[..part.len().min(BODY_BYTES - body.len())]);
    }
    Ok((body, HeaderMap::new()))
}

fn failed(error: h2::Error) -> CheckError {
    match error.is_library() {
        true => CheckError::NotHttp2(error.to_string()),
        // The backend reset the stream, or ended the connection.
        false => CheckError::Closed,
    }
}
