//! The concurrency learner and what others do, on simulated backends.

mod antagonists;
mod backend;
mod climb;
mod cluster;
mod goals;
mod harmless;
mod measure;
mod others;
mod queue;
mod scenarios;
mod simulator;
mod table;
