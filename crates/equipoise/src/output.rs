//! Standard output of commands. `println!` panics when the reader has closed the pipe, as `head` does, or the disk is full.

use std::io;

/// Prints to standard output, or returns the error.
macro_rules! out {
    ($($text:tt)*) => {
        std::io::Write::write_fmt(&mut std::io::stdout(), format_args!($($text)*))
            .map_err($crate::output::of_stdout)?
    };
}

/// Prints a line to standard output, or returns the error.
macro_rules! outln {
    ($($text:tt)*) => { out!("{}\n", format_args!($($text)*)) };
}

/// An error of standard output.
#[derive(Debug, thiserror::Error)]
#[error("cannot write to standard output: {0}")]
struct OfStdout(io::Error);

/// Marks an error as one of standard output.
pub(crate) fn of_stdout(error: io::Error) -> io::Error {
    io::Error::new(error.kind(), OfStdout(error))
}

/// Whether the reader of standard output closed it early, as `head` does: it has read enough. A pipe or a socket of
/// another kind that breaks is an error.
pub(crate) fn is_read_enough(error: &anyhow::Error) -> bool {
    let error = error.downcast_ref::<io::Error>();
    let error = error.filter(|error| error.kind() == io::ErrorKind::BrokenPipe);
    error.and_then(io::Error::get_ref).is_some_and(|inner| inner.is::<OfStdout>())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_standard_output_that_was_closed_is_no_error() {
        let broken = || io::Error::from(io::ErrorKind::BrokenPipe);
        assert!(is_read_enough(&of_stdout(broken()).into()));
        assert!(!is_read_enough(&broken().into()));
        assert!(!is_read_enough(&of_stdout(io::ErrorKind::StorageFull.into()).into()));
    }
}
