//! Requests about flows and pins, answered by the packet level.

mod capture;

use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;
use std::time::Instant;

use equipoise_api::wire::packet::{
    CaptureQuestion, FlowAnswer, FlowQuestion, PacketStatus, Pin, PinKey, Pins, SourceFlows,
    SourceQuestion,
};
use equipoise_api::{CaptureFile, OperateError, PacketOperator};
use equipoise_packet::abi::FlowKey;
use equipoise_packet::config::{MacAddress, VipConfig};
use equipoise_packet::control::{FlowId, PinError, RegisteredPin};
use equipoise_packet::engine::{Engine, Stopped};
use equipoise_packet::{BackendId, Ports, VipId};
use equipoise_planes::{PacketWish, id};
use equipoise_session::config::BackendConfig;
use equipoise_status::packet as status;
use tokio::sync::Semaphore;
use tokio::task::spawn_blocking;

use crate::run::control::Control;

type Running = (Arc<Engine>, PacketWish);

/// Sends a question to the engine's thread, which may be busy for a while.
async fn ask<R: Send + 'static>(
    engine: &Arc<Engine>,
    question: impl FnOnce(&Engine) -> Result<R, Stopped> + Send + 'static,
) -> Result<R, OperateError> {
    let engine = Arc::clone(engine);
    let answer = spawn_blocking(move || question(&engine)).await;
    answer.map_err(|_| OperateError::Stopping)?.map_err(|Stopped| OperateError::Stopping)
}

fn refused(text: String) -> OperateError {
    OperateError::Refused(text)
}

impl PacketOperator for Control {
    async fn explain_flow(&self, question: FlowQuestion) -> Result<FlowAnswer, OperateError> {
        let (engine, wish) = self.packet_level().await?;
        let source: SocketAddr = question.source.parse().map_err(|_| {
            refused(format!(
                "`{}` is not a client's address and port; accepted: IP:PORT, such as 198.51.100.7:40000",
                question.source
            ))
        })?;
        let to = vip_of(&question.vip)?;
        let Ports::One(port) = to.ports else {
            let text =
                "a flow has one port; accepted: IP:PORT/PROTOCOL, such as 192.0.2.10:443/tcp";
            return Err(refused(format!("`{}`: {text}", question.vip)));
        };
        if source.is_ipv4() != to.address.is_ipv4() {
            let text = "are of different IP families";
            return Err(refused(format!("`{source}` and `{}` {text}", question.vip)));
        }
        let mac = question.mac.as_deref().map(mac_of).transpose()?;
        let destination = SocketAddr::new(to.address, port);
        let explained =
            ask(&engine, move |e| e.explain(source, destination, to.protocol, mac)).await?;
        Ok(status::answer(&explained, &wish))
    }

    async fn flows_of_source(&self, question: SourceQuestion) -> Result<SourceFlows, OperateError> {
        let (engine, wish) = self.packet_level().await?;
        let source: SocketAddr = question.source.parse().map_err(|_| {
            refused(format!(
                "`{}` is not a source of full-nat; accepted: IP:PORT, such as 10.0.0.200:5003",
                question.source
            ))
        })?;
        // Each reads the places of all ports, on the thread that applies changes.
        static ONE: Semaphore = Semaphore::const_new(1);
        let _turn = ONE.acquire().await.expect("nothing closes it");
        let flows = ask(&engine, move |engine| engine.flows_of_source(source)).await?;
        Ok(status::source_flows(&flows, &wish))
    }

    async fn capture(&self, question: CaptureQuestion) -> Result<CaptureFile, OperateError> {
        let (engine, wish) = self.packet_level().await?;
        let request = capture::request(&question, &wish)?;
        capture::begin(&engine, request).await
    }

    async fn pins(&self) -> Result<Pins, OperateError> {
        let (engine, wish) = self.packet_level().await?;
        let mut pins = ask(&engine, Engine::pins).await?;
        pins.sort_by_key(|pin| (pin.vip, pin.flow));
        Ok(Pins { pins: pins.iter().map(|pin| shown(pin, &wish)).collect() })
    }

    async fn add_pin(&self, pin: Pin) -> Result<Pin, OperateError> {
        self.accepts_changes()?;
        self.set_pin(&pin, false).await
    }

    async fn move_pin(&self, pin: Pin) -> Result<Pin, OperateError> {
        self.accepts_changes()?;
        self.set_pin(&pin, true).await
    }

