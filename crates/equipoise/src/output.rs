//! Standard output of commands. `println!` panics when the reader has closed the pipe, as `head`
//! does, or the disk is full.

/// Prints to standard output, or returns the error.
macro_rules! out {
    ($($text:tt)*) => {
        std::io::Write::write_fmt(&mut std::io::stdout(), format_args!($($text)*))?
    };
}

/// Prints a line to standard output, or returns the error.
macro_rules! outln {
    ($($text:tt)*) => { out!("{}\n", format_args!($($text)*)) };
}
