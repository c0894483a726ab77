//! The program in the kernel. Needs root, or CAP_BPF with CAP_NET_ADMIN and CAP_PERFMON; without, each test says so and
//! does nothing.

use equipoise_packet::{Capacity, Entry, Limits, LoadError, Program};

const XDP_PASS: u32 = 2;

/// `None`: this process may not load programs.
fn loaded() -> Option<Program> {
    match Program::load(&Limits::new(&Capacity::default())) {
        Ok(program) => Some(program),
        Err(LoadError::Privilege(_)) => {
            eprintln!("skipped: loading BPF programs is not permitted");
            None
        }
        Err(error) => panic!("{error}"),
    }
}

#[test]
fn packets_pass_until_tables_are_published() {
    let Some(mut program) = loaded() else { return };
    let mut packet = vec![0; 60];
    packet[12..14].copy_from_slice(&[8, 0]);
    packet[14..24].copy_from_slice(&[0x45, 0, 0, 46, 0, 0, 0, 0, 64, 17]);
    for protocol in [6, 17] {
        packet[23] = protocol;
        let run = program.run(&packet, 1).unwrap();
        assert_eq!((run.verdict, &run.packet), (XDP_PASS, &packet));
    }
    assert_eq!(Entry::ALL.len(), program.object().progs().count(), "every program has an entry");
}
