//! The load model: from a node's report to its load now and in the coming period.
//!
//! ```text
//! Reported --checked--> Measurement --NodeLoad--> Signals (smoothed, coming) --Coefficients--> L1, L2
//! ```
//!
//! A level never computes a load (ARCHITECTURE.md, invariant 1); only planners use this module. The
//! exception is [`DispatchTable`], which is for the hot path and follows instructions.

mod admission;
mod class;
mod classify;
mod coefficients;
mod costs;
mod dispatch;
mod forecast;
mod measurement;
mod node;
mod occupancy;
mod overload;
mod path;
mod percent;
mod relief;
mod shares;
mod smoothing;

pub use admission::{REFUSED_FIRST, refuse};
pub use class::{ClassCounts, ClassRate, ClassRates, PerClass, RequestClass};
pub use classify::{ClassRule, ClassRules};
pub use coefficients::{Coefficients, CoefficientsRefused, Signals};
pub use costs::ClassCosts;
pub use dispatch::{Choice, DispatchTable, Underway};
pub use forecast::{ForecastError, Forecaster, WINDOW};
pub use measurement::{
    Fault, JITTER_MAX, Measurement, MeasurementRefused, Refusals, Reported, Signal,
};
pub use node::NodeLoad;
pub use occupancy::Occupancy;
pub use overload::{OverloadRule, OverloadRuleRefused};
pub use percent::{Percent, PercentOutOfRange};
pub use relief::{ClassUse, Resource, relieve};
pub use shares::Shares;
pub use smoothing::{Ewma, Holt, Smoothing, SmoothingRefused};
