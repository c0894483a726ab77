//! Concurrency limits of backends, and the queue of requests that exceed them.

use std::num::NonZeroU32;
use std::time::Duration;

use equipoise_session::config::Concurrency;

use super::{ms, secs};
use crate::key::{Count, count, duration, options};
use crate::option::{Choice, Choices, Numbered};

/// Largest concurrency limit.
pub(super) const LIMIT_MAX: u64 = 1_000_000;

/// Words of `concurrency`.
impl Choice for Concurrency {
    const CHOICES: &'static Choices<Concurrency> = &Choices(&[
        (
            "learnt",
            Concurrency::Learnt,
            "the number at which the backend serves most, learned from the traffic",
        ),
        ("none", Concurrency::None, "no limit; no request waits"),
    ]);
}

impl Numbered for Concurrency {
    fn numbered(limit: u64) -> Option<Concurrency> {
        u32::try_from(limit).ok().and_then(NonZeroU32::new).map(Concurrency::Fixed)
    }
}

options! {
    Queue: "[pool.queue]",
    "How requests (http) and connections (tcp) wait while every backend of the pool is at its `concurrency`. \
     Higher `priority` first, then (in node mode) lighter classes, then the earliest deadline, which is the \
     oldest if none has less time of its own; the newest first once the oldest has waited for half of `wait`.";

    WAIT: Duration = duration("wait", ms(10), secs(600)).default(
        secs(1),
        "Longest wait of a request, over all its attempts; after it, the answer is 503 (tcp: reset).",
    ),
    LENGTH: Count<usize> = count("length", 0, LIMIT_MAX).default(
        1000,
        "Largest number of waiting requests. Beyond it, the one that would be served last is answered with 503 at \
         once (tcp: reset).",
    ),
}
