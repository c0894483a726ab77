//! Explanations of where a request or connection would go, as types of the API.

mod backends;
mod items;
mod names;
mod packets;
mod words;

use equipoise_api::wire::why as wire;
use equipoise_session::registry::Status;
use equipoise_session::why::{DecisionStep, PoolStep};

pub use items::item_answer;
pub use names::{host_step, name_answer};
pub use packets::{is_forwarded, packet_answer, packet_step};

/// The answer about `subject`: the decisions of the session level, behind those of `before`.
pub fn answer(
    subject: String,
    before: Vec<wire::WhyStep>,
    steps: &[DecisionStep],
    status: &Status,
) -> wire::WhyAnswer {
    let mut answer = Answer { steps: before, ..Answer::default() };
    for step in steps {
        answer.add(step, status);
    }
    answer.leave_pool(status);
    let (outcome, backend) = answer.outcome();
    let taken = !steps.iter().any(|step| matches!(step, DecisionStep::NoFrontDoor { .. }));
    wire::WhyAnswer { subject, outcome, taken, backend, steps: answer.steps }
}

/// A decision of a level.
pub fn step(level: &str, text: impl Into<String>) -> wire::WhyStep {
    wire::WhyStep { level: level.into(), text: text.into(), backend: None }
}

/// An answer in the making.
struct Answer {
    steps: Vec<wire::WhyStep>,
    /// The part of requests that this node serves.
    here: f64,
    /// The pool that the steps are about, and the names of its backends that may be picked.
    pool: Option<(PoolStep, Vec<String>)>,
    /// How it ends, unless a backend serves it.
    end: Option<String>,
    /// The front door is in node mode.
    is_in_node_mode: bool,
    /// Peers that serve it, with their shares.
    peers: Vec<(String, f64)>,
}

impl Default for Answer {
    fn default() -> Answer {
        let (steps, peers, is_in_node_mode) = (Vec::new(), Vec::new(), false);
        Answer { steps, here: 1.0, pool: None, end: None, is_in_node_mode, peers }
    }
}

impl Answer {
    fn add(&mut self, step: &DecisionStep, status: &Status) {
        match step {
            DecisionStep::Pool(pool) => {
                self.leave_pool(status);
                self.steps.push(self::step("session", words::pool(pool, status)));
                self.pool = Some((pool.clone(), Vec::new()));
            }
            DecisionStep::Backend(backend) => {
                let here = self.here;
                let Some((pool, seen)) = &mut self.pool else { return };
                seen.push(backend.name.to_string());
                self.steps.extend(backends::picked(pool, backend, here, status));
            }
            DecisionStep::Queue(queue) => {
                self.leave_pool(status);
                if queue.waits {
                    self.end = Some(words::waits(queue));
                }
                self.steps.push(self::step("session", words::queue(queue)));
            }
            DecisionStep::NoBackend => {
                self.leave_pool(status);
                let text = match self.is_in_node_mode {
                    true => "no backend here: peers are asked, and then unhealthy backends",
                    false => "refused with 503: no backend may be picked",
                };
                self.end = Some(text.into());
            }
            DecisionStep::Dispatch(dispatch) => {
                self.is_in_node_mode = true;
                self.here = dispatch.here * (1.0 - dispatch.refuse);
                let share = |share: f64| share * (1.0 - dispatch.refuse);
                let named = dispatch.peers.iter().filter(|(_, share)| *share > 0.0);
                self.peers = named.map(|(name, of)| (format!("peer {name}"), share(*of))).collect();
                self.steps.push(self::step("dispatch", words::dispatch(dispatch)));
            }
            step => {
                let text = words::of_door(step);
                if is_end(step) {
                    self.end = Some(text.clone());
                }
                self.steps.push(self::step("session", text));
            }
        }
    }

    /// Adds the backends of the current pool that may not be picked.
    fn leave_pool(&mut self, status: &Status) {
        if let Some((pool, seen)) = self.pool.take() {
            self.steps.extend(backends::others(&pool, &seen, status));
        }
    }

    /// Where it goes in words, and its only backend.
    fn outcome(&mut self) -> (String, Option<String>) {
        let backends = self.steps.iter().filter_map(|step| step.backend.as_ref());
        let named = backends.map(|it| (format!("{}/{}", it.pool, it.name), it.share));
        let mut goes: Vec<_> = named.filter(|(_, share)| *share > 0.0).collect();
        goes.append(&mut self.peers);
        match &goes[..] {
            [] => (self.end.take().unwrap_or_else(|| "nowhere".into()), None),
            [(only, share)] if *share >= 1.0 => {
                let is_peer = only.starts_with("peer ");
                let text = if is_peer { only.clone() } else { format!("backend {only}") };
                (text, Some(only.clone()).filter(|_| !is_peer))
            }
            several => {
                let share =
                    |(name, share): &(String, f64)| format!("{name} {}", words::percent(*share));
                let shares: Vec<_> = several.iter().map(share).collect();
                (format!("one of {}", shares.join(", ")), None)
            }
        }
    }
}

/// Whether nothing follows this decision.
fn is_end(step: &DecisionStep) -> bool {
    matches!(
        step,
        DecisionStep::NoFrontDoor { .. }
            | DecisionStep::NoCertificate { .. }
            | DecisionStep::NoTls
            | DecisionStep::NeedsRequest
            | DecisionStep::Refused(_)
            | DecisionStep::Challenge
            | DecisionStep::Redirect(_)
            | DecisionStep::Answer(_)
    )
}
