use super::RequestClass;
use super::path::{normalised, prefix};

/// The operator's rules that assign requests to classes.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ClassRules {
    rules: Vec<ClassRule>,
    /// The paths of each rule, in the form with which a request's path is compared.
    prefixes: Vec<Vec<Vec<u8>>>,
}

/// One rule. An empty condition matches every request.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ClassRule {
    /// The class of matching requests.
    pub class: RequestClass,
    /// Methods, spelled as in requests; empty: any.
    pub methods: Vec<String>,
    /// Prefixes of the target's path, whatever the client's spelling; empty: any.
    pub paths: Vec<String>,
    /// Least number of bytes in the request's body. A body of unknown length always matches.
    pub body_bytes_min: Option<u64>,
}

impl ClassRules {
    /// The first matching rule decides. A request without a matching rule is a small transfer.
    pub fn new(rules: Vec<ClassRule>) -> ClassRules {
        let paths = |rule: &ClassRule| rule.paths.iter().map(|path| prefix(path)).collect();
        ClassRules { prefixes: rules.iter().map(paths).collect(), rules }
    }

    /// The class of a request, by its target's path in normal form, so that another spelling of a
    /// path does not change the class. O(rules). `scratch` is a reusable buffer, which grows at
    /// most to the target's length.
    /// `body_bytes` is `None` if the length is not known before the body's end.
    pub fn classify(
        &self,
        method: &str,
        target: &str,
        body_bytes: Option<u64>,
        scratch: &mut Vec<u8>,
    ) -> RequestClass {
        let path = normalised(target.as_bytes(), scratch);
        let rules = self.rules.iter().zip(&self.prefixes);
        let mut fitting = rules.filter(|(rule, paths)| rule.fits(method, path, paths, body_bytes));
        fitting.next().map_or_else(RequestClass::default, |(rule, _)| rule.class)
    }
}

impl ClassRule {
    fn fits(&self, method: &str, path: &[u8], paths: &[Vec<u8>], body_bytes: Option<u64>) -> bool {
        (self.methods.is_empty() || self.methods.iter().any(|one| one == method))
            && (paths.is_empty() || paths.iter().any(|one| path.starts_with(one)))
            && self.body_bytes_min.is_none_or(|min| body_bytes.is_none_or(|bytes| bytes >= min))
    }
}

#[cfg(test)]
mod tests {
    use super::RequestClass::{Computing, LargeTransfer, Light, SmallTransfer};
    use super::*;

    fn rule(class: RequestClass, methods: &[&str], paths: &[&str], min: Option<u64>) -> ClassRule {
        let texts = |list: &[&str]| list.iter().map(|one| one.to_string()).collect();
        ClassRule { class, methods: texts(methods), paths: texts(paths), body_bytes_min: min }
    }

    #[test]
    fn the_first_rule_that_fits_in_every_part_decides() {
        let rules = ClassRules::new(vec![
            rule(Light, &["HEAD", "OPTIONS"], &[], None),
            rule(Computing, &["POST"], &["/render/", "/resize"], None),
            rule(LargeTransfer, &["PUT", "POST"], &[], Some(1 << 20)),
            rule(LargeTransfer, &["GET"], &["/video/"], None),
        ]);
        let rows = [
            ("HEAD", "/video/a", Some(0), Light),
            ("POST", "/render/a", Some(2 << 20), Computing),
            ("POST", "/resize?w=1", Some(10), Computing),
            ("GET", "/render/a", Some(0), SmallTransfer),
            ("PUT", "/a", Some(1 << 20), LargeTransfer),
            ("PUT", "/a", Some((1 << 20) - 1), SmallTransfer),
            ("PUT", "/a", None, LargeTransfer),
            ("GET", "/video/a", Some(0), LargeTransfer),
            ("get", "/video/a", Some(0), SmallTransfer),
        ];
        for (method, path, bytes, class) in rows {
            let found = rules.classify(method, path, bytes, &mut Vec::new());
            assert_eq!(found, class, "{method} {path} {bytes:?}");
        }
    }

    #[test]
    fn without_rules_everything_is_a_small_transfer() {
        let found = ClassRules::default().classify("POST", "/", None, &mut Vec::new());
        assert_eq!(found, SmallTransfer);
    }

    #[test]
    fn no_spelling_of_a_path_gives_another_class() {
        let rules = ClassRules::new(vec![
            rule(Light, &[], &["/light"], None),
            rule(Computing, &[], &["/work", "/a b/"], None),
        ]);
        for spelt in ["/work", "//work", "/./work", "/%77ork", "/light/../work", "/x/../a%20b/c"] {
            let found = rules.classify("GET", spelt, None, &mut Vec::new());
            assert_eq!(found, Computing, "{spelt}");
        }
    }
}
