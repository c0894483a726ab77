//! Tests of the option tables. Tests of messages are in tests/config_errors/.

mod change;
mod documents;
mod every_table;

use std::collections::BTreeSet;

use equipoise_session::config::checks::HttpCheck;
use equipoise_session::config::{
    ActiveHealth, Concurrency, FrontDoor, HealthCheck, PassiveHealth, PoolOptions, Protocol,
};

use self::change::{every_table_with, sample};
use self::every_table::{EVERY_TABLE, outcome, parsed};
use super::key::Options as _;
use super::option::{Absent, Choice, Kind, Opt, Table, Usual};
use super::*;

/// Calls `see` for every table and option of the file.
fn each_option(table: &'static Table, see: &mut dyn FnMut(&'static Table, &'static Opt)) {
    for option in table.options {
        match option.kind {
            Kind::Table(inner) | Kind::Tables(inner) | Kind::Briefs(inner, _) => {
                each_option(inner, see)
            }
            _ => see(table, option),
        }
    }
}

#[test]
fn every_option_changes_the_configuration() {
    let base = parsed(EVERY_TABLE).config;
    each_option(tables::File::TABLE, &mut |table, option| {
        match (table.title, option.name) {
            // It permits something, and changes nothing by itself.
            (_, "allow-remote" | "terms-agreed") => return,
            // Another key does not match the certificate.
            ("[dispatch.tls]" | "[pool.tls]", "key") => return,
            ("[[session.tls.certificates]]" | "[[api.tls.certificates]]", "key") => return,
            // Each needs the other: the next test has both.
            ("[[slice]]", "key" | "idl") => return,
            // They need one another and a secret: a test of their own has all.
            ("[flows]", "peers" | "peers-listen") => return,
            // They matter only to names with `labels`, which have their own tests.
            ("[[pool.backends]]", "labels") => return,
            _ => {}
        }
        let mut text = every_table_with(table, option, &sample(table, option));
        if option.name == "key-prefix" {
            // The largest is for IPv6, and the VIP is of IPv4.
            let taken = text.replace("key-prefix = 128", "key-prefix = 16");
            text = taken.replacen("[[packet]]\n", "[[packet]]\nkey = \"source-prefix\"\n", 1);
        }
        if option.name == "audit-log-max" {
            text = text.replace("[api]\n", "[api]\naudit-log = \"/x\"\n");
        }
        let changed = parsed(&text).config;
        assert_ne!(changed, base, "no code reads {} {}", table.title, option.name);
    });
}

#[test]
fn peers_of_a_fleet_change_the_configuration() {
    let flows = |more: &str| format!("[flows]\nseed = \"0123456789abcdef\"\n{more}");
    let of = |more: &str| parsed(&EVERY_TABLE.replace("[flows]\n", &flows(more))).config.packet;
    let listen = "peers-listen = \"10.0.0.1:7000\"\n";
    let one = of(&format!("{listen}peers = \"10.0.0.2:7000\"\n"));
    assert_ne!(of(""), one);
    assert_ne!(of(&format!("{listen}peers = \"10.0.0.3:7000\"\n")), one);
    let elsewhere = listen.replace("0.1", "0.9");
    assert_ne!(of(&format!("{elsewhere}peers = \"10.0.0.2:7000\"\n")), one);
}

#[test]
fn the_key_of_a_stream_and_its_type_change_the_configuration() {
    let with = |key: &str, idl: &str| {
        let own = format!("item-type = 'A', key = '{key}', idl = '{idl}'");
        parsed(&format!("slice = [{{ name = 's', slices = 9, {own} }}]")).config
    };
    let base = with("id", "struct A { long id; string of; };");
    assert_ne!(with("of", "struct A { long id; string of; };"), base);
    assert_ne!(with("id", "struct A { long id; };"), base);
}

#[test]
fn every_rejected_value_has_an_error_that_names_its_option() {
    let values =
        ["1", "-1", "1.5", "true", "'x'", "''", "[]", "[1]", "[[]]", "{}", "{ x = 1 }", "07:32:00"];
    each_option(tables::File::TABLE, &mut |table, option| {
        for value in values {
            if let Err(errors) = outcome(&every_table_with(table, option, value)) {
                let named = errors.problems.iter().any(|p| p.option.ends_with(option.name));
                assert!(named, "{} = {value}: {errors}", option.name);
            }
        }
    });
}

#[test]
fn a_truncated_file_loads_or_fails_with_a_problem() {
    for end in 0..EVERY_TABLE.len() {
        match outcome(&EVERY_TABLE[..end]) {
            Ok(_) => {}
            Err(errors) => assert!(!errors.problems.is_empty()),
        }
    }
}

