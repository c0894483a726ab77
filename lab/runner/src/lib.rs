//! Runs the lab's experiments.
//!
//! An experiment is data (a TOML file: its cases, what the paper reported, which goals it has, what
//! its plot shows) and a function that measures one case. The runner goes through the cases, shows
//! how far it is and how long it will take, and writes for each run a folder with
//!
//! - `manifest.json`: commit, kernel, CPU, memory, seed, options;
//! - `NAME.csv`: a row a case, rewritten after each, so that what was measured is kept if a run is
//!   ended;
//! - `NAME.svg`: the plot, in the axes of the paper's figure;
//! - `report.md`: every experiment's table, the paper's figure beside ours, each goal met or
//!   missed.

mod experiment;
pub mod guest;
mod manifest;
pub mod measure;
pub mod memory;
mod plot;
mod progress;
mod report;
mod row;
mod run;
pub mod share;

pub use experiment::{Case, Experiment};
pub use row::{Row, Value};
pub use run::{Options, Run};
