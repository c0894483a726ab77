//! The control side with the program itself, compiled for the host. No privilege, no sleeping: the clock is the test's.

mod changes;
mod learning;
mod world;
