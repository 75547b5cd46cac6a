//! Invalid settings in the environment.

use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt;
use std::process::Command;
use std::time::Duration;

use crate::support::{DemoServer, Process, Proxy, RedisServer, eventually, example};

/// Starts a server with a variable set to `value`; returns its exit code and its output.
async fn ending(name: &str, value: &OsStr) -> (Option<i32>, String) {
    let mut command = Command::new(example("server"));
    command.env_clear().env("LISTEN", "127.0.0.1:0");
    command.env(name, value);
    let mut process = Process::spawn(&mut command).expect("a server");
    let limit = Duration::from_secs(30);
    let code = eventually(&format!("{name}={value:?} ends it"), limit, async || {
        process.ended().map(|status| status.code())
    })
    .await;
    (code, process.output())
}

#[tokio::test]
async fn a_setting_that_makes_no_sense_ends_the_server_and_is_named() {
    for (name, value, why) in [
        ("LOCK_LEASE_MS", "soon", "choose from 10 to 86400000 ms"),
        ("LOCK_LEASE_MS", "0", "choose from 10 to 86400000 ms"),
        ("LOCK_LEASE_MS", "86400001", "choose from 10 to 86400000 ms"),
        ("LOCK_WAIT_MS", "-1", "choose from 0 to 86400000 ms"),
        ("LOCK_WAIT_MS", "18446744073709551615", "choose from 0 to"),
        ("WORK_LIMIT_MS", "9", "choose from 10 to 86400000 ms"),
        ("LISTEN", "here", "invalid socket address"),
        ("ADMIN_LISTEN", "here", "invalid socket address"),
        ("ALLOW_FORCE_UNLOCK", "true", "choose yes or no"),
        ("REDIS_URL", "", "is no address of a Redis server"),
        ("WEBHOOK_SECRET", "whsec_%", "after whsec_"),
    ] {
        let (code, said) = ending(name, OsStr::new(value)).await;
        assert_eq!(code, Some(1), "{name}={value}: {said}");
        assert!(
            said.contains(name) && said.contains(why),
            "{name}={value}: {said}"
        );
    }
}

#[tokio::test]
async fn a_secret_that_can_be_guessed_is_refused() {
    for value in [
        "",
        "whsec_",
        "23 bytes are not enough",
        "whsec_dG9vIHNob3J0",
    ] {
        let (code, said) = ending("WEBHOOK_SECRET", OsStr::new(value)).await;
        assert_eq!(code, Some(1), "{value}: {said}");
        assert!(
            said.contains("WEBHOOK_SECRET") && said.contains("24"),
            "{said}"
        );
    }
}

#[tokio::test]
async fn a_setting_that_cannot_be_read_is_not_taken_for_none() {
    for name in ["REDIS_URL", "WEBHOOK_SECRET", "LOCK_WAIT_MS"] {
        let (code, said) = ending(name, OsStr::from_bytes(b"hush\xff")).await;
        assert_eq!(code, Some(1), "{name}: {said}");
        assert!(
            said.contains(&format!("{name} is not valid UTF-8")),
            "{said}"
        );
        assert!(!said.contains("hush"), "it may be a secret: {said}");
    }
}

#[tokio::test]
async fn a_server_that_is_stopped_as_soon_as_it_has_said_its_address_stops_in_order() {
    let redis = RedisServer::start().await;
    let proxy = Proxy::in_front_of(&redis).await;
    // Between its address and its first request, it asks Redis for its role.
    proxy.delay(Duration::from_millis(100));
    let mut server = DemoServer::start(&[("REDIS_URL", &proxy.url())]).await;
    server.process.terminate();
    let status = server.process.end().await;
    assert!(status.success(), "{status}: {}", server.process.output());
}
