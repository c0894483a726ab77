//! The pools and VIPs of the recorder.

use equipoise_api::wire::backends::AddBackend;
use equipoise_api::wire::packet::{
    CaptureQuestion, FlowAnswer, FlowQuestion, Pin, PinKey, Pins, SourceFlows, SourceQuestion,
};
use equipoise_api::wire::{Admin, BackendState, BackendStatus, ByClass, Changed, Health, Rates};
use equipoise_api::{CaptureFile, OperateError, PacketOperator, PoolOperator};

use super::recorder::Recorder;

fn changed(pool: &str, backend: &str, admin: Admin, weight: u16) -> Changed {
    let backend = BackendStatus {
        name: backend.into(),
        address: "127.0.0.1:1".into(),
        resolved: None,
        weight,
        admin,
        health: Health::Unknown,
        state: BackendState::Up,
        health_detail: None,
        in_flight: 0,
        added: None,
        concurrency: None,
        limit: None,
        group_limit: None,
        region: None,
        knee: None,
        service_seconds: None,
        queue_seconds: None,
        flows: 0,
        requests_total: 0,
        responses: ByClass::default(),
        failures: Default::default(),
        sessions_open: 0,
        sessions_opened_total: 0,
        sessions_reused_total: 0,
        multiplex_faults_total: 0,
        multiplex_shared_total: 0,
        multiplex_alone_total: 0,
        multiplex_handed_over_total: 0,
        multiplex_repeated_total: 0,
        multiplexing_lost: false,
        tls: None,
        bytes_out_total: 0,
        bytes_in_total: 0,
        rates: Rates::default(),
    };
    Changed { pool: pool.into(), backend }
}

impl PoolOperator for Recorder {
    async fn set_admin(
        &self,
        pool: &str,
        backend: &str,
        admin: Admin,
    ) -> Result<Changed, OperateError> {
        if pool == "missing" {
            return Err(OperateError::NotFound("there is no pool `missing`".into()));
        }
        self.note(format!("{pool} {backend} {admin}"));
        Ok(changed(pool, backend, admin, 1))
    }

    async fn set_weight(
        &self,
        pool: &str,
        backend: &str,
        weight: u16,
    ) -> Result<Changed, OperateError> {
        if weight > 1000 {
            return Err(OperateError::WeightOutOfRange(weight));
        }
        self.note(format!("{pool} {backend} weight {weight}"));
        *self.weight.lock().unwrap() = weight;
        Ok(changed(pool, backend, Admin::Up, weight))
    }

    async fn set_concurrency(
        &self,
        pool: &str,
        backend: &str,
        limit: u32,
    ) -> Result<Changed, OperateError> {
        self.note(format!("{pool} {backend} concurrency {limit}"));
        self.backend(pool, backend).await
    }

    async fn put_backend(
        &self,
        pool: &str,
        backend: &str,
        wish: AddBackend,
    ) -> Result<Changed, OperateError> {
        self.note(format!("{pool} {backend} at {:?} weight {}", wish.address, wish.weight));
        *self.weight.lock().unwrap() = wish.weight;
        self.backend(pool, backend).await
    }

    async fn remove_backend(
        &self,
        pool: &str,
        backend: &str,
        now: bool,
    ) -> Result<Changed, OperateError> {
        self.note(format!("{pool} {backend} removed, now: {now}"));
        *self.weight.lock().unwrap() = 0;
        self.backend(pool, backend).await
    }

    async fn backend(&self, pool: &str, backend: &str) -> Result<Changed, OperateError> {
        if pool == "missing" {
            return Err(OperateError::NotFound("there is no pool `missing`".into()));
        }
        let weight = *self.weight.lock().unwrap();
        Ok(changed(pool, backend, Admin::Up, weight))
    }
}

impl PacketOperator for Recorder {
    async fn explain_flow(&self, _: FlowQuestion) -> Result<FlowAnswer, OperateError> {
        Ok(FlowAnswer {
            verdict: "passed".into(),
            vip: None,
            pool: None,
            backend: None,
            address: None,
            by: None,
            source: None,
            reason: None,
            digest: None,
            pinned_to: None,
            why: "no VIP has this address".into(),
        })
    }

    async fn flows_of_source(&self, _: SourceQuestion) -> Result<SourceFlows, OperateError> {
        Ok(SourceFlows::default())
    }

    async fn capture(&self, _: CaptureQuestion) -> Result<CaptureFile, OperateError> {
        let (_, parts) = tokio::sync::mpsc::channel(1);
        Ok(CaptureFile { parts, capture: Box::new(()) })
    }

    async fn pins(&self) -> Result<Pins, OperateError> {
        Ok(Pins { pins: self.pins.lock().unwrap().clone() })
    }

    async fn add_pin(&self, pin: Pin) -> Result<Pin, OperateError> {
        self.pins.lock().unwrap().push(pin.clone());
        Ok(pin)
    }

    async fn move_pin(&self, pin: Pin) -> Result<Pin, OperateError> {
        let mut pins = self.pins.lock().unwrap();
        let there = pins.iter_mut().find(|there| there.flow == pin.flow);
        let there = there.ok_or_else(|| OperateError::NotFound("no such pin".into()))?;
        there.backend.clone_from(&pin.backend);
        Ok(pin)
    }

    async fn remove_pin(&self, key: PinKey) -> Result<Pins, OperateError> {
        let mut pins = self.pins.lock().unwrap();
        pins.retain(|pin| pin.flow != key.flow);
        Ok(Pins { pins: pins.clone() })
    }
}
