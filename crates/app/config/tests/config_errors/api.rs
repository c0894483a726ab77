//! Messages about `[api]`.

use crate::bed::said;

#[test]
fn missing_duplicate_invalid_and_exposed_api_tokens_are_reported() {
    let hash = "a".repeat(64);
    let token = |more: &str| format!("[[api.token]]\nname = 't'\nrole = 'read'\n{more}");
    let twice = |second: &str| {
        format!(
            "{}\n[[api.token]]\n{second}\nrole = 'admin'\nfile = '/token'",
            token("file = '/token'")
        )
    };
    let said = |text: &str| said(&format!("session = []\n{text}"));
    assert_eq!(said(&token("file = '/token'")), "");
    assert_eq!(said(&token(&format!("hash = 'sha256:{hash}'"))), "");
    let remote = format!("[api]\nlisten = '0.0.0.0:9909'\n{}", token("file = '/token'"));
    assert_eq!(
        said(&remote),
        "f:3:10: warning: api.listen: \"0.0.0.0:9909\" can be reached from other machines, and tokens go there in the clear; accepted without this warning: `tls`, or a loopback address"
    );
    for (text, expected) in [
        (
            token(""),
            "f:2:1: api.token.t.file: missing; accepted: `file`, a path to a file with the token, or `hash`, its digest (equipoise api-token FILE creates both)",
        ),
        (
            token("file = '/none'"),
            "f:5:8: api.token.t.file: \"/none\" cannot be read: No such file or directory; accepted: a file with the token",
        ),
        (
            token("file = '/short'"),
            "f:5:8: api.token.t.file: \"/short\" is not a token's file: it holds a token of 10 characters; accepted: 32 to 1024, at random (equipoise api-token FILE)",
        ),
        (
            token("file = '/open'"),
            "f:5:8: warning: api.token.t.file: \"/open\" has the mode 0644, so users besides its owner and group have access to the token; accepted: 0600 or 0640 (chmod o-rwx,g-w /open)",
        ),
        (
            token("hash = 'md5:1'"),
            "f:5:8: api.token.t.hash: 'md5:1' is not a token's digest; accepted: \"sha256:\" and 64 hexadecimal digits (equipoise api-token FILE prints it)",
        ),
        (
            token(&format!("file = '/token'\nhash = 'sha256:{hash}'")),
            "f:6:8: api.token.t.hash: `file` is given too; accepted: one of the two",
        ),
        (
            twice("name = 'u'"),
            "f:6:1: api.token.u: the same token as that of `t`; accepted: a different token, so that the audit log can distinguish them (equipoise api-token FILE creates one)",
        ),
    ] {
        assert_eq!(said(&text), expected, "{text}");
    }
    assert!(
        said(&twice("name = 't'")).contains("\"t\" is in use, on line 3"),
        "{}",
        said(&twice("name = 't'"))
    );
}
