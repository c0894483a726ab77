//! Errors of Cyclone DDS.

use cyclors::dds_return_t;

use crate::idl::IdlError;

/// A call that Cyclone DDS refused, or an argument that cannot be passed to it.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum Error {
    /// Cyclone DDS refused the call.
    #[error("DDS could not {doing}: {cause}")]
    Refused {
        /// The attempted operation.
        doing: &'static str,
        /// The cause that it returned.
        cause: Cause,
    },
    /// Another socket uses a port that the domain needs, and may have got it by chance.
    #[error(
        "DDS could not open the domain: {cause}. Another socket uses port {port} of domain {domain}, which is one of the ports \
         that the system gives to any socket (net.ipv4.ip_local_port_range); choose a domain with ports (7400 + 250 times \
         its number, and the next) outside that range"
    )]
    PortTaken {
        /// The domain's number.
        domain: u32,
        /// The UDP port.
        port: u16,
        /// The cause that Cyclone DDS returned.
        cause: Cause,
    },
    /// A name or setting that a C string cannot hold.
    #[error("{what} {value:?} has a NUL character, which DDS does not accept")]
    Nul {
        /// The kind of value.
        what: &'static str,
        /// The value.
        value: String,
    },
    /// This process has opened the domain with other settings, which apply to the whole process.
    #[error("this process already uses DDS domain {domain} with other settings")]
    OtherSettings {
        /// The domain's number.
        domain: u32,
    },
    /// The settings configure DDS Security, but the library was built without it. Nothing would be
    /// protected.
    #[error(
        "the DDS configuration contains DDS Security, which this build does not have; build with the feature `dds-security`, or \
         remove it from the configuration"
    )]
    NoSecurity,
    /// A file with DDS configuration cannot be read.
    #[error("cannot read the DDS configuration {path}: {reason}")]
    Unreadable {
        /// The file's path.
        path: String,
        /// The cause.
        reason: String,
    },
    /// The IDL does not declare the requested type.
    #[error("cannot read the type of items from IDL: {0}")]
    Idl(#[from] IdlError),
    /// The system cannot start a thread.
    #[error("the system cannot start another thread")]
    Thread,
    /// The bytes are not a sample of the topic's type.
    #[error("{bytes} bytes are not a sample of the topic's type")]
    NotOfType {
        /// Their number.
        bytes: usize,
    },
}

/// A return code of Cyclone DDS.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum Cause {
    /// No reason given; Cyclone's log may have one.
    #[error("no reason given (see the log)")]
    Unspecified,
    /// Not built in, or not supported.
    #[error("not supported")]
    Unsupported,
    /// An argument is wrong.
    #[error("an argument is wrong")]
    BadParameter,
    /// A precondition does not hold.
    #[error("a precondition does not hold")]
    PreconditionNotMet,
    /// Memory, ports or descriptors have run out.
    #[error("memory, ports or descriptors have run out")]
    OutOfResources,
    /// QoS policies contradict each other.
    #[error("QoS policies contradict each other")]
    InconsistentPolicy,
    /// The policy cannot be changed any more.
    #[error("the policy cannot be changed")]
    ImmutablePolicy,
    /// The entity was deleted.
    #[error("the entity was deleted")]
    AlreadyDeleted,
    /// Timeout. For a reliable writer: its readers do not keep up.
    #[error("timeout")]
    Timeout,
    /// DDS Security forbids it.
    #[error("DDS Security does not allow it")]
    Security,
    /// Another code.
    #[error("code {0}")]
    Other(i32),
}

impl Cause {
    fn of(code: dds_return_t) -> Self {
        match code {
            -1 => Self::Unspecified,
            -2 => Self::Unsupported,
            -3 => Self::BadParameter,
            -4 => Self::PreconditionNotMet,
            -5 => Self::OutOfResources,
            -7 => Self::ImmutablePolicy,
            -8 => Self::InconsistentPolicy,
            -9 => Self::AlreadyDeleted,
            -10 => Self::Timeout,
            -13 => Self::Security,
            code => Self::Other(code),
        }
    }
}

/// Turns a negative return code into an error. Other codes contain a handle or a count.
pub(crate) fn check(doing: &'static str, code: dds_return_t) -> Result<dds_return_t, Error> {
    if code < 0 { Err(Error::Refused { doing, cause: Cause::of(code) }) } else { Ok(code) }
}

/// `value` as a C string.
pub(crate) fn c_string(what: &'static str, value: &str) -> Result<std::ffi::CString, Error> {
    std::ffi::CString::new(value).map_err(|_| Error::Nul { what, value: value.to_string() })
}
