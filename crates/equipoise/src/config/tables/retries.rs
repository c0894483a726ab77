//! How often a failed request or connection is tried again.

use super::super::option::{Kind, Opt};

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
    "The share of the pool's requests of the last 10 s or so that may be tried again, beside 10 retries a second. Beyond it a request that fails is answered 503 (tcp: reset). 1.0: no bound.",
);
