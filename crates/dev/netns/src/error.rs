use std::io;

/// Reason why a host could not be created or set up.
#[derive(Debug, thiserror::Error)]
pub enum NetnsError {
    /// The kernel did not create a namespace.
    #[error(
        "cannot make a network namespace for `{host}`; run as root, on a kernel with CONFIG_NET_NS"
    )]
    Create {
        /// Name of the host.
        host: String,
        /// Error of the system call.
        #[source]
        source: io::Error,
    },
    /// A program could not be started.
    #[error("cannot run `{program}` on `{host}`; is its Debian package installed?")]
    Start {
        /// Name of the host.
        host: String,
        /// The program.
        program: String,
        /// Error of the system call.
        #[source]
        source: io::Error,
    },
    /// A program exited with a failure.
    #[error("`{command}` failed on `{host}` ({status}): {output}")]
    Failed {
        /// Name of the host.
        host: String,
        /// The program and its arguments.
        command: String,
        /// Exit status.
        status: std::process::ExitStatus,
        /// Standard output and standard error.
        output: String,
    },
    /// A sysctl could not be written.
    #[error("cannot set sysctl {key} to {value} on `{host}`")]
    Sysctl {
        /// Name of the host.
        host: String,
        /// Path under /proc/sys.
        key: String,
        /// The value.
        value: String,
        /// Error of the system call.
        #[source]
        source: io::Error,
    },
    /// An operation on an interface failed.
    #[error("cannot {what} on interface {interface} of `{host}`")]
    Interface {
        /// Name of the host.
        host: String,
        /// Name of the interface.
        interface: String,
        /// The operation.
        what: &'static str,
        /// Error of the system call.
        #[source]
        source: io::Error,
    },
}
