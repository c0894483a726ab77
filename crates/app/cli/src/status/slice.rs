//! The slice level's part of `equipoise status`: a line for each stream.

use equipoise_api::wire::slice::StreamSummary;

use crate::table::{Align, Cell, Table, Tone};
use crate::view::View;

pub(super) fn render(streams: &[StreamSummary], view: View, out: &mut String) {
    if streams.is_empty() {
        return;
    }
    let mut table = Table::new(&[
        ("STREAM", Align::Left),
        ("WORKERS", Align::Right),
        ("SLICES", Align::Right),
        ("UNOWNED", Align::Right),
        ("BLOCKED", Align::Right),
        ("ITEMS/S", Align::Right),
        ("QUEUED", Align::Right),
        ("OVER MEAN", Align::Right),
    ])
    .folding(&["BLOCKED", "SLICES"]);
    for stream in streams {
        table.row(row(stream));
    }
    out.push('\n');
    table.render(view, out);
}

fn row(stream: &StreamSummary) -> Vec<Cell> {
    // A controller that does not lead the stream knows only its file.
    if !stream.leading {
        let unknown = || Cell::from("-");
        let slices = stream.slices_total.into();
        let name = (&stream.name).into();
        return [name, unknown(), slices].into_iter().chain((0..5).map(|_| unknown())).collect();
    }
    let some = |count: u32, tone| match count {
        0 => Cell::from(0),
        _ => Cell::toned(count.to_string(), tone),
    };
    vec![
        (&stream.name).into(),
        if stream.workers == 0 { Cell::toned("0", Tone::Bad) } else { stream.workers.into() },
        stream.slices_total.into(),
        some(stream.slices_unowned, Tone::Bad),
        some(stream.slices_blocked, Tone::Plain),
        super::rate(stream.items_per_second).into(),
        stream.queued.into(),
        format!("{:.0} %", 100.0 * stream.imbalance).into(),
    ]
}

/// A line for each stream that is not balanced here, with the reason.
pub(super) fn details(streams: &[StreamSummary]) -> impl Iterator<Item = String> + '_ {
    streams.iter().filter_map(|stream| {
        let name = &stream.name;
        match &stream.problem {
            Some(problem) => Some(format!("stream {name}: {problem}")),
            None if !stream.leading => Some(format!(
                "stream {name}: led by another controller or by none; see `equipoise slice status`"
            )),
            None if stream.workers == 0 => Some(format!("stream {name}: NO WORKER takes part")),
            None => None,
        }
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn stream(name: &str) -> StreamSummary {
        StreamSummary {
            name: name.into(),
            leading: true,
            problem: None,
            workers: 3,
            slices_total: 50,
            slices_unowned: 0,
            slices_blocked: 2,
            items_per_second: 412.4,
            queued: 17,
            imbalance: 0.043,
        }
    }

    #[test]
    fn each_stream_has_a_row_and_an_unbalanced_stream_a_reason() {
        let elsewhere = StreamSummary { leading: false, ..stream("audio") };
        let idle = StreamSummary { workers: 0, slices_unowned: 50, ..stream("video") };
        let streams = [stream("images"), elsewhere, idle];
        let mut out = String::new();
        render(&streams, View::PLAIN, &mut out);
        assert_eq!(
            out,
            "\n\
             STREAM  WORKERS  SLICES  UNOWNED  BLOCKED  ITEMS/S  QUEUED  OVER MEAN\n\
             images        3      50        0        2      412      17        4 %\n\
             audio         -      50        -        -        -       -          -\n\
             video         0      50       50        2      412      17        4 %\n"
        );
        let told: Vec<String> = details(&streams).collect();
        assert_eq!(told.len(), 2);
        assert!(told[0].contains("equipoise slice status") && told[1].contains("NO WORKER"));
        let mut none = String::new();
        render(&[], View::PLAIN, &mut none);
        assert!(none.is_empty());
    }
}
