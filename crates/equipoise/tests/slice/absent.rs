//! A process without a `[[slice]]` table has no threads and no sockets of DDS.

use crate::bed::Bed;

/// The names of the process's threads.
fn threads(pid: u32) -> Vec<String> {
    let tasks = std::fs::read_dir(format!("/proc/{pid}/task")).unwrap();
    let name = |path: std::path::PathBuf| std::fs::read_to_string(path.join("comm")).ok();
    tasks.filter_map(|task| name(task.unwrap().path())).map(|comm| comm.trim().into()).collect()
}

/// The number of the process's descriptors that are UDP sockets.
fn udp_sockets(pid: u32) -> usize {
    let lines = |family: &str| {
        std::fs::read_to_string(format!("/proc/{pid}/net/{family}")).unwrap_or_default()
    };
    let table = lines("udp") + &lines("udp6");
    // The inode is the tenth word.
    let inodes: Vec<_> = table.lines().filter_map(|line| line.split_whitespace().nth(9)).collect();
    let open = std::fs::read_dir(format!("/proc/{pid}/fd")).unwrap();
    let target = |fd: std::path::PathBuf| std::fs::read_link(fd).ok()?.to_str().map(str::to_string);
    let sockets = open.filter_map(|fd| target(fd.unwrap().path()));
    let inode = |target: String| target.strip_prefix("socket:[")?.strip_suffix(']').map(Into::into);
    sockets.filter_map(inode).filter(|inode: &String| inodes.contains(&&**inode)).count()
}

/// Whether this is a thread of Cyclone (receiving, timed events, garbage, delivery) or of the slice
/// level.
fn of_dds(thread: &str) -> bool {
    ["recv", "tev", "gc", "dq.", "slice-"].iter().any(|name| thread.starts_with(name))
}

#[test]
fn without_a_slice_table_no_dds_thread_or_socket_exists() {
    let mut bed = Bed::unstarted("slice-absent", 88);
    bed.write_tables("");
    bed.start();
    let pid = bed.controller.as_ref().unwrap().pid();
    assert!(!threads(pid).iter().any(|it| of_dds(it)), "{:?}", threads(pid));
    assert_eq!(udp_sockets(pid), 0);
    // With a `[[slice]]` table the checks find threads and sockets, so they look for the right
    // names.
    bed.kill_controller();
    bed.write("");
    bed.start();
    let pid = bed.controller.as_ref().unwrap().pid();
    assert!(threads(pid).iter().filter(|it| of_dds(it)).count() > 3, "{:?}", threads(pid));
    assert!(udp_sockets(pid) > 0);
}