    async fn remove_pin(&self, key: PinKey) -> Result<Pins, OperateError> {
        self.accepts_changes()?;
        let (engine, wish) = self.packet_level().await?;
        let pins = ask(&engine, Engine::pins).await?;
        // The file may no longer have the VIP of the pin.
        let vip = vip_of(&key.vip)?;
        let listed = pins
            .iter()
            .find(|pin| pin.vip == vip && status::flow_text(&pin.flow, &pin.vip) == key.flow);
        let (id, flow) = match listed {
            Some(pin) => (pin.vip, pin.flow),
            None => {
                let vip = configured(&key.vip, &wish)?;
                (vip.vip, flow_of(&key.flow, vip)?)
            }
        };
        let gone = ask(&engine, move |engine| engine.unpin(id, flow)).await?;
        gone.map_err(|error| pin_refused(&error))?;
        self.pins().await
    }
}

impl Control {
    async fn packet_level(&self) -> Result<Running, OperateError> {
        self.packet().running().await.ok_or(OperateError::NoPacketLevel)
    }

    /// The status of the packet level; `None` without one. While an upgrade has no engine, the last
    /// status holds, since the program goes on forwarding.
    pub(crate) async fn packet_status(&self) -> Option<PacketStatus> {
        let Some((engine, wish)) = self.packet().running().await else {
            return self.upgrades.packet();
        };
        let seen = ask(&engine, Engine::status).await.ok()?;
        Some(status::status(&seen, &wish, Instant::now()))
    }

    /// Creates a pin, or moves an existing one (`there`).
    async fn set_pin(&self, pin: &Pin, there: bool) -> Result<Pin, OperateError> {
        let (engine, wish) = self.packet_level().await?;
        let vip = configured(&pin.vip, &wish)?;
        let flow = flow_of(&pin.flow, vip)?;
        let backend = backend_of(&pin.backend, vip, &wish)?;
        let id = vip.vip;
        let set = move |engine: &Engine| {
            if there { engine.move_pin(id, flow, backend) } else { engine.pin(id, flow, backend) }
        };
        ask(&engine, set).await?.map_err(|error| pin_refused(&error))?;
        let pins = ask(&engine, Engine::pins).await?;
        let made = pins.iter().find(|pin| pin.vip == id && pin.flow == flow);
        made.map(|pin| shown(pin, &wish)).ok_or(OperateError::Stopping)
    }
}

fn pin_refused(error: &PinError) -> OperateError {
    match error {
        PinError::Vip(_) | PinError::Backend { .. } | PinError::Unknown(_) => {
            OperateError::NotFound(error.to_string())
        }
        _ => refused(error.to_string()),
    }
}

fn vip_of(text: &str) -> Result<VipId, OperateError> {
    text.parse().map_err(|error| refused(format!("`{text}`: {error}")))
}

fn configured<'w>(text: &str, wish: &'w PacketWish) -> Result<&'w VipConfig, OperateError> {
    let vip = vip_of(text)?;
    wish.config.vips.iter().find(|config| config.vip == vip).ok_or_else(|| {
        let known: Vec<_> = wish.config.vips.iter().map(|vip| format!("`{}`", vip.vip)).collect();
        OperateError::NotFound(format!(
            "there is no VIP `{vip}`; the VIPs are {}",
            known.join(", ")
        ))
    })
}

fn backend_of(text: &str, vip: &VipConfig, wish: &PacketWish) -> Result<BackendId, OperateError> {
    let pool = wish.pools.iter().find(|pool| pool.name == vip.pool);
    let backends = pool.map(|pool| &pool.backends[..]).unwrap_or_default();
    let called = |backend: &&BackendConfig, text: &str| {
        *backend.name == *text
            || backend.place.text(backend.address) == text
            || id(vip, backend).to_string() == text
    };
    let text = text.strip_prefix(&format!("{}/", vip.pool)).unwrap_or(text);
    let found = backends.iter().find(|backend| called(backend, text));
    found.map(|backend| id(vip, backend)).ok_or_else(|| {
        let known: Vec<_> = backends.iter().map(|backend| format!("`{}`", backend.name)).collect();
        OperateError::NotFound(format!(
            "pool `{}` has no backend `{text}`; its backends are {}",
            vip.pool,
            known.join(", ")
        ))
    })
}

