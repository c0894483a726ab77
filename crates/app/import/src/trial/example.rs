//! A text that a regular expression matches.

use regex_syntax::hir::{Class, Hir, HirKind};

/// Most bytes of an example.
const LENGTH_MAX: usize = 200;

/// A short text that meets an expression; `None` if none is found.
pub(super) fn of(expression: &str) -> Option<String> {
    let hir = regex_syntax::parse(expression).ok()?;
    let mut text = String::new();
    write(&hir, &mut text)?;
    is_met(expression, &text).then_some(text)
}

/// A path that meets an expression.
pub(super) fn path(expression: &str) -> Option<String> {
    let text = of(expression)?;
    let paths = match text.starts_with('/') {
        true => vec![text],
        false => vec![format!("/try{text}"), format!("/{text}")],
    };
    paths.into_iter().find(|it| is_met(expression, it))
}

fn is_met(expression: &str, text: &str) -> bool {
    regex::Regex::new(expression).is_ok_and(|it| it.is_match(text))
}

/// Writes the shortest choice of each part. Assertions are left to the test of the result.
fn write(hir: &Hir, out: &mut String) -> Option<()> {
    match hir.kind() {
        HirKind::Empty | HirKind::Look(_) => {}
        HirKind::Literal(literal) => out.push_str(std::str::from_utf8(&literal.0).ok()?),
        HirKind::Class(class) => out.push(character(class)?),
        HirKind::Capture(group) => write(&group.sub, out)?,
        HirKind::Concat(all) => all.iter().try_for_each(|it| write(it, out))?,
        HirKind::Alternation(all) => write(all.first()?, out)?,
        HirKind::Repetition(part) => (0..part.min).try_for_each(|_| write(&part.sub, out))?,
    }
    (out.len() <= LENGTH_MAX).then_some(())
}

/// A character of a class: a small letter, a digit, or another one that is visible.
fn character(class: &Class) -> Option<char> {
    let has = |wanted: u8| match class {
        Class::Unicode(all) => {
            all.iter().any(|it| (it.start()..=it.end()).contains(&char::from(wanted)))
        }
        Class::Bytes(all) => all.iter().any(|it| (it.start()..=it.end()).contains(&wanted)),
    };
    (b'a'..=b'z').chain(b'0'..=b'9').chain(b'!'..=b'~').find(|it| has(*it)).map(char::from)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_example_meets_its_expression() {
        for (expression, example) in [
            ("^/api/v[0-9]+$", Some("/api/v0")),
            (r"\.(jpg|png)$", Some("/try.jpg")),
            ("(?i)^/Img", Some("/img")),
            ("^/(de|fr)/[^/]{2}", Some("/de/aa")),
            (r"^/a\b.*$", Some("/a")),
            ("admin", Some("/tryadmin")),
            ("^[^/]", None),
            ("^/x{1000}", None),
            ("(", None),
        ] {
            assert_eq!(path(expression).as_deref(), example, "{expression}");
        }
    }
}
