use super::*;

#[test]
fn a_kind_has_one_name_everywhere() {
    for kind in SchedulerKind::ALL {
        assert_eq!(kind.to_string(), kind.name());
        assert_eq!(kind.name().parse(), Ok(kind));
        assert_eq!(serde_json::to_value(kind).unwrap(), kind.name());
        assert_eq!(serde_json::from_value::<SchedulerKind>(kind.name().into()).unwrap(), kind);
    }
}

#[test]
fn all_lists_each_kind_once() {
    for (at, kind) in SchedulerKind::ALL.iter().enumerate() {
        assert!(!SchedulerKind::ALL[at + 1..].contains(kind), "{kind} twice");
    }
}

#[test]
fn an_unknown_name_is_answered_with_all_names() {
    let error = "roundrobin".parse::<SchedulerKind>().unwrap_err().to_string();
    assert!(error.starts_with("\"roundrobin\" is not a scheduler; use one of round-robin, "));
    for kind in SchedulerKind::ALL {
        assert!(error.contains(kind.name()), "{error}");
    }
}

#[test]
fn least_time_and_prequal_read_response_times() {
    for kind in SchedulerKind::ALL {
        let reads = matches!(kind, SchedulerKind::LeastTime | SchedulerKind::Prequal);
        assert_eq!(kind.reads_response_time(), reads);
    }
}

#[test]
fn a_name_is_padded_in_a_table() {
    assert_eq!(format!("{:<8}|", SchedulerKind::Maglev), "maglev  |");
}
