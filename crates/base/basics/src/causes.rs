use std::error::Error;

/// The text of an error with its causes, in one line. It leaves out a cause that the text before
/// already contains.
pub fn with_causes(error: &dyn Error) -> String {
    let mut text = error.to_string();
    let mut cause = error.source();
    while let Some(error) = cause {
        let more = error.to_string();
        if !text.contains(&more) {
            text.push_str(": ");
            text.push_str(&more);
        }
        cause = error.source();
    }
    text
}

#[cfg(test)]
mod tests {
    use std::fmt;

    use super::*;

    #[derive(Debug)]
    struct Chained(&'static str, Option<Box<Chained>>);

    impl fmt::Display for Chained {
        fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
            f.write_str(self.0)
        }
    }

    impl Error for Chained {
        fn source(&self) -> Option<&(dyn Error + 'static)> {
            self.1.as_deref().map(|cause| cause as &dyn Error)
        }
    }

    #[test]
    fn an_error_text_contains_each_cause_once() {
        let refused = Chained("connection refused", None);
        let inner = Chained("cannot connect: connection refused", Some(Box::new(refused)));
        let outer = Chained("no answer", Some(Box::new(inner)));
        assert_eq!(with_causes(&outer), "no answer: cannot connect: connection refused");
    }
}
