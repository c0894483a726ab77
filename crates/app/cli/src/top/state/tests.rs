//! Pages on a terminal of a test: what is shown, and what keys make of it.

mod levels;

use std::time::{Duration, Instant};

use equipoise_api::wire::Status;
use equipoise_api::wire::events::{Event, EventLevel};
use equipoise_api::wire::why::WhyAnswer;
use ratatui_core::backend::TestBackend;
use ratatui_core::style::{Color, Modifier};
use ratatui_core::terminal::Terminal;
use serde_json::{Value, json};
use termion::event::Key;

use super::*;
use crate::top::draw::draw;
use crate::top::lines::Theme;
use crate::top::samples::{backend, status};

fn reading(status: Status) -> Reading {
    Reading {
        at: Instant::now(),
        status,
        degraded: Vec::new(),
        nodes: Vec::new(),
        streams: Vec::new(),
    }
}

fn three() -> [Value; 3] {
    let failing = json!({ "state": "unhealthy", "health": "unhealthy",
        "health_detail": "connection refused" });
    [backend("b1", &json!({})), backend("b2", &json!({ "weight": 5 })), backend("b3", &failing)]
}

fn state(backends: &[Value]) -> State {
    State::new(reading(status(backends, &json!({}))))
}

/// The lines of the page.
fn page(state: &mut State, columns: u16, rows: u16) -> Vec<String> {
    let (lines, _) = drawn(state, columns, rows, false);
    lines
}

/// The lines, and whether a cell has a colour.
fn drawn(state: &mut State, columns: u16, rows: u16, colour: bool) -> (Vec<String>, bool) {
    let mut terminal = Terminal::new(TestBackend::new(columns, rows)).unwrap();
    let now = Instant::now();
    terminal.draw(|frame| draw(frame, state, Theme { colour }, now)).unwrap();
    let buffer = terminal.backend().buffer();
    let mut has_colour = false;
    let mut lines = Vec::new();
    for y in 0..rows {
        let mut line = String::new();
        for x in 0..columns {
            let cell = &buffer[(x, y)];
            has_colour |= cell.fg != Color::Reset || cell.bg != Color::Reset;
            line.push_str(cell.symbol());
        }
        lines.push(line.trim_end().to_owned());
    }
    (lines, has_colour)
}

fn keys(state: &mut State, keys: &str) -> Effect {
    let mut effect = Effect::Nothing;
    for key in keys.chars() {
        effect = state.key(Key::Char(key));
    }
    effect
}

#[test]
fn a_page_of_80_by_24_has_the_headline_the_tabs_and_trouble_first() {
    let page = page(&mut state(&three()), 80, 24);
    let expected = [
        "edge-1 · equipoise 1.0.0 · pid 7 · up 1 min 30 s",
        "1 backend of 3 in pool web is unhealthy: b3, connection refused",
        "What to do: the others serve; see what its checks get",
        "",
        "1 Session  2 Backends  3 Events",
        "BACKEND  STATE      REQ/S  IN FLIGHT  LIMIT  WEIGHT  ERR/S  WHY",
        "web/b3   unhealthy   12.5          3     40       1      0  connection refused",
        "web/b1   up          12.5          3     40       1      0",
        "web/b2   up          12.5          3     40       5      0",
    ];
    assert_eq!(page[..9], expected, "{page:#?}");
    assert_eq!(page[22], "1 of 3, trouble first");
    assert!(page[23].starts_with("d drain  u undo  w weight"), "{}", page[23]);
    assert!(page[23].ends_with("q quit"), "the keys fit: {}", page[23]);
}

#[test]
fn a_reason_that_its_column_cuts_is_below_the_table_and_events_are_by_time() {
    let [b1, b2, _] = three();
    let detail = "192.0.2.1:80/tcp: no answer through the tunnel within 1s";
    let failing = json!({ "state": "unhealthy", "health": "unhealthy", "health_detail": detail });
    let mut state = state(&[b1, b2, backend("b3", &failing)]);
    let shown = page(&mut state, 80, 24);
    assert!(shown[6].ends_with('…'), "{shown:#?}");
    assert_eq!(shown[21], format!("web/b3: {detail}"));
    assert_eq!(shown[22], "1 of 3, trouble first");
    keys(&mut state, "e");
    let shown = page(&mut state, 80, 24);
    assert!(shown[22].ends_with("newest first"), "{shown:#?}");
}

