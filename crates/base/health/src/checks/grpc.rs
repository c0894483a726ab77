//! gRPC's health service.
//!
//! # Source
//! The gRPC project's "GRPC Health Checking Protocol" (health-checking.md).

use std::sync::Arc;

use bytes::{BufMut, Bytes, BytesMut};
use http::{Method, Request, header};
use tokio::io::{AsyncRead, AsyncWrite};

use super::{Check, Origin, http2};
use crate::CheckError;
use crate::fields::{CHECK_FIELD, USER_AGENT};

/// Passes if gRPC's health service (grpc.health.v1), asked over HTTP/2 by prior knowledge, says
/// that a service serves.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct GrpcCheck {
    /// The service's name, at most 127 bytes long; "" stands for the whole server.
    pub service: Arc<str>,
}

/// `ServingStatus.SERVING`.
const SERVING: u64 = 1;

impl Check for GrpcCheck {
    async fn ask(
        &self,
        stream: impl AsyncRead + AsyncWrite + Unpin,
        Origin { scheme, host }: Origin<'_>,
    ) -> Result<(), CheckError> {
        let request = Request::builder()
            .method(Method::POST)
            .uri(format!("{scheme}://{host}/grpc.health.v1.Health/Check"))
            .header(header::CONTENT_TYPE, "application/grpc")
            .header(header::TE, "trailers")
            .header(header::USER_AGENT, USER_AGENT)
            .header(CHECK_FIELD, "1")
            .body(())
            .map_err(|error| CheckError::Unaskable(error.to_string()))?;
        let answer = http2::exchange(stream, request, question(&self.service)).await?;
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
                let message = field("grpc-message");
                return Err(CheckError::Answer(format!("gRPC status {code}: {message}")));
            }
        }
        match serving_status(&answer.body) {
            Some(SERVING) => Ok(()),
            Some(status) => {
                let name = status_name(status);
                Err(CheckError::Answer(format!("the health service says {name}")))
            }
            None => Err(CheckError::NotHttp("the message is not a HealthCheckResponse".into())),
        }
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

/// The name of a `ServingStatus`.
fn status_name(status: u64) -> String {
    match status {
        0 => "UNKNOWN".into(),
        2 => "NOT_SERVING".into(),
        3 => "SERVICE_UNKNOWN".into(),
        other => other.to_string(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_health_request_is_the_message_prefixed_with_its_length() {
        assert_eq!(question("").as_ref(), [0, 0, 0, 0, 0]);
        assert_eq!(question("ab").as_ref(), [0, 0, 0, 0, 4, 10, 2, b'a', b'b']);
    }

    #[test]
    fn a_serving_status_is_read_and_a_malformed_message_is_rejected() {
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
