//! Programs that an experiment starts, each with an address where it listens.

use std::io;
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::os::unix::process::CommandExt;
use std::process::{Child, Command, Stdio};
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail};

/// Longest time from a program's start until it listens.
const START: Duration = Duration::from_secs(20);

/// A process that listens at an address. It is killed when this is dropped.
#[derive(Debug)]
pub struct Guest {
    child: Child,
    /// Where it listens.
    pub address: SocketAddr,
}

impl Guest {
    /// Starts `command` and waits until it listens at `address`. It also ends when this program
    /// does.
    ///
    /// # Errors
    /// If it cannot be started, ends, or does not listen within 20 seconds.
    pub fn start(mut command: Command, address: SocketAddr) -> Result<Guest> {
        command.stdin(Stdio::null()).stdout(Stdio::null());
        // SAFETY: prctl is async-signal-safe and touches no memory. The lab has one thread that
        // starts processes, and it lives as long as the lab.
        unsafe {
            command.pre_exec(|| match libc::prctl(libc::PR_SET_PDEATHSIG, libc::SIGKILL) {
                0 => Ok(()),
                _ => Err(io::Error::last_os_error()),
            });
        }
        let program = command.get_program().to_string_lossy().into_owned();
        let child = command.spawn().with_context(|| format!("cannot start {program}"))?;
        let mut guest = Guest { child, address };
        let until = Instant::now() + START;
        while TcpStream::connect(address).is_err() {
            if let Some(status) = guest.child.try_wait()? {
                bail!("{program} ended ({status}) before it listened; its messages are above");
            }
            if Instant::now() > until {
                bail!("{program} does not listen at {address}");
            }
            thread::sleep(Duration::from_millis(10));
        }
        Ok(guest)
    }
}

impl Drop for Guest {
    fn drop(&mut self) {
        // It may have ended by itself.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// An address of loopback at which no program listens.
///
/// # Errors
/// If the kernel has none.
pub fn free_address() -> io::Result<SocketAddr> {
    TcpListener::bind("127.0.0.1:0")?.local_addr()
}