#[test]
fn a_page_of_120_by_40_has_more_columns() {
    let page = page(&mut state(&three()), 120, 40);
    let heading = "BACKEND  STATE      REQ/S  IN FLIGHT  LIMIT  WEIGHT  ERR/S  SERVICE   SHARE  REGION  ADDRESS      WHY";
    assert_eq!(page[5], heading);
    assert!(
        page[6].contains("12 ms  33.3 %  rising  10.0.0.1:80  connection refused"),
        "{}",
        page[6]
    );
    assert_eq!(page[38], "1 of 3, trouble first");
}

#[test]
fn no_page_is_too_small() {
    for (columns, rows) in [(0, 0), (1, 1), (10, 3), (30, 6), (79, 23), (300, 5)] {
        for key in ["", "h", "f", "d", "w", "?", "/x", "e"] {
            let mut state = state(&three());
            keys(&mut state, key);
            if columns > 0 {
                page(&mut state, columns, rows);
            }
        }
    }
}

#[test]
fn all_is_well_with_totals() {
    let mut state = state(&three()[..2]);
    let mut later = reading(status(&three()[..2], &json!({})));
    later.at += Duration::from_secs(2);
    later.status.front_doors[0].requests_total += 50;
    state.receive(News::Reading(Box::new(later)));
    let page = page(&mut state, 80, 24);
    assert_eq!(page[1..3], ["All well", "25 requests/s · 6 in flight · 0 queued"]);
}

#[test]
fn colours_are_left_out_on_request() {
    let mut state = state(&three());
    assert!(!drawn(&mut state, 80, 24, false).1);
    assert!(drawn(&mut state, 80, 24, true).1);
}

#[test]
fn a_drain_is_confirmed_with_its_command() {
    let mut state = state(&three());
    assert_eq!(keys(&mut state, "jd"), Effect::Nothing);
    let shown = page(&mut state, 80, 24).join("\n");
    assert!(shown.contains("Drain web/b1?"), "{shown}");
    assert!(shown.contains("The same as: equipoise drain web/b1"), "{shown}");
    assert_eq!(keys(&mut state, "n"), Effect::Nothing);
    assert_eq!(state.front, Front::Nothing);
    let Effect::Perform(action) = keys(&mut state, "dy") else { panic!("it is performed") };
    assert_eq!(action.command, "equipoise drain web/b1");
    state.receive(News::Done(Ok("web/b1: draining, weight 1, 3 in flight".into())));
    assert_eq!(page(&mut state, 80, 24)[22], "web/b1: draining, weight 1, 3 in flight");
}

#[test]
fn the_selection_stays_with_its_row() {
    let mut state = state(&three());
    keys(&mut state, "j");
    assert_eq!(state.row().unwrap().id, "web/b1");
    // Now b3 is well, so that b1 is first.
    let healthy = [backend("b1", &json!({})), backend("b2", &json!({})), backend("b3", &json!({}))];
    state.receive(News::Reading(Box::new(reading(status(&healthy, &json!({}))))));
    assert_eq!((state.place(), &*state.row().unwrap().id), (0, "web/b1"));
    // It is removed: the next row is selected.
    state.receive(News::Reading(Box::new(reading(status(&healthy[1..], &json!({}))))));
    assert_eq!(state.row().unwrap().id, "web/b2");
    keys(&mut state, "d");
    assert!(matches!(&state.front, Front::Confirm(action) if action.words == "Drain web/b2?"));
}

