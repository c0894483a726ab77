/// A count with its noun: `1 backend`, `2 backends`. The plural adds an `s`.
pub fn counted(count: u64, noun: &str) -> String {
    let plural = if count == 1 { "" } else { "s" };
    format!("{count} {noun}{plural}")
}

#[cfg(test)]
mod tests {
    #[test]
    fn one_is_singular() {
        let shown = [0, 1, 2].map(|count| super::counted(count, "backend"));
        assert_eq!(shown, ["0 backends", "1 backend", "2 backends"]);
    }
}
