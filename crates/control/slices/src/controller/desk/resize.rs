//! Resizes: the request of an operator, and the effects on pins and balancing.

use equipoise_slice::balance::Balancer;
use equipoise_slice::controller::{ResizeRefused, ResizeWaits};
use equipoise_slice::{Numbering, SliceId};

use crate::controller::AskError;
use crate::controller::desk::{Desk, Seen};

impl Desk {
    /// Handles an operator's request for this number of slices.
    pub(super) fn resize(&mut self, slices: u32) -> Result<(), AskError> {
        let numbering = *self.protocol.numbering();
        if slices < numbering.slices {
            self.can_join_pins(&numbering, slices)?;
        }
        self.protocol.resize(slices)?;
        self.resized.wanted = (slices != numbering.slices).then_some(slices);
        Ok(())
    }

    /// Two slices that will be joined may be pinned only to one worker.
    fn can_join_pins(&self, numbering: &Numbering, slices: u32) -> Result<(), AskError> {
        let to = numbering.resized(slices, numbering.epoch);
        let pins = &self.wishes.pins;
        let apart = pins.iter().find_map(|(slice, worker)| {
            let other = numbering.partner(*slice, &to);
            pins.get(&other).is_some_and(|it| it != worker).then_some((*slice, other))
        });
        apart.map_or(Ok(()), |(one, other)| Err(AskError::PinnedApart(one, other)))
    }

    /// After a resize: renumbers pins and forgets measured loads. Also starts a resize that an
    /// earlier leader did not finish.
    pub(super) fn follow_numbering(&mut self) {
        let to = *self.protocol.numbering();
        let from = std::mem::replace(&mut self.numbering, to);
        if from.epoch != to.epoch {
            if from.is_step_to(to.slices) {
                let pins = std::mem::take(&mut self.wishes.pins);
                let becomes = |(slice, worker): (SliceId, String)| {
                    from.becomes(slice, &to).map(move |slice| (slice, worker.clone()))
                };
                self.wishes.pins = pins.into_iter().flat_map(becomes).collect();
            }
            self.balancer = Balancer::new(self.options.policy.clone());
            self.seen = Seen::default();
            for report in self.reports.values_mut() {
                report.slices.clear();
            }
            self.resized.pins = Some(to);
            tracing::info!(
                event = "slice.resized",
                subject = self.options.name,
                stream = self.options.name,
                slices = to.slices,
                "the stream was resized"
            );
        }
        let Some(wanted) = self.resized.wanted else { return };
        if self.protocol.resizing().is_some() {
            return;
        }
        match self.protocol.resize(wanted) {
            Ok(()) if self.protocol.resizing().is_some() => {}
            // The resize is done, or the file has another number of slices now.
            Ok(()) | Err(ResizeRefused::NoStep { .. }) => self.resized.wanted = None,
            Err(refused) => {
                tracing::warn!(event = "slice.not-resized", subject = self.options.name, stream = self.options.name, %refused, "the stream was not resized");
                self.resized.wanted = None;
            }
        }
    }

    /// The requested number of slices, and a text about the condition that it waits for.
    pub(super) fn resizing(&self) -> Option<(u32, String)> {
        let (slices, waits) = self.protocol.resizing()?;
        let waits = match waits {
            ResizeWaits::Survey => "workers to report their slices".into(),
            ResizeWaits::Halves(count) => {
                format!("{count} slices to move to the owner of the slice that each is joined with")
            }
            ResizeWaits::Owners(count) => format!("{count} slices to have an owner"),
            ResizeWaits::Workers(workers) => {
                let names: Vec<_> = workers.iter().map(|worker| self.name_of(*worker)).collect();
                format!(
                    "{}, with open handovers or recoveries, or with slices that moved in the last seconds",
                    names.join(", ")
                )
            }
            ResizeWaits::Handovers(count) => format!("{count} handovers to end"),
        };
        Some((slices, waits))
    }
}
