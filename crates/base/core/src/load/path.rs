//! The path of a request as a server interprets it, independent of the client's spelling.

/// The path of `target` in normal form, followed by the unchanged rest (from `?` or `#` on).
///
/// Percent-encoded bytes are decoded once, repeated slashes become one, and the segments `.` and
/// `..` are resolved; `..` at the root stays there. O(bytes of `target`). `scratch` is cleared and
/// written only if the path is not in normal form already.
///
/// # Source
/// RFC 3986, sections 5.2.4 and 6.2.2; the merging of slashes and the order (decode, then resolve)
/// are nginx's (`ngx_http_parse_complex_uri`), so that `%2e%2e%2f` is resolved, too.
pub(super) fn normalised<'a>(target: &'a [u8], scratch: &'a mut Vec<u8>) -> &'a [u8] {
    let end = target.iter().position(|byte| matches!(byte, b'?' | b'#')).unwrap_or(target.len());
    let (path, rest) = target.split_at(end);
    let is_odd = |pair: &[u8]| matches!(pair, b"//" | b"/.");
    if path.first() != Some(&b'/') || (!path.contains(&b'%') && !path.windows(2).any(is_odd)) {
        return target;
    }
    scratch.clear();
    decode(path, scratch);
    resolve(scratch);
    scratch.extend_from_slice(rest);
    scratch
}

/// A configured prefix of paths, in the form of [`normalised`]: decoded, with single slashes. Dots
/// stay, because `/.` may be meant as a prefix of `/.well-known/`.
pub(super) fn prefix(stated: &str) -> Vec<u8> {
    let mut decoded = Vec::with_capacity(stated.len());
    decode(stated.as_bytes(), &mut decoded);
    decoded.dedup_by(|one, before| *one == b'/' && *before == b'/');
    decoded
}

/// Appends `path` with percent-encoded bytes decoded. A `%` without two digits stays.
fn decode(path: &[u8], out: &mut Vec<u8>) {
    let digit = |at: usize| path.get(at).and_then(|byte| (*byte as char).to_digit(16));
    let mut at = 0;
    while at < path.len() {
        match (path[at], digit(at + 1), digit(at + 2)) {
            (b'%', Some(high), Some(low)) => {
                out.push((high * 16 + low) as u8);
                at += 3;
            }
            (byte, ..) => {
                out.push(byte);
                at += 1;
            }
        }
    }
}

/// Merges slashes and resolves dot segments of a path that begins with a slash, in place.
fn resolve(path: &mut Vec<u8>) {
    // Before each segment is read, the written part ends with a slash. It is never longer than the
    // read part.
    let (mut read, mut written) = (1, 1);
    while read <= path.len() {
        let end = path[read..].iter().position(|byte| *byte == b'/').map(|length| read + length);
        let segment = read..end.unwrap_or(path.len());
        match &path[segment.clone()] {
            b"" | b"." => {}
            b".." => {
                let parent = path[..written - 1].iter().rposition(|byte| *byte == b'/');
                written = parent.map_or(1, |slash| slash + 1);
            }
            _ => {
                let length = segment.len();
                path.copy_within(segment, written);
                written += length;
                if end.is_some() {
                    path[written] = b'/';
                    written += 1;
                }
            }
        }
        let Some(slash) = end else { break };
        read = slash + 1;
    }
    path.truncate(written);
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn of(target: &str) -> String {
        let mut scratch = b"left over".to_vec();
        String::from_utf8_lossy(normalised(target.as_bytes(), &mut scratch)).into_owned()
    }

    #[test]
    fn spellings_of_a_path_have_one_normal_form() {
        for (spelt, normal) in [
            ("/work", "/work"),
            ("//work", "/work"),
            ("///work//a/", "/work/a/"),
            ("/./work", "/work"),
            ("/%77ork", "/work"),
            ("/%2e/work", "/work"),
            ("/light/../work", "/work"),
            ("/light/%2E%2e/work", "/work"),
            ("/light%2f..%2Fwork", "/work"),
            ("/../../work", "/work"),
            ("/work/.", "/work/"),
            ("/work/..", "/"),
            ("/work/x/..", "/work/"),
            ("/..", "/"),
            ("/", "/"),
            ("//", "/"),
            ("/.well-known/x", "/.well-known/x"),
            ("/a/...", "/a/..."),
            ("/%", "/%"),
            ("/%7", "/%7"),
            ("/%zz/../b", "/b"),
            ("/%2577ork", "/%77ork"),
            ("//work?a=//b/../c%20", "/work?a=//b/../c%20"),
            ("/a/..?x", "/?x"),
            ("/a#/../b", "/a#/../b"),
            ("*", "*"),
            ("", ""),
            ("?x", "?x"),
        ] {
            assert_eq!(of(spelt), normal, "{spelt}");
        }
    }

    #[test]
    fn a_stated_beginning_keeps_its_dots() {
        for (stated, expected) in
            [("/a b/", "/a b/"), ("/a%20b/", "/a b/"), ("//a//", "/a/"), ("/.", "/.")]
        {
            assert_eq!(prefix(stated), expected.as_bytes(), "{stated}");
        }
    }

    /// Written from the definition: segments on a stack.
    fn naive(path: &str) -> String {
        let mut decoded = Vec::new();
        decode(path.as_bytes(), &mut decoded);
        let decoded = String::from_utf8_lossy(&decoded).into_owned();
        let segments: Vec<&str> = decoded[1..].split('/').collect();
        let mut stack: Vec<&str> = Vec::new();
        for segment in &segments {
            match *segment {
                "" | "." => {}
                ".." => {
                    stack.pop();
                }
                name => stack.push(name),
            }
        }
        let is_folder = matches!(segments.last(), Some(&("" | "." | "..")));
        let end = if is_folder && !stack.is_empty() { "/" } else { "" };
        format!("/{}{end}", stack.join("/"))
    }

    proptest! {
        #[test]
        fn the_normal_form_is_that_of_the_definition(
            parts in prop::collection::vec(
                prop::sample::select(vec!["/", "//", ".", "..", "a", "%2e", "%2f", "%41", "%"]),
                0..12,
            )
        ) {
            let path = format!("/{}", parts.concat());
            prop_assert_eq!(of(&path), naive(&path));
        }
    }
}