#[test]
fn undo_follows_the_state_and_takes_a_weight_back() {
    let drained = backend("b1", &json!({ "admin": "drain", "state": "drained", "in_flight": 0 }));
    let mut state = state(&[drained, backend("b2", &json!({}))]);
    let shown = page(&mut state, 80, 24).join("\n");
    assert!(shown.contains("0: safe to stop"), "{shown}");
    keys(&mut state, "u");
    assert!(page(&mut state, 80, 24).join("\n").contains("equipoise undrain web/b1"));
    keys(&mut state, "nju");
    assert_eq!(page(&mut state, 80, 24)[22], "web/b2 is not drained: nothing to take back");
    let Effect::Perform(_) = keys(&mut state, "w7\ny") else { panic!("it is performed") };
    let changed = [backend("b1", &json!({})), backend("b2", &json!({ "weight": 7 }))];
    state.receive(News::Reading(Box::new(reading(status(&changed, &json!({}))))));
    keys(&mut state, "u");
    let shown = page(&mut state, 80, 24).join("\n");
    assert!(shown.contains("Set the weight of web/b2 from 7 to 1?"), "{shown}");
}

#[test]
fn a_weight_that_is_none_is_explained() {
    let mut state = state(&three());
    keys(&mut state, "w1001\n");
    assert!(matches!(&state.front, Front::Weight(_, text) if text == "1001"));
    assert!(page(&mut state, 80, 24)[22].contains("1001 is not in 0..=1000"));
}

#[test]
fn a_filter_narrows_the_table_while_it_is_typed() {
    let mut state = state(&three());
    keys(&mut state, "/refused");
    assert_eq!(state.sheet.rows.len(), 1);
    // Keys of actions are letters here.
    keys(&mut state, "d");
    assert_eq!(state.sheet.rows.len(), 0);
    let shown = page(&mut state, 80, 24);
    assert!(shown[6].contains("nothing contains `refusedd`"), "{}", shown[6]);
    state.key(Key::Backspace);
    state.key(ENTER);
    assert_eq!((&state.front, state.sheet.rows.len()), (&Front::Nothing, 1));
    state.key(Key::Esc);
    assert_eq!(state.sheet.rows.len(), 3);
}

#[test]
fn every_column_orders_the_table_and_then_trouble_does() {
    let mut state = state(&three());
    keys(&mut state, "s");
    assert_eq!(page(&mut state, 80, 24)[22], "3 of 3, by BACKEND", "the selected row is b3");
    assert_eq!(state.sheet.rows[0].id, "web/b1");
    keys(&mut state, "r");
    assert_eq!(state.sheet.rows[0].id, "web/b3");
    assert_eq!(page(&mut state, 80, 24)[22], "1 of 3, by BACKEND, reversed");
    for _ in 0..state.sheet.columns.len() {
        keys(&mut state, "s");
    }
    assert_eq!(state.order(), Order::default());
}

#[test]
fn events_are_a_tab_with_the_newest_first() {
    let mut state = state(&three());
    for (id, words) in [("1", "web/b3 became unhealthy"), ("2", "web/b1 drains")] {
        state.receive(News::Event(Event {
            id: format!("1.1-{id}"),
            time: "2026-11-26T20:00:01.5Z".into(),
            level: EventLevel::Warning,
            kind: "backend.unhealthy".into(),
            subject: "web/b3".into(),
            words: words.into(),
            lost: None,
        }));
    }
    keys(&mut state, "e");
    let shown = page(&mut state, 80, 24);
    assert_eq!(shown[6], "20:00:01  backend.unhealthy  web/b3   web/b1 drains");
    keys(&mut state, "d");
    assert_eq!(page(&mut state, 80, 24)[22], "nothing in this row can be changed");
    keys(&mut state, "e");
    assert_eq!(state.tab, Tab::Backends);
}

#[test]
fn why_asks_about_the_selected_row() {
    let mut state = state(&three());
    keys(&mut state, "?");
    assert!(matches!(&state.front, Front::Why(why) if why.text == "http://127.0.0.1:8080/"));
    let Effect::Ask(question) = keys(&mut state, "cart\n") else { panic!("it asks") };
    assert_eq!(question.request.unwrap().url, "http://127.0.0.1:8080/cart");
    let answer = WhyAnswer {
        subject: "GET http://127.0.0.1:8080/cart".into(),
        outcome: "backend web/b1".into(),
        taken: true,
        backend: None,
        steps: Vec::new(),
    };
    state.receive(News::Answer(Ok(answer)));
    let shown = page(&mut state, 80, 24).join("\n");
    assert!(shown.contains("GET http://127.0.0.1:8080/cart: backend web/b1"), "{shown}");
    state.key(Key::Ctrl('u'));
    keys(&mut state, "nonsense\n");
    assert!(page(&mut state, 80, 24).join("\n").contains("`nonsense` is no subject"));
}

