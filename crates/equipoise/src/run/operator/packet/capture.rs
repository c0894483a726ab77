//! Captures of packets, as the parts of a pcapng file.

use std::net::IpAddr;
use std::sync::Arc;
use std::time::Duration;

use equipoise_api::wire::packet::CaptureQuestion;
use equipoise_api::{CaptureFile, OperateError};
use equipoise_packet::capture::{
    self as pcapng, CaptureError, CaptureEvent, CaptureRequest, CaptureSink,
};
use equipoise_packet::engine::Engine;
use equipoise_planes::PacketWish;
use tokio::sync::mpsc;

use super::{ask, backend_of, configured, refused};

/// Packets that wait for a slow client; later ones are lost, and counted.
const PARTS_WAITING: usize = 1024;

pub(super) fn request(
    question: &CaptureQuestion,
    wish: &PacketWish,
) -> Result<CaptureRequest, OperateError> {
    let vip = configured(&question.vip, wish)?;
    let backend = question.backend.as_deref().map(|name| backend_of(name, vip, wish));
    let time_max = Duration::try_from_secs_f64(question.seconds);
    let wrong = || {
        let most = CaptureRequest::TIME_MAX.as_secs();
        refused(format!("seconds is {}; accepted: above 0, at most {most}", question.seconds))
    };
    Ok(CaptureRequest {
        vip: vip.vip,
        backend: backend.transpose()?,
        client: question.client.as_deref().map(prefix).transpose()?,
        packets_max: question.count,
        every: question.every,
        snap_bytes: question.snap_bytes,
        time_max: time_max.map_err(|_| wrong())?,
    })
}

/// An address, or the first bits of one: `198.51.100.7`, `198.51.100.0/24`.
fn prefix(text: &str) -> Result<(IpAddr, u8), OperateError> {
    let wrong = || {
        let accepted = "accepted: IP or IP/BITS, such as 198.51.100.0/24";
        refused(format!("`{text}` is not a prefix of clients; {accepted}"))
    };
    let (address, bits) = text.split_once('/').map_or((text, None), |(a, b)| (a, Some(b)));
    let address: IpAddr = address.parse().map_err(|_| wrong())?;
    let most = if address.is_ipv4() { 32 } else { 128 };
    let bits = bits.map_or(Ok(most), |bits| bits.parse().map_err(|_| wrong()))?;
    if bits > most { Err(wrong()) } else { Ok((address, bits)) }
}

pub(super) async fn begin(
    engine: &Arc<Engine>,
    request: CaptureRequest,
) -> Result<CaptureFile, OperateError> {
    let (send, parts) = mpsc::channel(PARTS_WAITING);
    let start = pcapng::start(&request.vip.to_string(), request.snap_bytes);
    // The channel is empty.
    let _ = send.try_send(start);
    let sink: CaptureSink = Box::new(move |event| match event {
        // The last place is for the end of the file.
        CaptureEvent::Packet(_) if send.capacity() <= 1 => false,
        CaptureEvent::Packet(packet) => send.try_send(pcapng::packet(&packet)).is_ok(),
        CaptureEvent::End { packets, lost } => send.try_send(pcapng::end(packets, lost)).is_ok(),
    });
    let begun = ask(engine, move |engine| engine.capture(request, sink)).await?;
    let capture = begun.map_err(|error| match error {
        CaptureError::Vip(_) | CaptureError::Backend { .. } => {
            OperateError::NotFound(error.to_string())
        }
        CaptureError::Busy => OperateError::Conflict(error.to_string()),
        _ => refused(error.to_string()),
    })?;
    Ok(CaptureFile { parts, capture: Box::new(capture) })
}
