//! Errors of `hash-by` and `[pool.sticky]`.

use super::bed::{in_pool, said};

#[test]
fn affinity_is_by_a_cookie_or_a_hash() {
    for good in [
        "scheduler = 'source-hash'\nhash-by = 'header:X-User'",
        "scheduler = 'source-hash'\nhash-by = 'query:user'",
        "sticky = {}",
        "sticky = { cookie = 'stay', path = '/a', max-age = '1h', same-site = 'none', secret = '/seed' }",
    ] {
        assert_eq!(said(&in_pool(good)), "", "{good}");
    }
    for (options, expected) in [
        ("hash-by = 'header:a'", "hash-by: has no effect: the scheduler does not hash requests"),
        ("scheduler = 'source-hash'\nhash-by = 'path'", "'path' is not a part of requests"),
        ("sticky = { cookie = 'a b' }", "'a b' is not a name of a cookie"),
        ("sticky = { path = 'a' }", "'a' is not a path of a cookie"),
        ("sticky = { path = '/;a' }", "'/;a' is not a path of a cookie"),
        ("sticky = { secret = '/short' }", "\"/short\" holds 10 characters; accepted: 16 or more"),
        ("sticky = { secret = '/none' }", "\"/none\" cannot be read"),
    ] {
        let found = said(&in_pool(options));
        assert!(found.contains(expected), "{options}\n{found}\nlacks: {expected}");
    }
}
