//! Options of retries and hedging.

use super::super::option::{Form, Kind, Opt, reads_as};
use super::super::text::HedgeDelay;

pub(super) const RETRIES: Opt = Opt::default(
    "retries",
    Kind::Count(0, 10),
    "1",
    "Largest number of attempts on another backend after a failure. An attempt is made only if nothing of the response \
     was sent, and if the request is idempotent or was not sent.",
);

pub(super) const RETRY_ON: Opt = Opt::default(
    "retry-on",
    Kind::Texts(&super::route::RETRY_FAILURE),
    "[\"connect\", \"reset\"]",
    "The failures after which a request is tried again: \"connect\", no connection was made; \"reset\", the connection \
     ended before a response; statuses, such as \"502-504\", of idempotent requests with their whole body; \
     \"grpc-unavailable\" and other statuses of gRPC, of calls whose answer has trailers alone. Requests with \
     statuses to retry share no multiplexed session.",
)
.http_only();

pub(super) const RETRY_BUDGET: Opt = Opt::default(
    "retry-budget",
    Kind::Share,
    "0.1",
    "Share of the pool's requests of about the last 10 s that may be retried or hedged, in addition to 10 per second. \
     Beyond it, a failed request is answered with 503 (tcp: reset). 1.0: no limit.",
);

pub(super) const HEDGE: Opt = Opt::optional(
    "hedge",
    Kind::Text(&HEDGE_DELAY),
    "a request is sent to one backend",
    "Time without a response after which an idempotent request is sent to a second backend, too: a time, or \"p95\" \
     for the time in which 95 % of the pool's recent responses have begun. The response that begins first is sent on.",
)
.http_only();

static HEDGE_DELAY: Form = Form {
    noun: "a delay of hedged requests",
    accepted: "a time of 1ms or more, such as \"50ms\", or p50 to p99.9, such as \"p95\"",
    fits: reads_as::<HedgeDelay>,
};
