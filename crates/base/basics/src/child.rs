//! Child processes that must not outlive this process.

use std::io;
use std::os::unix::process::{CommandExt, parent_id};
use std::process::Command;

/// Makes the kernel kill the child when the thread that started it ends.
pub fn die_with_parent(command: &mut Command) {
    let parent = std::process::id();
    let before_exec = move || {
        // SAFETY: prctl with this option takes a signal number and touches no memory.
        if unsafe { libc::prctl(libc::PR_SET_PDEATHSIG, libc::SIGKILL) } != 0 {
            return Err(io::Error::last_os_error());
        }
        // The parent may have ended before prctl took effect.
        if parent_id() == parent { Ok(()) } else { Err(io::ErrorKind::NotConnected.into()) }
    };
    // SAFETY: between fork and exec the closure makes two system calls and allocates nothing.
    unsafe { command.pre_exec(before_exec) };
}
