//! docs/operations.md explains every drop reason that the metrics can show.

use equipoise_session::Reason;

#[test]
fn every_reason_of_the_packet_level_is_explained_as_drop_or_note() {
    let page = include_str!("../../../docs/operations.md");
    for reason in equipoise_packet::Reason::ALL {
        let kind = if reason.is_drop() { "drop" } else { "note" };
        let row = format!("| `{}` | {kind} |", reason.name());
        assert!(page.lines().any(|line| line.starts_with(&row)), "docs/operations.md lacks {row}");
    }
}

#[test]
fn every_reason_of_the_dns_level_is_explained() {
    let page = include_str!("../../../docs/operations.md");
    for reason in equipoise_dns::Reason::ALL {
        let row = format!("| `{}` | dns |", reason.name());
        assert!(page.lines().any(|line| line.starts_with(&row)), "docs/operations.md lacks {row}");
    }
}

#[cfg(feature = "slice")]
#[test]
fn every_reason_of_the_slice_level_is_explained() {
    let page = include_str!("../../../docs/operations.md");
    let protocol = equipoise_slice::worker::Reason::ALL.map(|reason| reason.name());
    let runtime = equipoise_slice_runtime::DropReason::ALL.map(|reason| reason.name());
    for name in protocol.into_iter().chain(runtime) {
        let row = format!("| `{name}` | slice |");
        assert!(page.lines().any(|line| line.starts_with(&row)), "docs/operations.md lacks {row}");
    }
}

#[test]
fn every_drop_reason_is_explained_with_the_status_that_clients_see() {
    let page = include_str!("../../../docs/operations.md");
    for reason in Reason::ALL {
        let row = page.lines().find(|line| line.starts_with(&format!("| `{}` |", reason.name())));
        let row = row.unwrap_or_else(|| panic!("docs/operations.md lacks `{}`", reason.name()));
        let status = reason.status();
        assert!(status == 0 || row.contains(&status.to_string()), "{status} in: {row}");
    }
}
