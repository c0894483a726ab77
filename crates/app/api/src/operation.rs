//! An operation of the API: a method and a path, with the access, the question and the answer.
//!
//! The files of [`crate::routes`] declare each operation once. The route, the check of roles, the
//! OpenAPI document and the request of the client follow from the declaration.

use std::fmt;
use std::marker::PhantomData;

use axum::http::Method;
use hyper::body::Bytes;
use serde::Serialize;
use serde_json::Value;

use crate::auth::Access;

/// Declares operations: the summary, then `NAME = METHOD path, ACCESS, question => answer;`.
/// Each becomes a constant of this name. The question is `()` for none.
macro_rules! operations {
    ($(
        $(#[doc = $summary:literal])+
        $name:ident = $method:ident $path:literal, $access:ident, $question:ty => $answer:ty;
    )*) => {
        $($(#[doc = $summary])+
        #[doc = concat!("\n\n`", stringify!($method), " ", $path, "`")]
        pub const $name: crate::Operation<$question, $answer> = crate::Operation::new(
            axum::http::Method::$method,
            $path,
            crate::Access::$access,
            concat!($($summary),+),
        );)*
    };
}

/// An operation, which takes a `Q` and answers with an `A`.
pub struct Operation<Q, A> {
    pub(crate) method: Method,
    /// The path. A part in braces stands for a name.
    pub(crate) path: &'static str,
    pub(crate) access: Access,
    summary: &'static str,
    /// The names for the parts in braces, in their order.
    names: Vec<String>,
    types: PhantomData<fn(Q) -> A>,
}

impl<Q, A> Operation<Q, A> {
    pub(crate) const fn new(
        method: Method,
        path: &'static str,
        access: Access,
        summary: &'static str,
    ) -> Operation<Q, A> {
        Operation { method, path, access, summary, names: Vec::new(), types: PhantomData }
    }

    /// The operation on the object with these names: one for each part of the path in braces.
    pub fn of<const N: usize>(self, names: [&str; N]) -> Operation<Q, A> {
        debug_assert_eq!(N, self.path.matches('{').count(), "names of {}", self.path);
        Operation { names: names.map(str::to_owned).to_vec(), ..self }
    }

    /// The operation in one line, for its description.
    pub(crate) fn summary(&self) -> &'static str {
        self.summary.trim_start()
    }

    /// The path of a request.
    fn full_path(&self) -> String {
        let mut names = self.names.iter();
        let part = |part: &str| match part.starts_with('{') {
            true => names.next().map_or_else(|| part.to_owned(), |name| encoded(name)),
            false => part.to_owned(),
        };
        self.path.split('/').map(part).collect::<Vec<_>>().join("/")
    }
}

impl<Q: Serialize, A> Operation<Q, A> {
    /// Target and body of a request. The question of GET and DELETE is the target's query.
    pub(crate) fn request(&self, question: &Q) -> (String, Bytes) {
        let question = serde_json::to_value(question)
            .expect("wire types have string keys and no failing serializer");
        let path = self.full_path();
        match question {
            Value::Null => (path, Bytes::new()),
            question if matches!(self.method, Method::GET | Method::DELETE) => {
                (format!("{path}?{}", query(&question)), Bytes::new())
            }
            question => (path, question.to_string().into()),
        }
    }
}

// Derived, these would need the same of `Q` and `A`.
impl<Q, A> Clone for Operation<Q, A> {
    fn clone(&self) -> Self {
        Operation { method: self.method.clone(), names: self.names.clone(), ..*self }
    }
}

impl<Q, A> fmt::Debug for Operation<Q, A> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} {}", self.method, self.full_path())
    }
}

impl<Q, A> PartialEq for Operation<Q, A> {
    fn eq(&self, other: &Self) -> bool {
        (&self.method, self.path, &self.names) == (&other.method, other.path, &other.names)
    }
}

impl<Q, A> Eq for Operation<Q, A> {}

/// A question as a query: its fields, without those that are `null`.
fn query(question: &Value) -> String {
    let fields = question.as_object().into_iter().flatten().filter(|(_, value)| !value.is_null());
    let field = |(name, value): (&String, &Value)| match value {
        Value::String(text) => format!("{name}={}", encoded(text)),
        other => format!("{name}={}", encoded(&other.to_string())),
    };
    fields.map(field).collect::<Vec<_>>().join("&")
}

/// Percent-encodes one path segment: all characters except RFC 3986's unreserved ones.
fn encoded(segment: &str) -> String {
    segment
        .bytes()
        .map(|byte| match byte {
            b'a'..=b'z' | b'A'..=b'Z' | b'0'..=b'9' | b'-' | b'.' | b'_' | b'~' => {
                char::from(byte).to_string()
            }
            _ => format!("%{byte:02X}"),
        })
        .collect()
}

#[cfg(test)]
mod tests {
    use crate::routes::{backends, packet};
    use crate::wire::SetWeight;
    use crate::wire::packet::FlowQuestion;

    #[test]
    fn names_of_any_characters_fit_in_one_segment() {
        let (target, body) = backends::DRAIN.of(["web", "[::1]:80/x y"]).request(&());
        assert_eq!(target, "/v1/pools/web/backends/%5B%3A%3A1%5D%3A80%2Fx%20y/drain");
        assert!(body.is_empty());
    }

    #[test]
    fn a_question_is_the_query_of_get_and_the_body_of_put() {
        let (source, vip) = ("192.0.2.7:1".to_owned(), "192.0.2.1:80/tcp".to_owned());
        let question = FlowQuestion { source, vip, mac: None };
        let (target, body) = packet::FLOW.request(&question);
        assert_eq!(target, "/v1/flow?source=192.0.2.7%3A1&vip=192.0.2.1%3A80%2Ftcp");
        assert!(body.is_empty());
        let (target, body) = backends::WEIGHT.of(["web", "b"]).request(&SetWeight { weight: 7 });
        assert_eq!(target, "/v1/pools/web/backends/b/weight");
        assert_eq!(body, r#"{"weight":7}"#);
    }
}
