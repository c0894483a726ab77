//! Checks over HTTP/2: HTTP requests, and gRPC's health service.
//!
//! # Source
//! The gRPC project's "GRPC Health Checking Protocol" (health-checking.md).

use std::pin::pin;

use bytes::{BufMut, Bytes, BytesMut};
use h2::RecvStream;
use h2::client::{Builder, SendRequest};
use http::{HeaderMap, Method, Request, header};
use tokio::io::{AsyncRead, AsyncWrite};

use crate::CheckError;
use crate::fields::{BODY_BYTES, BUFFER_BYTES, CHECK_FIELD, USER_AGENT};

/// `ServingStatus.SERVING`.
const SERVING: u64 = 1;

/// A response, with the begin of its body.
pub(super) struct Answer {
    pub(super) status: u16,
    pub(super) body: Vec<u8>,
    headers: HeaderMap,
    trailers: HeaderMap,
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

/// Asks the health service whether this service serves; "" asks for the whole server. `origin` has
/// scheme and host.
pub(super) async fn ask_health(
    stream: impl AsyncRead + AsyncWrite + Unpin,
    origin: &str,
    service: &str,
) -> Result<(), CheckError> {
    let request = Request::builder()
        .method(Method::POST)
        .uri(format!("{origin}/grpc.health.v1.Health/Check"))
        .header(header::CONTENT_TYPE, "application/grpc")
        .header(header::TE, "trailers")
        .header(header::USER_AGENT, USER_AGENT)
        .header(CHECK_FIELD, "1")
        .body(())
        .map_err(|error| CheckError::Unaskable(error.to_string()))?;
    let answer = exchange(stream, request, question(service)).await?;
    if answer.status != 200 {
        return Err(CheckError::Status { got: answer.status, wanted: [(200, 200)].into() });
    }
    // A response without a message has its status in the head.
    let field = |name| {
        let value = answer.trailers.get(name).or_else(|| answer.headers.get(name));
        value.and_then(|value| value.to_str().ok()).unwrap_or_default()
    };
    match field("grpc-status") {
        "0" => {}
        "" => return Err(CheckError::NotHttp("there is no grpc-status".into())),
        code => {
            let (code, message) = (code.to_owned(), field("grpc-message").to_owned());
            return Err(CheckError::Grpc { code, message });
        }
    }
    match serving_status(&answer.body) {
        Some(SERVING) => Ok(()),
        Some(status) => Err(CheckError::NotServing(status)),
        None => Err(CheckError::NotHttp("the message is not a HealthCheckResponse".into())),
    }
}

/// A `HealthCheckRequest` as a gRPC message: the service is field 1, at most 127 bytes long.
fn question(service: &str) -> Bytes {
    let mut message = BytesMut::new();
    if !service.is_empty() {
        message.put_u8(1 << 3 | 2);
        message.put_u8(service.len() as u8);
        message.put_slice(service.as_bytes());
    }
    let mut framed = BytesMut::new();
    framed.put_u8(0);
    framed.put_u32(message.len() as u32);
    framed.put_slice(&message);
    framed.freeze()
}

/// The status of a `HealthCheckResponse` as a gRPC message: field 1; 0 if it is left out.
fn serving_status(framed: &[u8]) -> Option<u64> {
    let (head, message) = framed.split_at_checked(5)?;
    let (&compressed, length) = head.split_first()?;
    let length = u32::from_be_bytes(length.try_into().ok()?) as usize;
    let mut rest = (compressed == 0).then(|| message.get(..length))??;
    let mut status = 0;
    while !rest.is_empty() {
        let key = varint(&mut rest)?;
        match key & 7 {
            0 => {
                let value = varint(&mut rest)?;
                status = if key >> 3 == 1 { value } else { status };
            }
            2 => {
                let length = usize::try_from(varint(&mut rest)?).ok()?;
                rest = rest.get(length..)?;
            }
            _ => return None,
        }
    }
    Some(status)
}

fn varint(bytes: &mut &[u8]) -> Option<u64> {
    let mut value = 0;
    for shift in (0..63).step_by(7) {
        let (byte, rest) = bytes.split_first()?;
        *bytes = rest;
        value |= u64::from(byte & 0x7f) << shift;
        if byte & 0x80 == 0 {
            return Some(value);
        }
    }
    None
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_question_is_the_message_with_its_length() {
        assert_eq!(question("").as_ref(), [0, 0, 0, 0, 0]);
        assert_eq!(question("ab").as_ref(), [0, 0, 0, 0, 4, 10, 2, b'a', b'b']);
    }

    #[test]
    fn a_status_is_read_whatever_fields_are_beside_it() {
        let rows: [(&[u8], Option<u64>); 8] = [
            (&[0, 0, 0, 0, 2, 8, 1], Some(1)),
            (&[0, 0, 0, 0, 0], Some(0)),
            (&[0, 0, 0, 0, 7, 18, 1, b'x', 24, 5, 8, 2], Some(2)),
            (&[0, 0, 0, 0, 3, 8, 0x81, 1], Some(129)),
            (&[1, 0, 0, 0, 2, 8, 1], None),
            (&[0, 0, 0, 0, 3, 8, 1], None),
            (&[0, 0, 0, 0, 1, 8], None),
            (&[0, 0], None),
        ];
        for (bytes, wanted) in rows {
            assert_eq!(serving_status(bytes), wanted, "{bytes:?}");
        }
    }
}
