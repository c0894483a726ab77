//! Ends the processes that a program leaves behind.
//!
//! A program's children have its standard output. While one of them lives, the worker would not
//! notice the end of the program, and the program's items would wait for ever. So some time after
//! the end of the first process, the worker kills the program's process group. That time is for
//! children with further output: when no process has the output open any more, the rest are killed
//! at once. A program without a process group of its own cannot be distinguished from its worker,
//! so its children are left alone.

use std::sync::{Arc, Mutex};
use std::time::Duration;

use equipoise_basics::lock;
use rustix::process::{Pid, Signal, WaitId, WaitIdOptions, getpgid, kill_process_group, waitid};

/// Time for further output after the end of the first process.
const MOMENT: Duration = Duration::from_millis(500);

/// A program's process group.
#[derive(Debug)]
pub(super) struct Rest {
    leader: Option<Pid>,
    /// The group was killed. From then on its id may belong to another group.
    is_over: Mutex<bool>,
}

impl Rest {
    /// The process group of the program with this process id. A thread waits for the end of the
    /// program. The parent must also wait for it, but only after [`Rest::end`].
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

    /// Kills the group, at the first call only. The parent has not waited for the first process
    /// yet, so the group's id cannot belong to another group.
    pub(super) fn end(&self) {
        let mut is_over = lock(&self.is_over);
        if let (false, Some(leader)) = (std::mem::replace(&mut *is_over, true), self.leader) {
            // The group may have ended already.
            let _ = kill_process_group(leader, Signal::KILL);
        }
    }
}
