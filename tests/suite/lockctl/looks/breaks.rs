//! `lockctl break`.

use std::io::Write;
use std::process::Stdio;
use std::time::Duration;

use serde_json::json;

use super::super::{Done, SOON, client, done, lockctl, until_written};
use super::parsed;
use crate::support::{Process, Proxy, RedisServer, eventually};

/// `lockctl break` with this on its standard input.
async fn typed(redis: &RedisServer, arguments: &[&str], text: &str) -> Done {
    let mut command = lockctl(&redis.url(), arguments);
    let (reader, mut writer) = std::io::pipe().expect("a pipe");
    writer.write_all(text.as_bytes()).expect("it is written");
    command.stdin(Stdio::from(reader));
    drop(writer);
    done(command).await
}

#[tokio::test]
async fn a_lock_is_broken_although_the_question_has_no_reader() {
    let redis = RedisServer::start().await;
    let guard = client(&redis).await.lock("lock:a").await;
    let mut command = lockctl(&redis.url(), &["break", "lock:a"]);
    let (answer, mut writer) = std::io::pipe().expect("a pipe");
    let (_, unread) = std::io::pipe().expect("a pipe");
    writer.write_all(b"lock:a\n").expect("it is written");
    command.stdin(answer).stdout(Stdio::null()).stderr(unread);
    let status = tokio::task::spawn_blocking(move || command.status());
    let status = status.await.expect("no panic").expect("lockctl is built");
    assert_eq!(status.code(), Some(0));
    assert!(guard.expect("it is free").release().await.is_err());
}

/// A server closes connections that are idle, and a person may take a while.
#[tokio::test]
async fn a_lock_is_broken_after_the_connection_was_closed_meanwhile() {
    let redis = RedisServer::start().await;
    let guard = client(&redis).await.lock("lock:a").await;
    let mut command = lockctl(&redis.url(), &["break", "lock:a"]);
    let (mut process, mut person, _) = Process::spawn_piped(&mut command).expect("it is built");
    until_written(&mut process, "Type the name").await;
    let files = format!("/proc/{}/fd", process.id());
    let sockets = || {
        let files = std::fs::read_dir(&files).expect("it runs").flatten();
        let links = files.filter_map(|file| std::fs::read_link(file.path()).ok());
        links
            .filter(|link| link.to_string_lossy().starts_with("socket:"))
            .count()
    };
    let before = sockets();
    let killed: usize = redis.ask(&["CLIENT", "KILL", "TYPE", "normal"]).await;
    assert!(killed > 0);
    eventually("lockctl sees that", SOON, async || sockets() < before).await;
    person.write_all(b"lock:a\n").expect("it reads");
    assert_eq!(process.end().await.code(), Some(0), "{}", process.output());
    assert!(guard.expect("it was free").release().await.is_err());
}

#[tokio::test]
async fn a_lock_is_broken_by_the_person_who_types_its_name() {
    let redis = RedisServer::start().await;
    let locks = client(&redis).await;
    for text in ["", "\n", "y\n", "lock:b\n"] {
        let guard = locks.lock("lock:a").await.expect("it is free");
        let done = typed(&redis, &["break", "lock:a"], text).await;
        assert_eq!((done.code, &*done.out), (1, ""), "{text:?}: {done:?}");
        assert!(done.err.contains(&locks.id().to_string()), "{done:?}");
        guard.release().await.expect("it was left alone");
    }
    for (arguments, text) in [
        (&["break", "lock:a"][..], "lock:a\n"),
        (&["break", "lock:a", "--yes"], ""),
    ] {
        let guard = locks.lock("lock:a").await.expect("it is free");
        let done = typed(&redis, arguments, text).await;
        assert_eq!(done.code, 0, "{done:?}");
        assert!(done.out.contains("lock:a is broken"), "{done:?}");
        assert!(done.out.contains(&locks.id().to_string()), "{done:?}");
        assert!(guard.release().await.is_err());
    }
    let free = typed(&redis, &["break", "lock:a", "--json"], "").await;
    assert_eq!((free.code, &parsed(&free)["broken"]), (1, &json!(false)));
    let guard = locks.lock("lock:a").await.expect("it is free");
    let broken = typed(&redis, &["break", "lock:a", "--json", "--yes"], "").await;
    let found = parsed(&broken);
    assert_eq!((broken.code, &found["broken"]), (0, &json!(true)));
    let id = format!("{}:", locks.id());
    assert!(
        found["holders"][0]["id"]
            .as_str()
            .expect("text")
            .starts_with(&id)
    );
    assert!(guard.release().await.is_err());
}

#[tokio::test]
async fn a_holder_that_came_while_the_person_typed_is_left_alone() {
    let redis = RedisServer::start().await;
    let locks = client(&redis).await;
    let shown = locks.lock("lock:a").await.expect("it is free");
    let mut command = lockctl(&redis.url(), &["break", "lock:a"]);
    let (mut process, mut person, _) = Process::spawn_piped(&mut command).expect("it is built");
    until_written(&mut process, "Type the name").await;
    shown.release().await.expect("it was held");
    let other = client(&redis).await;
    let guard = other.lock("lock:a").await.expect("it is free");
    person.write_all(b"lock:a\n").expect("it reads");
    assert_eq!(process.end().await.code(), Some(1), "{}", process.output());
    guard.release().await.expect("it was left alone");
    let said = process.output();
    assert!(said.contains(&other.id().to_string()), "{said}");
    assert!(said.contains("nothing was broken"), "{said}");
}

/// On a key that changes hands often, a look finds it free between two holders.
#[tokio::test]
async fn a_holder_that_came_after_the_look_is_left_alone_without_its_name() {
    let redis = RedisServer::start().await;
    let proxy = Proxy::in_front_of(&redis).await;
    proxy.replies.delay(Duration::from_millis(300));
    let monitor = redis.monitor().await;
    let locks = client(&redis).await;
    let breaking = done(lockctl(&proxy.url(), &["break", "lock:a"]));
    let came = async {
        eventually("lockctl has looked", SOON, async || {
            let lines = monitor.lines().await;
            lines.iter().any(|line| line.ends_with(r#""lock:a""#))
        })
        .await;
        proxy.replies.hold();
        let guard = locks.lock("lock:a").await.expect("it is free");
        proxy.replies.release();
        guard
    };
    let (broken, guard) = tokio::join!(breaking, came);
    guard.release().await.expect("it was left alone");
    assert_eq!((broken.code, &*broken.out), (1, "lock:a is free\n"));
}
