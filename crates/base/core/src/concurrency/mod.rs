//! Learns how many requests a backend can serve at once.
//!
//! A backend's throughput V grows with the number of requests in flight N up to a knee. Beyond it V
//! stays or falls, and all that grows is the time T that each request takes (Little's law: N = V
//! T). [`Learner`] holds N just above the knee. Requests beyond the limit wait in the balancer's
//! queue, where they can be ordered, refused and counted.
//!
//! ```text
//! Sample, Load --Learner--> limit (permits are counted by the caller), Report
//! ```
//!
//! # Algorithm
//!
//! The learner compares V with V. It keeps no smallest T: such a baseline is wrong for ever once it
//! was measured under load, or on a small request.
//!
//! 1. Only time in which requests wait counts ([`Load::waiting`]): otherwise V is what clients ask
//!    for.
//! 2. A *window* measures V at one limit. It begins when what was in flight has left, and lasts
//!    until its answers are enough for the spread of service times (search.rs, hold.rs).
//! 3. *Start*: from 4 to 16 the limit doubles after a few answers, and every 30 ms while nothing
//!    has finished; both only if enough requests wait to fill it. Where requests take longer than
//!    half of the queue's wait, a rise needs a full window. If V falls clearly, the limit stays
//!    below the fall; if service times differ too much for a few answers to tell, full windows
//!    decide. A limit that rose before anything finished is halved once first, because learning is
//!    quick at a low limit and slow at a high one.
//! 4. *Ascend*: from there the limit doubles while V follows, and quadruples once V followed fully.
//!    After a rise short requests finish first and long ones accumulate, so that V seems to grow.
//!    So V counts for less where the requests that finish account for too little of the time spent
//!    in flight (Little's law again).
//! 5. *Descend*: if V does not follow, the limit halves until V falls. The knee lies on the line
//!    through the lower point: `knee = lower limit * V / V(lower limit)`.
//! 6. *Hold*: the limit is 1.08 to 1.5 times the knee; the learner plays two limits in that range
//!    and prefers the lower one if V falls between them (a lock, a cache, memory), the higher one
//!    if V still grows.
//! 7. Once a cycle it measures above (1.5 times the limit). That costs nothing if V is flat, and
//!    shows that a backend has grown. If V falls there, it measures there a quarter as often.
//! 8. Once in four cycles, and whenever V has changed, it measures below (0.75 times the knee),
//!    which shows that the backend has shrunk. A short measurement is enough if it confirms what is
//!    known. The knee is a Kalman filter of these estimates, on a logarithmic scale.
//! 9. Cycles follow the wall clock and last a power of four seconds, so that all balancers before
//!    one backend measure at the same time. Each sees what all of them together gain. One that
//!    measured alone would see its own throughput grow at the cost of the others, at every limit.
//! 10. If requests begin to fail at a higher limit, or far fewer finish there, the limit falls back
//!     at once. It then stays below the one at which the rate collapsed, and is measured there
//!     again rarely. While requests from the higher limit are in flight, nothing is concluded from
//!     how few finish.
//! 11. A fast backend may have in flight what it finishes within 2 ms, as long as its rate does not
//!     suffer: there a queue costs more than the wait that it saves.
//! 12. It is harmless where it has nothing to say. If nothing finishes while requests wait, the
//!     limit gives way. A request that runs for much longer than most is *parked* and does not
//!     count. Without a standing queue nothing moves.
//!
//! # Limits
//!
//! - Rare dear requests among many cheap ones are noise, which takes minutes to see through (the
//!   mixed backends in `tests/concurrency`).
//! - A start into full load costs most where requests take long: "10 slots of 10 ms behind 100 ms"
//!   refuse 2 % in the first ten seconds at 0.8 of capacity, "100 slots of 50 ms" 1.6 %, where the
//!   others refuse none or 1 % (`cold_starts` in `tests/concurrency`).
//! - A backend that does nothing at all above a number, such as one out of memory, loses a second
//!   or more whenever that number is found out: what is in flight has to leave first ("memory for
//!   24" in `tests/concurrency`: 0.9 of what is possible).
//! - At a few answers a second learning takes minutes; the report says [`Region::NotEnoughSeen`]
//!   until then.
//! - Two balancers without a cluster keep 0.5 to 1 of a shared backend's goodput, most of them 0.85
//!   and more. Eight lose most of it: each gains by a rise, at the cost of the others, and sees too
//!   few answers to measure in unison. In a cluster [`SharedLearner`] learns from all of them
//!   together, and keeps 0.85 to 1 in most shapes (`clusters` in `tests/concurrency` prints the
//!   table). Reports a second old make it slow: it takes half a minute where a balancer alone takes
//!   two seconds. A backend that eight balancers have collapsed in the first second recovers within
//!   half a minute, unless it then answers so little that its requests look like long polls
//!   ("collapses past 8" at twice its capacity). A stated limit is the way there.
//!
//! # Sources
//!
//! - Probing rate and delay apart, and probing in unison: Cardwell et al., "BBR", ACM Queue 14
//!   (2016).
//! - Comparing utility at rates above and below: Dong et al., "PCC Vivace", NSDI 2018.
//! - Faults of baselines of T: `Gradient2Limit` and `VegasLimit` of Netflix concurrency-limits, and
//!   Envoy's adaptive concurrency (envoyproxy/envoy 38338, 46532, 11579). `tests/concurrency` runs
//!   them beside the learner.

mod group;
mod hold;
mod learner;
mod parked;
mod report;
mod sample;
mod search;
mod start;
mod window;

pub use group::{SharedLearner, Tally};
pub use learner::Learner;
pub use report::{Region, Report};
pub use sample::{Load, Outcome, Sample};
