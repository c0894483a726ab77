//! The outcome of a trial for people.

use super::{Outcome, Row, Tried};
use crate::table::{Align, Cell, Table, Tone};
use crate::view::View;

impl Outcome {
    /// The page, the worst first.
    pub(in crate::import) fn page(&self, view: View) -> String {
        let columns = ["REQUEST", "AT", "OLD", "NEW", "RESULT"].map(|it| (it, Align::Left));
        let mut table = Table::new(&columns);
        for row in &self.answers {
            let answer = |it: &Option<String>| it.as_deref().unwrap_or("-").into();
            table.row(vec![
                row.request.as_str().into(),
                row.old_address.as_str().into(),
                answer(&row.old),
                answer(&row.new),
                result(row),
            ]);
        }
        let mut page = String::new();
        if !self.answers.is_empty() {
            table.render(view, &mut page);
            page.push('\n');
        }
        for part in &self.not_tried {
            page.push_str(&format!("not tried: {part}\n"));
        }
        page.push_str(&format!("{}\n", self.summary));
        view.fold(page)
    }
}

fn result(row: &Row) -> Cell {
    let facts = row.differences.iter();
    let facts: Vec<_> =
        facts.map(|it| format!("{}: old {}, new {}", it.what, it.old, it.new)).collect();
    let facts = facts.join("; ");
    let (word, tone) = match row.result {
        Tried::Differs => ("differs", Tone::Bad),
        Tried::NotAsked => ("not asked", Tone::Warning),
        Tried::Varies => ("varies", Tone::Plain),
        Tried::Same => ("same", Tone::Good),
    };
    let text = match (&row.why, row.result) {
        (Some(why), _) => format!("{word}: {why}"),
        (None, _) if facts.is_empty() => word.to_string(),
        (None, Tried::Same) => format!("{word}, on another page: {facts}"),
        (None, _) => format!("{word}: {facts}"),
    };
    Cell::toned(text, tone)
}

/// One sentence with the number of each result.
pub(super) fn summary(rows: &[Row]) -> String {
    let count = |result| rows.iter().filter(|row| row.result == result).count();
    if rows.is_empty() {
        return "nothing of it can be tried".to_string();
    }
    let asked = rows.len() - count(Tried::NotAsked);
    let mut text = format!("{} of {asked} requests have the same answer", count(Tried::Same));
    for (result, words) in [
        (Tried::Differs, "have another"),
        (Tried::Varies, "have answers that vary at the old proxy alone"),
        (Tried::NotAsked, "were not asked"),
    ] {
        let number = count(result);
        if number > 0 {
            text.push_str(&format!(", {number} {words}"));
        }
    }
    text
}
