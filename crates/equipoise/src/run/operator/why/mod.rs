//! Explanations: asks each level.

mod question;

use std::net::SocketAddr;

use equipoise_api::wire::packet::{FlowAnswer, FlowQuestion};
use equipoise_api::wire::why::{FlowProtocol, WhyAnswer, WhyItem, WhyName, WhyQuestion, WhyStep};
use equipoise_api::{OperateError, PacketOperator, SliceOperator, WhyOperator};
use equipoise_session::config::Protocol;
use equipoise_slice::{Numbering, number_key, text_key};
use equipoise_status::why;
use tokio::task::spawn_blocking;

use self::question::Asked;
use super::refused;
use crate::run::control::Control;

impl WhyOperator for Control {
    async fn explain(&self, question: WhyQuestion) -> Result<WhyAnswer, OperateError> {
        let WhyQuestion { request, flow, name, item } = question;
        match (request, flow, name, item) {
            (Some(request), None, None, None) => {
                self.explain_traffic(question::request(&request)?).await
            }
            (None, Some(flow), None, None) => self.explain_traffic(question::flow(&flow)?).await,
            (None, None, Some(name), None) => self.explain_name(&name).await,
            (None, None, None, Some(item)) => self.explain_item(&item).await,
            _ => Err(OperateError::Refused(
                "accepted: exactly one of `request`, `flow`, `name` and `item`".into(),
            )),
        }
    }
}

impl Control {
    async fn explain_traffic(&self, asked: Asked) -> Result<WhyAnswer, OperateError> {
        let Asked { subject, host, question } = asked;
        let mut before = Vec::new();
        if let Some(host) = host {
            before.extend(self.host_step(&host, question.client).await);
        }
        if let Some(flow) = self.packet_level_answer(&question).await? {
            let is_port_known = question.client_port.is_some();
            if why::is_forwarded(&flow) {
                return Ok(why::packet_answer(subject, before, &flow, is_port_known));
            }
            before.push(why::packet_step(&flow, is_port_known));
        }
        let explainer = self.data.explainer().ok_or(OperateError::Stopping)?;
        let seen = self.levels.registry.view().await.map_err(refused)?;
        // Trial picks over a large pool take milliseconds.
        let explained = spawn_blocking(move || {
            let steps = explainer.explain(&seen.snapshot, &question);
            why::answer(subject, before, &steps, &seen.status)
        });
        explained.await.map_err(|_| OperateError::Stopping)
    }

    /// The answer of the DNS level for the host of a URL; `None`: there is no DNS level.
    async fn host_step(&self, host: &str, client: std::net::IpAddr) -> Option<WhyStep> {
        let published = self.levels.dns.running().await?.engine.published();
        let of_type = |rtype: &str| published.preview(host, rtype, client).ok();
        let v4 = of_type("A")?;
        let v6 = || of_type("AAAA").filter(|found| !found.addresses.is_empty());
        let found = if v4.addresses.is_empty() { v6().unwrap_or(v4) } else { v4 };
        Some(why::host_step(&found))
    }

    /// The packet level's answer; `None`: there is no packet level, or the destination is unknown.
    async fn packet_level_answer(
        &self,
        question: &equipoise_session::why::Question,
    ) -> Result<Option<FlowAnswer>, OperateError> {
        let Some(address) = question.address else { return Ok(None) };
        if address.is_ipv4() != question.client.is_ipv4() {
            return Ok(None);
        }
        let protocol = match question.protocol {
            Protocol::Udp => FlowProtocol::Udp,
            Protocol::Tcp | Protocol::Http => FlowProtocol::Tcp,
        };
        // The VIP of a flow does not depend on the client's port.
        let from = SocketAddr::new(question.client, question.client_port.unwrap_or(1));
        let to = SocketAddr::new(address, question.port);
        let vip = format!("{to}/{protocol}");
        let question = FlowQuestion { source: from.to_string(), vip, mac: None };
        match self.explain_flow(question).await {
            Ok(answer) => Ok(Some(answer)),
            Err(OperateError::NoPacketLevel) => Ok(None),
            Err(error) => Err(error),
        }
    }

    async fn explain_name(&self, asked: &WhyName) -> Result<WhyAnswer, OperateError> {
        let running = self.levels.dns.running().await.ok_or_else(|| {
            let text =
                "no [[dns]] table is configured, so no names are answered; add one and reload";
            OperateError::Refused(text.into())
        })?;
        let (client, _) = question::client(asked.from.as_deref())?;
        let rtype = asked.record_type.as_deref().unwrap_or("A");
        let preview = running.engine.published().preview(&asked.name, rtype, client);
        let preview = preview.map_err(|error| OperateError::Refused(error.to_string()))?;
        let assumed = if asked.from.is_some() { "" } else { " (assumed)" };
        let rtype = rtype.to_ascii_uppercase();
        let subject = format!("{} {rtype} from {client}{assumed}", preview.name);
        Ok(why::name_answer(subject, &preview))
    }

    async fn explain_item(&self, asked: &WhyItem) -> Result<WhyAnswer, OperateError> {
        // It is refused here if another controller leads the stream.
        let plan = self.slice_plan(&asked.stream).await?;
        let streams = self.streams().await?.streams;
        let gone = || OperateError::NotFound(format!("stream `{}` was removed", asked.stream));
        let stream = streams.iter().find(|it| it.name == asked.stream).ok_or_else(gone)?;
        let numbering = Numbering::new(stream.slices_total);
        let (slice, by) = match (asked.slice, &asked.key, asked.number) {
            (Some(slice), None, None) => (slice, None),
            (None, Some(key), None) => {
                (numbering.slice_of(text_key(key.as_bytes())).0, Some(format!("key \"{key}\"")))
            }
            (None, None, Some(number)) => {
                let key = number_key(number.cast_unsigned());
                (numbering.slice_of(key).0, Some(format!("key {number}")))
            }
            _ => {
                let text = "accepted: exactly one of `slice`, `key` and `number`";
                return Err(OperateError::Refused(text.into()));
            }
        };
        why::item_answer(stream, &plan, slice, by.as_deref()).ok_or_else(|| {
            OperateError::NotFound(format!(
                "stream `{}` has no slice {slice}; it has {}, from 0",
                stream.name, stream.slices_total
            ))
        })
    }
}
