//! Options of retries and hedging.

use super::super::option::{Form, Kind, Opt, reads_as};
use super::super::text::HedgeDelay;

pub(super) const RETRIES: Opt = Opt::default(
    "retries",
    Kind::Count(0, 10),
    "1",
    "Tries on another backend after a failure that permits one: nothing of the response was sent, and the request is idempotent or never left.",
);

pub(super) const RETRY_BUDGET: Opt = Opt::default(
    "retry-budget",
    Kind::Share,
    "0.1",
    "The share of the pool's requests of the last 10 s or so that may be tried again or hedged, beside 10 a second. Beyond it a request that fails is answered 503 (tcp: reset). 1.0: no bound.",
);

pub(super) const HEDGE: Opt = Opt::optional(
    "hedge",
    Kind::Text(&HEDGE_DELAY),
    "a request is put to one backend",
    "After how long without a response an idempotent request is put to a second backend, too: a time, or \"p95\" for the time in which 95 % of the pool's responses have begun lately. The response that begins first is sent on.",
)
.http_only();

static HEDGE_DELAY: Form = Form {
    noun: "a delay of hedged requests",
    accepted: "a time of 1ms or more, such as \"50ms\", or p50 to p99.9, such as \"p95\"",
    fits: reads_as::<HedgeDelay>,
};
