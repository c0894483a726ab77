//! Standard output of commands. `println!` would panic if the reader has closed the pipe, as `head`
//! does, or if the disk is full.

/// Prints to standard output, and returns from the function on an error.
macro_rules! out {
    ($($text:tt)*) => {
        std::io::Write::write_fmt(&mut std::io::stdout(), format_args!($($text)*))?
    };
}

/// Prints a line to standard output, and returns from the function on an error.
macro_rules! outln {
    ($($text:tt)*) => { out!("{}\n", format_args!($($text)*)) };
}