/// Parses a flow in the form that the VIP's flow key has.
fn flow_of(text: &str, vip: &VipConfig) -> Result<FlowId, OperateError> {
    let wrong = |accepted: &str| {
        let key = equipoise_config::key_word(vip.key);
        refused(format!(
            "`{text}` is not a flow of {}, which identifies flows by {key}; accepted: {accepted}",
            vip.vip
        ))
    };
    match (vip.key, vip.vip.ports) {
        (FlowKey::SourceAddress, _) => {
            let address = text.parse::<IpAddr>();
            address.map(FlowId::SourceAddress).map_err(|_| wrong("IP, such as 198.51.100.7"))
        }
        (FlowKey::SourceMac, _) => mac_of(text).map(FlowId::SourceMac),
        (FlowKey::SourcePrefix(bits), _) => {
            let address = match text.split_once('/') {
                Some((address, length)) if length.parse() == Ok(bits) => address,
                None => text,
                Some(_) => "",
            };
            let accepted = format!("IP or IP/{bits}");
            let address = address.parse().map_err(|_| wrong(&accepted))?;
            Ok(FlowId::prefix(address, bits))
        }
        (FlowKey::FiveTuple, Ports::One(port)) => {
            let client = text.parse().map_err(|_| wrong("IP:PORT, such as 198.51.100.7:40000"))?;
            Ok(FlowId::FiveTuple(client, SocketAddr::new(vip.vip.address, port)))
        }
        (FlowKey::FiveTuple, _) => {
            let accepted = "IP:PORT/PORT, the client's address and port and the VIP's port, such as \
                            198.51.100.7:40000/8080";
            let (client, port) = text.rsplit_once('/').ok_or_else(|| wrong(accepted))?;
            let client = client.parse().map_err(|_| wrong(accepted))?;
            let port = port.parse().map_err(|_| wrong(accepted))?;
            Ok(FlowId::FiveTuple(client, SocketAddr::new(vip.vip.address, port)))
        }
    }
}

fn mac_of(text: &str) -> Result<[u8; 6], OperateError> {
    let mac = text.parse::<MacAddress>();
    mac.map(|mac| mac.0).map_err(|wrong| refused(format!("`{text}`: {wrong}")))
}

fn shown(pin: &RegisteredPin, wish: &PacketWish) -> Pin {
    Pin {
        vip: pin.vip.to_string(),
        flow: status::flow_text(&pin.flow, &pin.vip),
        backend: status::backend_name(&pin.backend, &pin.vip, wish),
        in_force: pin.in_force,
    }
}

#[cfg(test)]
mod tests {
    use equipoise_packet::OnDown;
    use equipoise_packet::abi::Forward;

    use super::*;

    fn vip(text: &str, key: FlowKey) -> VipConfig {
        VipConfig {
            vip: text.parse().unwrap(),
            accepted_macs: Vec::new(),
            interfaces: vec!["eth0".into()],
            reply_interfaces: Vec::new(),
            forward: Forward::Tunnel,
            pool: "p".into(),
            scheduler: equipoise_packet::FlowScheduler::Maglev,
            key,
            access: equipoise_packet::Access::default(),
            timeouts: equipoise_packet::OwnTimeouts::default(),
            quic: Vec::new(),
            sources: equipoise_packet::Sources::default(),
            when_down: OnDown::Move,
            check_tunnel: true,
            second_chance: false,
        }
    }

    #[test]
    fn a_parsed_flow_is_displayed_as_the_same_text() {
        for (to, key, text) in [
            ("192.0.2.1:80/tcp", FlowKey::FiveTuple, "198.51.100.7:40000"),
            ("192.0.2.1:*/tcp", FlowKey::FiveTuple, "198.51.100.7:40000/8080"),
            ("[2001:db8::1]:80/tcp", FlowKey::FiveTuple, "[2001:db8::7]:40000"),
            ("192.0.2.1:80/tcp", FlowKey::SourceAddress, "198.51.100.7"),
            ("192.0.2.1:80/tcp", FlowKey::SourcePrefix(24), "198.51.100.0/24"),
            ("192.0.2.1:80/tcp", FlowKey::SourceMac, "02:00:00:00:00:0a"),
        ] {
            let vip = vip(to, key);
            let flow = flow_of(text, &vip).unwrap();
            let backend = BackendId { address: "10.0.0.1".parse().unwrap(), port: None };
            let pin = RegisteredPin { vip: vip.vip, flow, backend, in_force: true };
            assert_eq!(shown(&pin, &PacketWish::default()).flow, text);
        }
    }

    #[test]
    fn a_flow_of_another_form_is_refused_with_the_accepted_form() {
        let error = flow_of("198.51.100.7", &vip("192.0.2.1:80/tcp", FlowKey::FiveTuple));
        assert_eq!(
            error.unwrap_err().to_string(),
            "`198.51.100.7` is not a flow of 192.0.2.1:80/tcp, which identifies flows by five-tuple; accepted: IP:PORT, such \
             as 198.51.100.7:40000"
        );
        for (text, key) in [
            ("198.51.100.7:40000/80", FlowKey::FiveTuple),
            ("198.51.100.7:40000", FlowKey::SourceAddress),
            ("198.51.100.0/16", FlowKey::SourcePrefix(24)),
            ("02:00:00:00:00", FlowKey::SourceMac),
            ("2:0:0:0:0:a", FlowKey::SourceMac),
        ] {
            assert!(flow_of(text, &vip("192.0.2.1:80/tcp", key)).is_err(), "{text}");
        }
    }
}
