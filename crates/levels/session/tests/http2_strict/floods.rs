//! Floods of HTTP/2, by the numbers under which they were reported.

use super::*;

/// Rapid reset (CVE-2023-44487).
#[test]
fn a_flood_of_resets_ends_the_connection_and_reaches_few_backends() {
    let backend = HttpBackend::always(Answer::hang());
    let proxy = before(&backend);
    let mut client = Raw::to(proxy.address);
    let mut flood = Vec::new();
    for at in 0..5000 {
        let stream = 1 + 2 * at;
        flood.extend(frame(HEADERS, END_STREAM | END_HEADERS, stream, &block(&GET)));
        flood.extend(frame(RST_STREAM, 0, stream, &CANCEL.to_be_bytes()));
    }
    let mut writer = client.0.try_clone().expect("a descriptor is free");
    let flooding = std::thread::spawn(move || {
        let _ = std::io::Write::write_all(&mut writer, &flood);
    });
    let code = client.read_until(GOAWAY).code();
    assert_eq!(code, ENHANCE_YOUR_CALM);
    assert!(eventually(|| proxy.drops(Reason::Http2Flood) == 1));
    drop(client);
    flooding.join().expect("no panic");
    proxy.assert_nothing_in_flight();
    assert!(backend.requests().len() <= 100, "{}", backend.requests().len());
}

/// The same, by a client that waits until each request is served.
#[test]
fn a_client_that_resets_each_request_once_it_is_served_loses_the_connection() {
    const AT_ONCE: u32 = 20;
    let backend = HttpBackend::always(Answer::hang());
    let proxy = before(&backend);
    let mut client = Raw::to(proxy.address);
    let goaway = (0..200).find_map(|at| {
        let streams = (0..AT_ONCE).map(|one| 1 + 2 * (at * AT_ONCE + one));
        streams.clone().for_each(|stream| {
            client.ask(stream, &GET);
        });
        client.frame(PING, 0, 0, b"12345678");
        loop {
            let frame = client.read()?;
            match frame.kind {
                GOAWAY => return Some((at, frame)),
                PING => break,
                _ => {}
            }
        }
        streams.for_each(|stream| {
            client.frame(RST_STREAM, 0, stream, &CANCEL.to_be_bytes());
        });
        None
    });
    let (at, goaway) = goaway.expect("the connection is ended");
    assert_eq!(goaway.code(), ENHANCE_YOUR_CALM);
    assert!(eventually(|| proxy.drops(Reason::Http2Flood) == 1));
    assert!(at * AT_ONCE < 1000, "{at} times");
    proxy.assert_nothing_in_flight();
}

/// Frames that each want an answer, from a client that reads none (CVE-2019-9512, CVE-2019-9515).
#[test]
fn a_flood_of_pings_or_settings_is_not_read_on_while_its_answers_are_not() {
    let backend = HttpBackend::echo();
    let proxy = before(&backend);
    for (kind, payload) in [(PING, [7; 8].as_slice()), (SETTINGS, &[])] {
        let mut client = Raw::to(proxy.address);
        client.0.set_write_timeout(Some(Duration::from_millis(500))).expect("a time-out");
        let frames = frame(kind, 0, 0, payload).repeat(10_000);
        let mut sent = 0;
        while let Ok(count @ 1..) = std::io::Write::write(&mut client.0, &frames) {
            sent += count;
            assert!(sent < 256 << 20, "it reads on");
        }
    }
}

/// The same frames from a client that reads the answers, and frames without any (CVE-2019-9513).
#[test]
fn a_flood_of_frames_of_no_request_ends_the_connection() {
    let backend = HttpBackend::always(Answer::ok("x"));
    for (kind, stream, payload, count) in [
        (PING, 0, [7; 8].as_slice(), 30_000),
        (SETTINGS, 0, &[], 25_000),
        (PRIORITY, 1, &[0, 0, 0, 3, 7], 25_000),
        (PRIORITY_UPDATE, 0, b"\0\0\0\x01u=7", 20_000),
        (UNKNOWN, 1, &[], 25_000),
        (RST_STREAM, 1, &[0, 0, 0, 8], 25_000),
    ] {
        let proxy = before(&backend);
        let mut client = Raw::to(proxy.address);
        // A request that has ended, which a reset does not end again.
        client.ask(1, &GET).read_until(DATA);
        let mut writer = client.0.try_clone().expect("a descriptor is free");
        let flood = frame(kind, 0, stream, payload).repeat(count);
        let flooding = std::thread::spawn(move || {
            // Fails if the connection has ended.
            let _ = std::io::Write::write_all(&mut writer, &flood);
        });
        assert_eq!(client.read_until(GOAWAY).code(), ENHANCE_YOUR_CALM, "{kind}");
        proxy.assert_drops(&[(Reason::Http2Flood, 1)]);
        // Others are served as before.
        let mut other = Raw::to(proxy.address);
        assert_eq!(other.ask(1, &GET).read_until(DATA).payload, b"x", "{kind}");
        drop(client);
        flooding.join().expect("no panic");
    }
}

