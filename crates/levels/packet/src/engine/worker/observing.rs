//! Captures of packets, for the operator who asks.

use super::super::capturing::{Capturing, mark};
use super::Worker;
use crate::capture::{CaptureError, CaptureRequest, CaptureSink};

impl Worker {
    /// Begins a capture. Returns its number.
    pub(in super::super) fn capture(
        &mut self,
        request: &CaptureRequest,
        sink: CaptureSink,
    ) -> Result<u64, CaptureError> {
        request.check()?;
        let place = self.control.numbers_of(&request.vip, request.backend.as_ref())?;
        let names = self.control.backend_names();
        self.capturing.begin(&self.program, request, place, names, sink)
    }

    /// Ends the capture of a VIP or backend that was removed. To be called before the tables are
    /// published in which another one may have its number.
    pub(super) fn end_capture_of_removed(&mut self) {
        let control = &self.control;
        self.capturing.end_of_removed(self.program.memory(), |request| {
            control.numbers_of(&request.vip, request.backend.as_ref()).ok()
        });
    }

    /// Ends the capture that runs, if there is one.
    pub(super) fn end_captures(&mut self) {
        self.capturing = Capturing::default();
        mark(self.program.memory(), false);
    }

    /// Ends a capture, if it still runs.
    pub(in super::super) fn end_capture(&mut self, id: u64) {
        self.capturing.end(id, self.program.memory());
    }
}
