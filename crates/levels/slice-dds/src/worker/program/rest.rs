//! What a program leaves running when it has ended.
//!
//! Its children have its standard output, and while one lives nobody would see that the program is gone: its items would wait for
//! good. So when its first process has ended, those of its process group are given a moment, and then killed. The moment is for those
//! that have the output: once nobody has it, the rest are killed at once. A program that has no group of its own is told from its
//! worker by nothing, and left alone.

use std::sync::{Arc, Mutex};
use std::time::Duration;

use equipoise_basics::lock;
use rustix::process::{Pid, Signal, WaitId, WaitIdOptions, getpgid, kill_process_group, waitid};

/// What the rest may still say, after the end of the first process.
const MOMENT: Duration = Duration::from_millis(500);

/// A program's process group.
#[derive(Debug)]
pub(super) struct Rest {
    leader: Option<Pid>,
    /// Its number may be another's by now.
    is_over: Mutex<bool>,
}

impl Rest {
    /// Of the program with this process id. Its end is waited for on a thread, and the process is still to be waited for by its
    /// parent, after [`Rest::end`].
    pub(super) fn of(pid: u32) -> Arc<Self> {
        let pid = i32::try_from(pid).ok().and_then(Pid::from_raw);
        let leader = pid.filter(|pid| getpgid(Some(*pid)) == Ok(*pid));
        let rest = Arc::new(Self { leader, is_over: Mutex::new(false) });
        if let Some(leader) = leader {
            let watched = rest.clone();
            let watch = move || {
                let ended = WaitIdOptions::EXITED | WaitIdOptions::NOWAIT;
                if waitid(WaitId::Pid(leader), ended).is_ok() {
                    std::thread::sleep(MOMENT);
                    watched.end();
                }
            };
            let thread = std::thread::Builder::new().name("slice-program-end".into());
            if let Err(error) = thread.spawn(watch) {
                tracing::warn!(%error, "children of the slice worker's program may outlive it");
            }
        }
        rest
    }

    /// Kills the group. Nothing is done by it once its first process was waited for.
    pub(super) fn end(&self) {
        let mut is_over = lock(&self.is_over);
        if let (false, Some(leader)) = (std::mem::replace(&mut *is_over, true), self.leader) {
            // It may be gone already.
            let _ = kill_process_group(leader, Signal::KILL);
        }
    }
}
