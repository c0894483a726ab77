//! Writes docs/reference.md, the reference page of the configuration file.

use std::fmt::Write as _;

use super::key::Options as _;
use super::option::{Absent, Kind, Opt, Table};
use super::tables::File;

pub(super) const HEAD: &str = "\
<!-- Written by `equipoise schema --reference`. Change crates/app/config/src/tables.rs instead. -->

# Configuration reference

The configuration is one TOML file. `equipoise check FILE` reports all errors of a file, and `equipoise schema`
prints the JSON Schema for editors.

Durations are a whole number and a unit, `ms`, `s`, `m`, `h` or `d`: `\"250ms\"`. Sizes likewise: `KiB`, `MiB`,
`GiB` and `TiB` are powers of 1024, `KB`, `MB`, `GB` and `TB` powers of 1000, and `B` is bytes. Options marked
*http* have no effect on front doors of another protocol, and on pools that are only behind such front doors.

A pool of two backends behind a front door:

```toml
[[pool]]
name = \"web\"
scheduler = \"weighted-least-connection\"
retries = 2
backends = [\"10.0.0.11:8080\", { address = \"10.0.0.12:8080\", weight = 2 }]
health = { http = \"/healthz\", interval = \"2s\" }

[[session]]
listen = \"0.0.0.0:80\"
protocol = \"http\"
pool = \"web\"
```
";

/// The reference page, in Markdown.
pub fn reference() -> String {
    let mut page = HEAD.to_string();
    for option in File::TABLE.options {
        if let Kind::Table(table) | Kind::Tables(table) = option.kind {
            section(&mut page, table);
        }
    }
    page
}

fn section(page: &mut String, table: &Table) {
    // Here and below: writing to a string cannot fail.
    let _ = write!(page, "\n## `{}`\n\n{}\n\n", table.title, table.help);
    page.push_str("| option | accepted | default | meaning |\n|---|---|---|---|\n");
    for option in table.options {
        let http = if option.http_only { " *http*" } else { "" };
        let _ = writeln!(
            page,
            "| `{}`{http} | {} | {} | {} |",
            option.name,
            escaped(&accepted(option)),
            default(option),
            escaped(option.help)
        );
    }
    for option in table.options {
        choices(page, option);
    }
    for option in table.options {
        if let Kind::Table(inner) | Kind::Tables(inner) | Kind::Briefs(inner, _) = option.kind {
            section(page, inner);
        }
    }
}

fn accepted(option: &Opt) -> String {
    match option.kind {
        Kind::Choice(_) => "see below".into(),
        _ => option.kind.accepted(),
    }
}

fn default(option: &Opt) -> String {
    match option.absent {
        Absent::Required => "required".into(),
        Absent::Default(usual) => format!("`{}`", usual.toml()),
        Absent::Means(meaning) => meaning.into(),
    }
}

fn choices(page: &mut String, option: &Opt) {
    let (choices, number) = match option.kind {
        Kind::Choice(choices) => (choices, ""),
        Kind::CountOr(_, _, words) => (words, "a number or "),
        _ => return,
    };
    let _ = write!(page, "\n`{}` is {number}one of\n\n", option.name);
    for (word, help) in choices.words() {
        let _ = writeln!(page, "- `\"{word}\"`: {help}");
    }
}

/// Escapes bars, which end a cell of a Markdown table.
fn escaped(text: &str) -> String {
    text.replace('|', "\\|")
}
