//! Measures the other load of the machine, to report a machine that is too busy for the demo.

use std::time::{Duration, Instant};

use equipoise_monitor::{Monitor, MonitorOptions};

use super::stage::{CORES, NODES, Stage};

/// Processor time of the machine and of the demo's nodes, since the last step.
pub(super) struct MachineLoad {
    monitor: Monitor,
    since: Instant,
    nodes: Duration,
}

impl MachineLoad {
    /// Starts measuring.
    pub(super) fn begin(stage: &Stage) -> MachineLoad {
        let mut monitor = Monitor::new(MonitorOptions::default());
        monitor.sample();
        MachineLoad { monitor, since: Instant::now(), nodes: stage.processor_time() }
    }

    /// Adds the cause to a failed step, if the machine was too busy since the previous step.
    pub(super) fn explain(
        &mut self,
        stage: &Stage,
        outcome: anyhow::Result<String>,
    ) -> anyhow::Result<String> {
        let used = self.monitor.sample();
        let (now, nodes) = (Instant::now(), stage.processor_time());
        let elapsed_s = (now - self.since).as_secs_f64();
        let nodes_used = nodes.saturating_sub(self.nodes).as_secs_f64() / elapsed_s.max(1e-3);
        (self.since, self.nodes) = (now, nodes);
        outcome.map_err(|error| {
            let busy = used.cpu_machine_percent.zip(used.online_processors);
            match busy.and_then(|(percent, online)| too_busy(percent, online, nodes_used)) {
                Some(why) => error.context(why),
                None => error,
            }
        })
    }
}

/// Reports that a machine of `online` processors has no room for the demo's nodes. `percent` of the
/// processors are in use, and the nodes used `nodes_used` of them. `None` if there is room.
fn too_busy(percent: f64, online: u32, nodes_used: f64) -> Option<String> {
    let (online, wanted) = (f64::from(online), NODES as f64 * CORES);
    let others = (percent / 100.0 * online - nodes_used).max(0.0);
    (online - others < wanted).then(|| {
        format!(
            "the machine is too busy for this demo: other programs used {others:.1} of its {online:.0} \
             processors, the demo's {NODES} nodes need {wanted:.1} and had {nodes_used:.1}; end some of those \
             programs (`top` shows them), and try again"
        )
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_machine_without_room_for_the_nodes_is_named_with_its_figures() {
        assert_eq!(too_busy(60.0, 2, 0.9), None);
        assert_eq!(too_busy(100.0, 8, 1.2), None, "the nodes had what they want");
        let text = too_busy(100.0, 2, 0.5).unwrap();
        let start = "the machine is too busy for this demo: other programs used 1.5 of its 2 processors, \
                     the demo's 5 nodes need 1.0 and had 0.5";
        assert!(text.starts_with(start), "{text}");
    }
}
