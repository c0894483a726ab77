//! Affinity of clients to backends, by cookie and by hash.

mod common;

use std::collections::HashMap;
use std::sync::atomic::Ordering::Relaxed;

use common::{Plan, Proxy, both_upstreams, request};
use equipoise_core::SchedulerKind;
use equipoise_session::config::{HashBy, StickyCookie, Upstream};
use equipoise_testkit::{Answer, HttpBackend, Response};

both_upstreams! {
    a_cookie_brings_a_client_back_and_is_set_once,
    a_client_of_a_backend_that_is_gone_gets_another_cookie,
    requests_with_one_value_go_to_one_backend,
}

fn backends() -> Vec<HttpBackend> {
    ["a", "b", "c"].into_iter().map(|name| HttpBackend::always(Answer::ok(name))).collect()
}

fn sticky(mode: Upstream, backends: &[HttpBackend]) -> Proxy {
    let addresses: Vec<_> = backends.iter().map(HttpBackend::address).collect();
    let cookie = StickyCookie {
        name: "stay".into(),
        attributes: "; Path=/; HttpOnly; SameSite=Lax".into(),
        seed: 7,
    };
    Plan::new(mode, &addresses).pool(|pool| pool.sticky = Some(cookie)).start()
}

/// The name and the value of the cookie that a response sets.
fn cookie(response: &Response) -> Option<String> {
    let (cookie, attributes) = response.header("set-cookie")?.split_once(';')?;
    assert_eq!(attributes, " Path=/; HttpOnly; SameSite=Lax");
    Some(cookie.to_owned())
}

fn ask(proxy: &Proxy, cookie: &str) -> Response {
    proxy.ask(request("GET", "/", &format!("Cookie: x=y; {cookie}\r\n")))
}

fn a_cookie_brings_a_client_back_and_is_set_once(mode: Upstream) {
    let backends = backends();
    let proxy = sticky(mode, &backends);
    let mut seen = HashMap::new();
    for _ in 0..3 {
        let first = proxy.ask(request("GET", "/", ""));
        let cookie = cookie(&first).expect("the first response sets it");
        for _ in 0..4 {
            let again = ask(&proxy, &cookie);
            assert_eq!((again.text(), again.header("set-cookie")), (first.text(), None));
        }
        seen.insert(first.text(), cookie);
    }
    assert_eq!(seen.len(), 3, "new clients are spread: {seen:?}");
    for wrong in ["stay=", "stay=a", "stay=00000000000000zz", "stay=0000000000000000"] {
        let response = ask(&proxy, wrong);
        assert!(cookie(&response).is_some_and(|it| seen.values().any(|known| *known == it)));
    }
}

fn a_client_of_a_backend_that_is_gone_gets_another_cookie(mode: Upstream) {
    let backends = backends();
    let mut proxy = sticky(mode, &backends);
    let first = proxy.ask(request("GET", "/", ""));
    let old = cookie(&first).expect("the first response sets it");
    let gone = backends.iter().position(|it| it.requests().len() == 1).expect("one served it");
    let view = proxy.backends.remove(gone);
    proxy.publish().expect("nothing is bound");
    let second = ask(&proxy, &old);
    let new = cookie(&second).expect("another backend");
    assert_ne!((second.text(), &new), (first.text(), &old));
    assert_eq!(ask(&proxy, &new).text(), second.text());
    // It is back: the old cookie is good again.
    view.live.cut.store(false, Relaxed);
    proxy.backends.insert(gone, view);
    proxy.publish().expect("nothing is bound");
    assert_eq!(ask(&proxy, &old).text(), first.text());
}

fn requests_with_one_value_go_to_one_backend(mode: Upstream) {
    let backends = backends();
    let addresses: Vec<_> = backends.iter().map(HttpBackend::address).collect();
    for (by, target, lines) in [
        (HashBy::Header("x-user".into()), "/", "X-User: USER\r\n"),
        (HashBy::Cookie("user".into()), "/", "Cookie: a=b; user=USER\r\n"),
        (HashBy::Query("user".into()), "/?user=USER", ""),
    ] {
        let plan = Plan::new(mode, &addresses).scheduler(SchedulerKind::SourceHash);
        let proxy = plan.pool(|pool| pool.hash_by = by).start();
        let ask = |user: &str| {
            let request = request("GET", target, lines).replace("USER", user);
            proxy.ask(request).text()
        };
        let mut seen: HashMap<String, u32> = HashMap::new();
        for user in 0..30 {
            let first = ask(&user.to_string());
            assert_eq!(ask(&user.to_string()), first);
            *seen.entry(first).or_default() += 1;
        }
        assert_eq!(seen.len(), 3, "values are spread: {seen:?}");
    }
}