#[test]
fn defaults_of_the_file_equal_the_defaults_of_each_level() {
    assert_eq!(parsed("").config.packet, PacketConfig::default());
    let config = parsed(
        "pool = [{ name = 'p', health = { http = '/' } }]\n\
         session = [{ listen = '0.0.0.0:80', protocol = 'http', pool = 'p' }]\n",
    )
    .config;
    let pool = &config.session.pools[0];
    assert_eq!(pool.scheduler, Default::default());
    assert_eq!(pool.options, PoolOptions::default());
    assert_eq!(pool.passive, PassiveHealth::default());
    assert_eq!(pool.concurrency, Concurrency::Learnt);
    assert_eq!(pool.slow_start, None);
    let check = HealthCheck::Http(HttpCheck::get("/"));
    assert_eq!(pool.health, Some(ActiveHealth { check, ..ActiveHealth::default() }));
    let door = FrontDoor::new("0.0.0.0:80".parse().unwrap(), Protocol::Http, "p");
    assert_eq!(config.session.front_doors, [door]);

    let stream = &parsed("slice = [{ name = 's', slices = 9 }]").config.slices[0];
    assert_eq!(stream.protocol, equipoise_slice::Config::default());
    assert_eq!(stream.policy, equipoise_slice::balance::Policy::default());

    let brief =
        parsed("[[pool]]\nname = 'p'\nhealth = { tcp = true }\nbackends = ['10.0.0.1:80']").config;
    assert_eq!(brief.session.pools[0].health, Some(ActiveHealth::default()));
    assert_eq!(&*brief.session.pools[0].backends[0].name, "10.0.0.1:80");
    assert_eq!(brief.session.pools[0].backends[0].weight, Default::default());
}

#[test]
fn an_empty_file_is_the_default() {
    let loaded = parsed("");
    assert_eq!(loaded.config.session, SessionConfig::default());
    assert_eq!(&*loaded.config.instance.name, "host");
    assert_eq!(loaded.config.operations.api_socket, Path::new("/run/api.sock"));
    assert_eq!(loaded.warnings.len(), 1);
    assert_eq!(Config::default().session, SessionConfig::default());
}

#[test]
fn every_scheduler_has_the_name_that_the_api_gives_it() {
    let mut kinds = BTreeSet::new();
    for (name, kind, _) in <equipoise_core::SchedulerKind as Choice>::CHOICES.0 {
        assert_eq!(serde_json::to_value(kind).unwrap(), *name);
        kinds.insert(name);
    }
    assert_eq!(kinds.len(), equipoise_core::SchedulerKind::ALL.len());
}

#[test]
fn a_default_has_the_form_of_its_option() {
    let mut options = 0;
    each_option(tables::File::TABLE, &mut |table, option| {
        options += 1;
        let name = format!("{} {}", table.title, option.name);
        match option.kind {
            Kind::Text(form) | Kind::Texts(form) => match option.absent {
                Absent::Default(Usual::Text(text)) => assert!((form.fits)(text), "{name}"),
                Absent::Default(Usual::Texts(texts)) => {
                    assert!(texts.iter().all(|text| (form.fits)(text)), "{name}");
                }
                _ => {}
            },
            // Their declarations compile only with bounds and a default that are in order.
            _ => {}
        }
        assert!(option.help.ends_with('.'), "{name}: {}", option.help);
        assert!(EVERY_TABLE.contains(table.title), "{name}");
    });
    assert!(options > 50, "{options} options");
}

#[test]
fn a_check_takes_time_in_proportion_to_pools() {
    let file = |count: usize| -> String {
        let one = |number: usize| {
            let port = 1024 + number;
            format!(
                "[[session]]\nlisten = '10.0.0.1:{port}'\nprotocol = 'http'\npool = 'p{number}'\n\
                 [[pool]]\nname = 'p{number}'\nbackends = ['10.0.0.2:{port}']\n\
                 [[pool]]\nname = 'unused{number}'\nbackends = ['10.0.0.2:{port}']\n"
            )
        };
        (0..count).map(one).collect()
    };
    let time_of = |text: &str| {
        equipoise_testkit::cpu_time(|| {
            let said = outcome(text).unwrap();
            assert!(said.warnings.iter().any(|warning| warning.option == "pool.unused0"));
        })
    };
    let (few, many) = (file(100), file(1600));
    let best_of = |text: &str| (0..3).map(|_| time_of(text)).min().unwrap();
    let (few, many) = (best_of(&few), best_of(&many));
    // 16 times as many pools take 256 times as long if each is compared with every other.
    assert!(many < few * 64, "100 pools: {few:?}, 1600 pools: {many:?}");
}
