//! Child processes that never outlive the benchmark.

use std::fs::{self, File};
use std::io::Write;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Command, ExitStatus, Stdio};
use std::sync::Arc;
use std::time::Duration;

use anyhow::{Context, Result, bail};

use crate::sys;

/// How a child is set up before it runs its program.
#[derive(Clone, Debug, Default)]
pub(crate) struct Setting {
    /// The CPUs it may use; `None`: all.
    pub(crate) cpus: Option<Vec<usize>>,
    /// Open files it needs.
    pub(crate) open_files: u64,
    /// The control group that it joins.
    pub(crate) quota: Option<Arc<File>>,
}

/// A running child and its own children: they are killed when this is dropped, and when the
/// benchmark dies.
pub(crate) struct Child {
    process: std::process::Child,
    name: String,
    log: PathBuf,
}

impl Child {
    /// Starts `command` in a process group of its own, its output in `log`.
    pub(crate) fn start(mut command: Command, setting: &Setting, log: &Path) -> Result<Child> {
        let name = Path::new(command.get_program()).display().to_string();
        let output = File::create(log).with_context(|| format!("creating {}", log.display()))?;
        command
            .stdin(Stdio::null())
            .stdout(output.try_clone()?)
            .stderr(output)
            // Ctrl-C in a terminal reaches us alone: we decide the order in which things end.
            .process_group(0);
        let Setting { cpus, open_files, quota } = setting.clone();
        // SAFETY: between fork and exec only async-signal-safe calls are made, and nothing is
        // allocated.
        unsafe {
            command.pre_exec(move || {
                // SIGTERM, because an nginx master that is killed leaves its worker behind.
                sys::end_with_parent(libc::SIGTERM)?;
                sys::raise_open_files(open_files)?;
                if let Some(mut group) = quota.as_deref() {
                    group.write_all(b"0")?;
                }
                cpus.as_deref().map_or(Ok(()), sys::stay_on)
            });
        }
        let process = command.spawn().with_context(|| format!("starting {name}"))?;
        Ok(Child { process, name, log: log.to_owned() })
    }

    pub(crate) fn pid(&self) -> u32 {
        self.process.id()
    }

    /// # Errors
    /// If the process has ended, with what it wrote.
    pub(crate) fn check_alive(&mut self) -> Result<()> {
        match self.process.try_wait()? {
            None => Ok(()),
            Some(status) => {
                bail!("{} ended early ({status}); it wrote:\n{}", self.name, self.output())
            }
        }
    }

    /// Waits for the process to end by itself.
    pub(crate) fn wait(&mut self) -> Result<ExitStatus> {
        loop {
            sys::check_interrupt()?;
            if let Some(status) = self.process.try_wait()? {
                return Ok(status);
            }
            std::thread::sleep(Duration::from_millis(20));
        }
    }

    /// The output of the process so far.
    pub(crate) fn output(&self) -> String {
        fs::read_to_string(&self.log).unwrap_or_default()
    }
}

impl Drop for Child {
    fn drop(&mut self) {
        if matches!(self.process.try_wait(), Ok(None)) {
            sys::kill_group(self.process.id());
        }
    }
}
