//! UDP front doors.

use std::io;
use std::os::fd::OwnedFd;
use std::rc::Rc;

use crate::worker::{Door, Worker};

/// Serves a UDP door until it closes.
pub(crate) async fn serve(worker: Rc<Worker>, door: Rc<Door>, socket: OwnedFd) -> io::Result<()> {
    let _ = (worker, socket);
    door.closed().await;
    Ok(())
}