/// CVE-2024-27316 and others: a head without an end.
#[test]
fn a_flood_of_continuations_ends_the_connection() {
    let backend = HttpBackend::echo();
    // A literal of 256 MiB (RFC 7541, section 5.1), of which each frame has a part.
    let endless = [&[0, 1, b'a', 127, 129, 255, 255, 127][..], &[b'b'; 16_000]].concat();
    for (name, payload) in [
        ("fields", block(&[("a", "b")]).repeat(100)),
        ("large", block(&[("a", "b")]).repeat(3000)),
        ("empty", Vec::new()),
        ("a literal without an end", endless),
    ] {
        let proxy = before(&backend);
        let mut client = Raw::to(proxy.address);
        client.frame(HEADERS, END_STREAM, 1, &block(&GET));
        let mut writer = client.0.try_clone().expect("a descriptor is free");
        let flooding = std::thread::spawn(move || {
            let one = frame(CONTINUATION, 0, 1, &payload);
            // More than the sockets hold, whatever the length of a frame.
            let frames = one.repeat(1 + 10_000 / one.len());
            (0..100_000).any(|_| std::io::Write::write_all(&mut writer, &frames).is_err())
        });
        assert_eq!(client.read_until(GOAWAY).code(), ENHANCE_YOUR_CALM, "{name}");
        proxy.assert_drops(&[(Reason::Http2Flood, 1)]);
        drop(client);
        assert!(flooding.join().expect("no panic"), "{name}: it was read to the end");
    }
    assert_eq!(backend.requests().len(), 0);
}

/// CVE-2019-9518: DATA without data.
#[test]
fn a_flood_of_empty_data_ends_the_connection() {
    let backend = HttpBackend::echo();
    let proxy = before(&backend);
    let mut client = Raw::to(proxy.address);
    client.frame(HEADERS, END_HEADERS, 1, &block(&changed(&[(":method", "POST")])));
    for _ in 0..20_000 {
        client.frame(DATA, 0, 1, &[]);
    }
    assert_eq!(client.read_until(GOAWAY).code(), ENHANCE_YOUR_CALM);
    assert!(eventually(|| proxy.drops(Reason::Http2Flood) == 1));
    drop(client);
    proxy.assert_nothing_in_flight();
}

/// PRIORITY frames order nothing here.
#[test]
fn priorities_change_nothing() {
    let backend = HttpBackend::always(Answer::ok("x"));
    let proxy = before(&backend);
    let mut client = Raw::to(proxy.address);
    let frames: Vec<u8> = (1..1000u32)
        .flat_map(|at| {
            let on = (2 * ((at + 1) % 7) + 1).to_be_bytes();
            frame(PRIORITY, 0, 2 * at + 1, &[&on[..], &[at as u8]].concat())
        })
        .collect();
    // Not as many as are a flood.
    for _ in 0..10 {
        client.0.write_all(&frames).expect("they are taken");
    }
    client.meet();
    client.ask(1, &GET);
    assert_eq!(client.read_until(DATA).payload, b"x");
    proxy.assert_drops(&[]);
}

/// CVE-2016-6581: a block of one byte for each copy of a long field in the table of fields.
#[test]
fn a_head_that_repeats_a_field_of_the_table_ends_the_connection() {
    let backend = HttpBackend::echo();
    let proxy = before(&backend);
    let mut client = Raw::to(proxy.address);
    client.frame(HEADERS, END_STREAM | END_HEADERS, 1, &indexed_field(2000));
    assert_eq!(client.read_until(GOAWAY).code(), ENHANCE_YOUR_CALM);
    proxy.assert_drops(&[(Reason::Http2Flood, 1)]);
    assert!(backend.requests().is_empty());
    assert_eq!(proxy.ask(common::get("/")).status(), 200);
}

/// Up to four times `head-max` it is answered 431 by `h2`, which counts and shows none of them.
/// `http2_flood_memory.rs` has a flood of these.
#[test]
fn a_smaller_head_that_repeats_a_field_of_the_table_is_refused() {
    let backend = HttpBackend::echo();
    let proxy = before(&backend);
    let mut client = Raw::to(proxy.address);
    client.frame(HEADERS, END_STREAM | END_HEADERS, 1, &indexed_field(20));
    let answer = client.read_until(HEADERS);
    // `:status` is entry 8 of the static table. Its value is a literal in Huffman's code.
    assert_eq!(answer.payload[..2], [0x48, 0x83]);
    assert_eq!(answer.flags, END_STREAM | END_HEADERS);
    client.ask(3, &GET);
    assert_eq!(client.read_until(HEADERS).stream, 3);
    assert_eq!(backend.requests().len(), 1);
}

/// RFC 9113, section 6.9: a window that grows by nothing is an error.
#[test]
fn a_window_update_of_nothing_ends_the_connection() {
    let backend = HttpBackend::always(Answer::hang());
    for stream in [0, 1] {
        let proxy = before(&backend);
        let mut client = Raw::to(proxy.address);
        client.ask(1, &GET).frame(WINDOW_UPDATE, 0, stream, &[0; 4]);
        assert_eq!(client.read_until(GOAWAY).code(), PROTOCOL_ERROR);
        assert!(eventually(|| proxy.drops(Reason::Http2Protocol) == 1));
        proxy.assert_nothing_in_flight();
    }
}

/// CVE-2019-9511, CVE-2019-9517: a client asks for much, grants windows of single bytes or of
/// gigabytes, and reads nothing.
#[test]
fn responses_to_a_client_that_reads_nothing_end() {
    let backend = HttpBackend::always(Answer::pattern(1, 64 << 20));
    for (window, drips) in [(0, true), (i32::MAX as u32, false)] {
        let proxy =
            plan(&backend).front(|front| front.timeouts.idle = Duration::from_secs(1)).start();
        let mut client = Raw::to(proxy.address);
        client.frame(SETTINGS, 0, 0, &[&[0, 4][..], &window.to_be_bytes()].concat());
        client.frame(WINDOW_UPDATE, 0, 0, &(1u32 << 30).to_be_bytes());
        (0..20).for_each(|at| {
            client.ask(2 * at + 1, &GET);
        });
        if drips {
            (0..20).for_each(|at| {
                client.frame(WINDOW_UPDATE, 0, 2 * at + 1, &1u32.to_be_bytes());
            });
        }
        assert!(eventually(|| proxy.drops(Reason::ClientStalled) == 20), "{window}");
        proxy.assert_nothing_in_flight();
    }
}
