//! Paths with responses that hold up those behind them.

use std::hash::{BuildHasher, RandomState};

/// Paths that are remembered. One that has the place of another replaces it.
const PATHS: usize = 256;
/// A path goes alone if more than one of so many of its last requests held others up.
const RARE: u16 = 32;
/// Older requests count half after so many.
const REQUESTS_MAX: u16 = 4096;

/// Identifies a path: a hash of the target without its query.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct PathId(u32);

impl PathId {
    /// The path of a request, which begins with its request line.
    pub(super) fn of(request: &[u8], hasher: &RandomState) -> PathId {
        let target = request.splitn(3, |byte| *byte == b' ').nth(1).unwrap_or_default();
        let path = target.split(|byte| *byte == b'?').next().unwrap_or_default();
        PathId(hasher.hash_one(path) as u32)
    }
}

/// The paths of one backend with slow or large responses, on one thread.
///
/// Only paths that held others up once are here, so that a backend without such responses costs
/// nothing.
#[derive(Default)]
pub(super) struct Paths(Option<Box<[Path; PATHS]>>);

#[derive(Clone, Copy, Default)]
struct Path {
    id: PathId,
    requests: u16,
    held_up: u16,
}

impl Paths {
    /// Counts a request, and says whether it is to have a session of its own.
    ///
    /// While its path goes alone nothing shows whether its responses are still slow, so that after
    /// [`RARE`] requests one shares a session again.
    pub(super) fn goes_alone(&mut self, id: PathId) -> bool {
        let Some(paths) = &mut self.0 else { return false };
        let path = &mut paths[id.0 as usize % PATHS];
        if path.id != id || path.held_up == 0 {
            return false;
        }
        path.requests += 1;
        if path.requests == REQUESTS_MAX {
            (path.requests, path.held_up) = (path.requests / 2, path.held_up / 2);
        }
        path.requests < path.held_up.saturating_mul(RARE)
    }

    /// Notes that a response held up others, or would have.
    pub(super) fn note(&mut self, id: PathId) {
        let paths = self.0.get_or_insert_with(|| Box::new([Path::default(); PATHS]));
        let path = &mut paths[id.0 as usize % PATHS];
        if path.id != id {
            *path = Path { id, requests: 1, held_up: 0 };
        }
        path.held_up += 1;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn id(request: &str, hasher: &RandomState) -> PathId {
        PathId::of(request.as_bytes(), hasher)
    }

    #[test]
    fn a_path_is_the_target_without_its_query() {
        let hasher = RandomState::new();
        let plain = id("GET /a HTTP/1.1\r\n", &hasher);
        assert_eq!(plain, id("GET /a?b=c HTTP/1.1\r\n", &hasher));
        assert_eq!(plain, id("DELETE /a HTTP/1.0\r\n", &hasher));
        assert_ne!(plain, id("GET /b HTTP/1.1\r\n", &hasher));
        assert_eq!(id("GET", &hasher), id("", &hasher));
    }

    #[test]
    fn a_slow_path_shares_a_session_for_one_request_in_32() {
        let mut paths = Paths::default();
        let (slow, other) = (PathId(1), PathId(2));
        assert!(!paths.goes_alone(slow));
        paths.note(slow);
        let mut shared = 0;
        for _ in 0..10_000 {
            assert!(!paths.goes_alone(other));
            if !paths.goes_alone(slow) {
                shared += 1;
                paths.note(slow);
            }
        }
        assert!((250..=400).contains(&shared), "{shared}");
    }

    #[test]
    fn a_path_with_a_slow_response_in_a_hundred_shares_sessions() {
        let mut paths = Paths::default();
        let slow = PathId(1);
        paths.note(slow);
        let mut alone = 0;
        for request in 0..10_000 {
            match paths.goes_alone(slow) {
                true => alone += 1,
                false if request % 100 == 0 => paths.note(slow),
                false => {}
            }
        }
        assert!(alone < 100, "{alone}");
    }

    #[test]
    fn a_path_that_became_quick_shares_sessions_again() {
        let mut paths = Paths::default();
        let path = PathId(1);
        for _ in 0..100 {
            paths.note(path);
        }
        let alone = (0..10_000).filter(|_| paths.goes_alone(path)).count();
        assert!(alone < 100 * usize::from(RARE), "{alone}");
        assert!(!paths.goes_alone(path));
    }
}
