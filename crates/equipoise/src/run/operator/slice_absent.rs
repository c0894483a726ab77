//! Requests about streams, in a binary without the slice level.

use equipoise_api::SliceOperator;
use equipoise_api::metrics::StreamReading;
use equipoise_api::wire::slice::StreamSummary;
use equipoise_planes::SlicePlane;

use crate::run::control::Control;

impl SliceOperator for Control {}

pub(super) fn summary(_: &SlicePlane) -> Vec<StreamSummary> {
    Vec::new()
}

pub(super) fn reading(_: &SlicePlane) -> Vec<StreamReading> {
    Vec::new()
}
