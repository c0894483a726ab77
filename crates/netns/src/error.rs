use std::io;

/// Why a host could not be made or set up.
#[derive(Debug, thiserror::Error)]
pub enum NetnsError {
    /// The kernel refused a namespace.
    #[error(
        "cannot make a network namespace for `{host}`; run as root, on a kernel with CONFIG_NET_NS"
    )]
    Create {
        /// Of the host to be.
        host: String,
        /// What the kernel said.
        #[source]
        source: io::Error,
    },
    /// A program could not be started.
    #[error("cannot run `{program}` on `{host}`; is its Debian package installed?")]
    Start {
        /// Where.
        host: String,
        /// The program.
        program: String,
        /// What the kernel said.
        #[source]
        source: io::Error,
    },
    /// A program ended with a failure.
    #[error("`{command}` failed on `{host}` ({status}): {output}")]
    Failed {
        /// Where.
        host: String,
        /// With its arguments.
        command: String,
        /// How it ended.
        status: std::process::ExitStatus,
        /// What it printed on both outputs.
        output: String,
    },
    /// A sysctl could not be written.
    #[error("cannot set sysctl {key} to {value} on `{host}`")]
    Sysctl {
        /// Where.
        host: String,
        /// Its path under /proc/sys.
        key: String,
        /// What it should be.
        value: String,
        /// What the kernel said.
        #[source]
        source: io::Error,
    },
    /// Something on an interface was refused.
    #[error("cannot {what} on interface {interface} of `{host}`")]
    Interface {
        /// Where.
        host: String,
        /// Its name.
        interface: String,
        /// What was tried.
        what: &'static str,
        /// What the kernel said.
        #[source]
        source: io::Error,
    },
}
