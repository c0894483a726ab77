//! Decisions of the packet level in explanations.

use equipoise_api::wire::packet::FlowAnswer;
use equipoise_api::wire::why as wire;

use super::step;

/// Whether the packet level takes the flow; otherwise the kernel gets it.
pub fn is_forwarded(flow: &FlowAnswer) -> bool {
    flow.vip.is_some() && flow.verdict != "passed"
}

/// The answer about a flow that the packet level takes.
pub fn packet_answer(
    subject: String,
    before: Vec<wire::WhyStep>,
    flow: &FlowAnswer,
    is_port_known: bool,
) -> wire::WhyAnswer {
    let backend = flow.pool.as_ref().zip(flow.backend.as_ref()).filter(|_| is_port_known);
    let backend = backend.map(|(pool, backend)| format!("{pool}/{backend}"));
    let outcome = match (&backend, &flow.pool) {
        (Some(backend), _) => format!("backend {backend}"),
        (None, Some(pool)) if flow.verdict == "forwarded" => format!("a backend of pool {pool}"),
        (None, _) => flow.verdict.clone(),
    };
    let mut steps = before;
    steps.push(packet_step(flow, is_port_known));
    wire::WhyAnswer { subject, outcome, taken: true, backend, steps }
}

/// The packet level's decision.
pub fn packet_step(flow: &FlowAnswer, is_port_known: bool) -> wire::WhyStep {
    let Some(vip) = &flow.vip else { return step("packet", format!("no VIP: {}", flow.why)) };
    if !is_port_known && flow.verdict == "forwarded" {
        let text = "forwards it; the backend depends on the client's port: --from IP:PORT";
        return step("packet", format!("VIP {vip} {text}"));
    }
    let to = match (&flow.backend, &flow.address) {
        (Some(backend), Some(address)) if backend != address => {
            format!(" to {backend} ({address})")
        }
        (Some(backend), _) => format!(" to {backend}"),
        _ => String::new(),
    };
    let by = flow.by.as_ref().map(|by| format!(" by {by}")).unwrap_or_default();
    step("packet", format!("VIP {vip}: {}{to}{by}: {}", flow.verdict, flow.why))
}