#[test]
fn silence_is_the_headline_until_the_process_answers_again() {
    let mut state = state(&three()[..2]);
    state.receive(News::Silent("Connection refused".into()));
    let now = Instant::now();
    assert_eq!(state.headline(now).0, None, "a moment is none");
    let (fact, _) = state.headline(now + Duration::from_secs(65));
    let text = fact.unwrap().text;
    assert_eq!(text, "No answer from equipoise for 1 min 5 s: Connection refused");
    // A new process counts from 0, and has another level.
    let restarted = json!({ "pid": 8, "front_doors": [] });
    state.receive(News::Reading(Box::new(reading(status(&three()[..2], &restarted)))));
    assert_eq!(state.headline(now + Duration::from_secs(65)).0, None);
    assert_eq!(state.tabs(), [Tab::Backends, Tab::Events]);
}

#[test]
fn quitting_is_possible_from_everywhere() {
    for front in ["", "h", "/a", "d", "w1", "?"] {
        let mut state = state(&three());
        keys(&mut state, front);
        assert_eq!(state.key(Key::Ctrl('c')), Effect::Quit, "{front}");
    }
    assert_eq!(keys(&mut state(&three()), "q"), Effect::Quit);
}

/// Time of this thread on a processor.
fn cpu_time() -> Duration {
    let time = rustix::time::clock_gettime(rustix::time::ClockId::ThreadCPUTime);
    Duration::new(time.tv_sec.cast_unsigned(), u32::try_from(time.tv_nsec).unwrap())
}

#[test]
fn a_frame_of_500_backends_and_50_nodes_takes_less_than_50_ms() {
    let backends: Vec<_> = (0..500).map(|at| backend(&format!("b{at}"), &json!({}))).collect();
    let mut all = reading(status(&backends, &json!({})));
    let node = json!({
        "name": "n", "kind": "node", "state": "alive", "version": "1.0.0", "capacity": 2.0,
        "admin": "up", "standing": "serving", "shares": {}, "cpu_percent": 40.0,
        "memory_percent": 30.0, "net_percent": 1.0, "l1": 40.0, "l2": 40.0, "keep": 1.0,
        "report_age_seconds": 1.0, "applied": "1.1", "refused_total": 0,
    });
    let mut node: equipoise_api::wire::plan::NodeStatus = serde_json::from_value(node).unwrap();
    all.nodes = (0..50)
        .map(|at| {
            node.name = format!("n{at}");
            node.clone()
        })
        .collect();
    let mut state = State::new(all.clone());
    for tab in ['2', '3'] {
        keys(&mut state, &tab.to_string());
        let mut times: Vec<_> = (0..21)
            .map(|_| {
                let begin = cpu_time();
                // A reading builds and orders the table; a frame draws it.
                state.receive(News::Reading(Box::new(all.clone())));
                page(&mut state, 120, 40);
                cpu_time() - begin
            })
            .collect();
        times.sort();
        eprintln!("{:?}: median {:?} of a reading and a frame", state.tab, times[10]);
        assert!(times[10] < Duration::from_millis(50), "{:?}: {times:?}", state.tab);
    }
}

#[test]
fn the_selected_row_is_marked_and_in_view() {
    let backends: Vec<_> = (0..100).map(|at| backend(&format!("b{at}"), &json!({}))).collect();
    let mut state = state(&backends);
    page(&mut state, 80, 24);
    state.key(Key::End);
    let mut terminal = Terminal::new(TestBackend::new(80, 24)).unwrap();
    let theme = Theme { colour: false };
    terminal.draw(|frame| draw(frame, &mut state, theme, Instant::now())).unwrap();
    let buffer = terminal.backend().buffer();
    let marked: Vec<u16> =
        (6..22).filter(|y| buffer[(0, *y)].modifier.contains(Modifier::REVERSED)).collect();
    assert_eq!(marked, [21], "the last line of the table");
    state.key(Key::Home);
    assert_eq!((state.place(), page(&mut state, 80, 24)[6].starts_with("web/b0")), (0, true));
}
