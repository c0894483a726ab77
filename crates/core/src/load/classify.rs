use super::RequestClass;

/// Which requests are of which class, as the operator says it.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ClassRules {
    rules: Vec<ClassRule>,
}

/// One rule. What it leaves open fits every request.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ClassRule {
    /// What fitting requests are.
    pub class: RequestClass,
    /// Methods, as they are written in requests; empty: any.
    pub methods: Vec<String>,
    /// Beginnings of the target's path; empty: any.
    pub paths: Vec<String>,
    /// Bytes of the request's body at least. A body of unknown length has any number.
    pub body_bytes_min: Option<u64>,
}

impl ClassRules {
    /// The first rule that fits decides; a request that none fits is a small transfer.
    pub fn new(rules: Vec<ClassRule>) -> ClassRules {
        ClassRules { rules }
    }

    /// The class of a request. O(rules), no allocation.
    ///
    /// `body_bytes` is `None` if the length is not known before the body's end.
    pub fn classify(&self, method: &str, path: &str, body_bytes: Option<u64>) -> RequestClass {
        let fits = |rule: &&ClassRule| rule.fits(method, path, body_bytes);
        self.rules.iter().find(fits).map_or_else(RequestClass::default, |rule| rule.class)
    }
}

impl ClassRule {
    fn fits(&self, method: &str, path: &str, body_bytes: Option<u64>) -> bool {
        let any_or = |list: &[String], fits: &dyn Fn(&str) -> bool| {
            list.is_empty() || list.iter().any(|one| fits(one))
        };
        any_or(&self.methods, &|one| one == method)
            && any_or(&self.paths, &|one| path.starts_with(one))
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
            assert_eq!(rules.classify(method, path, bytes), class, "{method} {path} {bytes:?}");
        }
    }

    #[test]
    fn without_rules_everything_is_a_small_transfer() {
        assert_eq!(ClassRules::default().classify("POST", "/", None), SmallTransfer);
    }
}
