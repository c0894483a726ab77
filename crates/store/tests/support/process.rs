//! Processes that die with the tests, however those end.

use std::os::unix::process::CommandExt;
use std::process::{Child, Command};
use std::sync::{LazyLock, mpsc};

use rustix::process::{Signal, set_parent_process_death_signal};

type Ask = (Command, mpsc::Sender<std::io::Result<Child>>);

/// The kernel's death signal comes when the *thread* that started the child ends, and test threads end
/// early. This one lives as long as the process.
static SPAWNER: LazyLock<mpsc::Sender<Ask>> = LazyLock::new(|| {
    let (sender, asked) = mpsc::channel::<Ask>();
    std::thread::spawn(move || {
        for (mut command, answer) in asked {
            // SAFETY: one prctl between fork and exec, which is async-signal-safe.
            unsafe {
                command.pre_exec(|| {
                    set_parent_process_death_signal(Some(Signal::KILL)).map_err(Into::into)
                });
            }
            let _ = answer.send(command.spawn());
        }
    });
    sender
});

pub(crate) fn spawn(command: Command) -> std::io::Result<Child> {
    let (answer, answered) = mpsc::channel();
    SPAWNER.send((command, answer)).expect("the thread lives");
    answered.recv().expect("the thread answers")
}
