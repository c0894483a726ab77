/// Placeholder names with their values.
pub(crate) struct Values<'a>(pub(crate) &'a [(&'static str, &'a str)]);

/// The placeholders that a command template may use.
pub(crate) const NAMES: [&str; 5] = ["address", "name", "pool", "port", "size"];

/// The first `{word}` that is not in [`NAMES`]. Braces around anything but lower-case letters are
/// ordinary text.
pub(crate) fn unknown(template: &str) -> Option<&str> {
    placeholders(template).map(|(_, word)| word).find(|word| !NAMES.contains(word))
}

/// True if the template uses the placeholder `name`.
pub(crate) fn uses(template: &str, name: &str) -> bool {
    placeholders(template).any(|(_, word)| word == name)
}

/// Replaces the placeholders of the template by their values.
pub(crate) fn fill(template: &str, values: &Values<'_>) -> String {
    let mut filled = String::with_capacity(template.len());
    let mut done = 0;
    for (at, word) in placeholders(template) {
        let Some((_, value)) = values.0.iter().find(|(name, _)| *name == word) else { continue };
        filled += &template[done..at];
        filled += value;
        done = at + word.len() + 2;
    }
    filled + &template[done..]
}

/// Every `{word}`, with the offset of its brace.
fn placeholders(template: &str) -> impl Iterator<Item = (usize, &str)> {
    template.match_indices('{').filter_map(|(at, _)| {
        let (word, _) = template[at + 1..].split_once('}')?;
        let is_word = !word.is_empty() && word.bytes().all(|byte| byte.is_ascii_lowercase());
        is_word.then_some((at, word))
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_filled_and_other_braces_stay() {
        let values = Values(&[("port", "80"), ("name", "{port}")]);
        let rows = [
            ("--listen=:{port}", "--listen=:80"),
            ("{port}{port}", "8080"),
            ("{name}", "{port}"), // values are not expanded again
            (r#"{"port": 1}"#, r#"{"port": 1}"#),
            ("{Port} {} {", "{Port} {} {"),
            ("{{port}}", "{80}"),
            ("é{port}é", "é80é"),
        ];
        for (template, expected) in rows {
            assert_eq!(fill(template, &values), expected);
        }
    }

    #[test]
    fn a_misspelt_name_is_found() {
        assert_eq!(unknown("{name} {prot}"), Some("prot"));
        assert_eq!(unknown(r#"{"a": {port}}"#), None);
        assert!(uses("a{port}", "port") && !uses("port", "port"));
    }
}
