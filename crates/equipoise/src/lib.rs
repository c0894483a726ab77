//! The parts of the `equipoise` binary that its tests share with it.

pub mod commands;
pub mod config;
