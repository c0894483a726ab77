//! A small status for tests, with what each test changes.

use equipoise_api::wire::Status;
use serde_json::{Value, json};

/// A backend as the API describes it, with these fields changed.
pub(super) fn backend(name: &str, changes: &Value) -> Value {
    let mut backend = json!({
        "name": name, "address": "10.0.0.1:80", "weight": 1, "admin": "up", "health": "healthy",
        "state": "up", "in_flight": 3, "limit": 40, "region": "rising", "requests_total": 1000,
        "responses": { "1xx": 0, "2xx": 1000, "3xx": 0, "4xx": 0, "5xx": 0 }, "failures": {},
        "service_seconds": 0.012, "sessions_open": 1, "sessions_opened_total": 1,
        "sessions_reused_total": 1, "bytes_out_total": 0, "bytes_in_total": 0,
        "rates": { "requests": 12.5, "errors": 0.0, "bytes_in": 0.0, "bytes_out": 0.0 },
    });
    let object = backend.as_object_mut().unwrap();
    for (name, value) in changes.as_object().unwrap() {
        object.insert(name.clone(), value.clone());
    }
    backend
}

/// A status with one front door and one pool, with these fields changed.
pub(super) fn status(backends: &[Value], changes: &Value) -> Status {
    let eligible = backends.iter().filter(|backend| backend["state"] == "up").count();
    let mut status = json!({
        "instance": "edge-1", "version": "1.0.0", "pid": 7, "phase": "running",
        "uptime_seconds": 90.0, "threads": 2, "config_file": "/etc/equipoise.toml",
        "last_reload": null, "rates_over_seconds": 5.0,
        "front_doors": [{
            "name": "door", "listen": "0.0.0.0:8080", "protocol": "http", "pool": "web",
            "connections_open": 2, "connections_total": 9, "requests_in_flight": 1,
            "requests_total": 100,
            "responses": { "1xx": 0, "2xx": 100, "3xx": 0, "4xx": 0, "5xx": 0 },
            "bytes_in_total": 0, "bytes_out_total": 0, "retries_total": 0,
            "accept_pauses_total": 0, "drops": { "queue_full": 2 },
            "rates": { "requests": 25.0, "errors": 0.0, "bytes_in": 0.0, "bytes_out": 0.0 },
        }],
        "pools": [{
            "name": "web", "scheduler": "round-robin", "upstream": "exclusive",
            "backends_eligible": eligible, "backends": backends,
        }],
    });
    let object = status.as_object_mut().unwrap();
    for (name, value) in changes.as_object().unwrap() {
        object.insert(name.clone(), value.clone());
    }
    serde_json::from_value(status).expect("it is a status")
}
