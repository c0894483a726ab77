/// What a command template may name, with its value.
pub(crate) struct Values<'a>(pub(crate) &'a [(&'static str, &'a str)]);

/// The names of a command template.
pub(crate) const NAMES: [&str; 5] = ["address", "name", "pool", "port", "size"];

/// The first `{word}` that is none of [`NAMES`]. Braces around anything but lower-case letters are themselves.
pub(crate) fn unknown(template: &str) -> Option<&str> {
    placeholders(template).map(|(_, word)| word).find(|word| !NAMES.contains(word))
}

/// Whether a name is used.
pub(crate) fn uses(template: &str, name: &str) -> bool {
    placeholders(template).any(|(_, word)| word == name)
}

/// The template with values for names.
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

/// Every `{word}`, and where its brace is.
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
            ("{name}", "{port}"), // a value is not read again
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
