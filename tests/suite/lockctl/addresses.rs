//! Every deployment of Redis, and every source of passwords.

use std::ffi::OsStr;
use std::fs;
use std::os::unix::ffi::OsStrExt;

use super::{Done, SOON, done, lockctl, ready, until_written};
use crate::support::{
    Authority, Process, RedisCluster, RedisSentinels, RedisServer, binary, eventually,
};

const RUN: [&str; 5] = ["run", "--key", "k", "--", "true"];

async fn runs(url: &str, options: &[&str]) -> Done {
    let done = done(lockctl(url, &[options, &RUN].concat())).await;
    assert_eq!((done.code, &*done.err), (0, ""), "{options:?}");
    done
}

#[tokio::test]
async fn a_lock_is_taken_in_a_cluster() {
    let cluster = RedisCluster::shared().await;
    runs(&cluster.urls().join(","), &["--cluster"]).await;
    let done = done(lockctl(&cluster.urls()[0], &RUN)).await;
    assert_eq!(done.code, 84, "{done:?}");
    assert!(done.err.contains("use --cluster"), "{done:?}");
}

#[tokio::test]
async fn a_lock_is_taken_behind_sentinels() {
    let sentinels = RedisSentinels::start().await;
    let urls = sentinels.urls().join(",");
    runs(&urls, &["--sentinel", RedisSentinels::NAME]).await;
    let options = ["--sentinel", RedisSentinels::NAME, "--database", "1"];
    runs(&urls, &options).await;
    let done = done(lockctl(&sentinels.urls()[0], &RUN)).await;
    assert_eq!(done.code, 84, "{done:?}");
    assert!(done.err.contains("use --sentinel MASTER"), "{done:?}");
}

#[tokio::test]
async fn a_lock_is_taken_in_a_majority_of_independent_servers() {
    let [a, b, mut c] = [
        RedisServer::start().await,
        RedisServer::start().await,
        RedisServer::start().await,
    ];
    let urls = [a.url(), b.url(), c.url()].join(",");
    runs(&urls, &["--quorum"]).await;
    c.kill9();
    runs(&urls, &["--quorum"]).await;
    let lockctl_there = format!("{} --quorum", binary("lockctl").display());
    let script = ["show k", "break k --yes", "show k"];
    let script = script
        .map(|look| format!("{lockctl_there} {look}"))
        .join("; ");
    let run = ["run", "--quorum", "--key", "k", "--", "sh", "-c", &script];
    let broken = done(lockctl(&urls, &run)).await;
    assert_eq!(broken.code, 82, "{broken:?}");
    for seen in ["k is held:", "k is broken", "k is free"] {
        assert!(broken.out.contains(seen), "{broken:?}");
    }
    let watch = ["watch", "k", "--quorum", "--interval", "20ms"];
    let mut watch = Process::spawn(&mut lockctl(&urls, &watch)).expect("lockctl is built");
    until_written(&mut watch, "free\n").await;
    let script = [
        "--quorum",
        "--key",
        "k",
        "--",
        "sh",
        "-c",
        "echo ready; sleep 60",
    ];
    let mut holder = ready(lockctl(&urls, &[&["run"], &script[..]].concat())).await;
    until_written(&mut watch, "held by").await;
    holder.terminate();
    assert_eq!(holder.end().await.code(), Some(143));
    eventually("it is free again", SOON, async || {
        watch.output().ends_with("free\n")
    })
    .await;
    for refused in [
        &["ls"][..],
        &["run", "--permits", "2", "--key", "k", "--", "true"],
        &["run", "--mode", "fair", "--key", "k", "--", "true"],
        &["run", "--idempotency-key", "k", "--", "true"],
    ] {
        let refused = done(lockctl(&urls, &[&["--quorum"], refused].concat())).await;
        assert_eq!(refused.code, 84, "{refused:?}");
    }
    let ambiguous = done(lockctl(&urls, &RUN)).await;
    assert_eq!(ambiguous.code, 64, "{ambiguous:?}");
    assert!(ambiguous.err.contains("--quorum"), "{ambiguous:?}");
    let two = [a.url(), b.url()].join(",");
    let even = done(lockctl(&two, &[&["--quorum"], &RUN[..]].concat())).await;
    assert_eq!(even.code, 64, "{even:?}");
}

#[tokio::test]
async fn a_lock_is_taken_through_tls() {
    let authority = Authority::new("locks");
    let redis = RedisServer::builder()
        .tls(authority.signs(&["localhost"]), &authority)
        .mutual(true)
        .start()
        .await;
    let folder = tempfile::tempdir().expect("a folder");
    let file = |name: &str, text: &str| {
        let file = folder.path().join(name);
        fs::write(&file, text).expect("it is written");
        file.to_str().expect("text").to_owned()
    };
    let ours = authority.signs(&["client"]);
    let ca = file("ca.pem", &authority.certificate());
    let cert = file("cert.pem", &ours.certificate);
    let key = file("key.pem", &ours.key);
    let url = redis.tls_url("localhost");
    let options = ["--tls-ca", &*ca, "--tls-cert", &cert, "--tls-key", &key];
    runs(&url, &options).await;

    let anonymous = done(lockctl(&url, &[&options[..2], &RUN].concat())).await;
    assert!([81, 84].contains(&anonymous.code), "{anonymous:?}");
    let half = done(lockctl(&url, &[&options[..4], &RUN].concat())).await;
    assert_eq!(half.code, 64, "{half:?}");
}

#[tokio::test]
async fn a_password_comes_from_where_others_do_not_see_it() {
    let redis = RedisServer::builder().password("secret").start().await;
    let port = redis.port();
    let plain = format!("redis://127.0.0.1:{port}");
    let with_password = format!("redis://:secret@127.0.0.1:{port}");
    runs(&with_password, &[]).await;

    let mut from_variable = lockctl(&plain, &RUN);
    from_variable.env("REDIS_PASSWORD", "secret");
    assert_eq!(done(from_variable).await.code, 0);

    let folder = tempfile::tempdir().expect("a folder");
    let file = folder.path().join("password");
    fs::write(&file, "secret\n").expect("it is written");
    runs(&plain, &["--password-file", file.to_str().expect("text")]).await;

    let shown = done(lockctl(
        "",
        &[&["--url", &*with_password], &RUN[..]].concat(),
    ))
    .await;
    assert_eq!(shown.code, 64, "{shown:?}");
    assert!(!shown.err.contains("secret"), "{shown:?}");

    let without = done(lockctl(&plain, &RUN)).await;
    assert_eq!(without.code, 84, "{without:?}");
    assert!(without.err.contains("NOAUTH"), "{without:?}");
    let wrong = done(lockctl(&format!("redis://:wrong@127.0.0.1:{port}"), &RUN)).await;
    assert_eq!(wrong.code, 84, "{wrong:?}");
    assert!(!wrong.err.contains("wrong@"), "{wrong:?}");
}

/// Without this, lockctl would work as the default user, who may have other rights, or none.
#[tokio::test]
async fn a_user_without_a_password_is_refused() {
    let redis = RedisServer::start().await;
    let option = lockctl(&redis.url(), &[&["--user", "me"], &RUN[..]].concat());
    let mut variable = lockctl(&redis.url(), &RUN);
    variable.env("REDIS_USER", "me");
    let address = lockctl(&format!("redis://me@127.0.0.1:{}", redis.port()), &RUN);
    for command in [option, variable, address] {
        let refused = done(command).await;
        assert_eq!(refused.code, 64, "{refused:?}");
        assert!(refused.err.contains("REDIS_PASSWORD"), "{refused:?}");
    }
}

#[tokio::test]
async fn without_a_usable_address_the_command_line_is_refused() {
    let none = done(lockctl("", &RUN)).await;
    assert_eq!(none.code, 64, "{none:?}");
    assert!(none.err.contains("REDIS_URL"), "{none:?}");
    let other = done(lockctl("http://localhost", &RUN)).await;
    assert_eq!(other.code, 64, "{other:?}");
    let both = ["--cluster", "--quorum"];
    let both = done(lockctl("redis://localhost", &[&both, &RUN[..]].concat())).await;
    assert_eq!(both.code, 64, "{both:?}");
}

/// Without it, a lockctl would say that there is no address, or no password.
#[tokio::test]
async fn a_variable_that_is_no_text_is_named() {
    for variable in ["REDIS_URL", "REDIS_PASSWORD"] {
        let mut command = lockctl("redis://localhost", &RUN);
        command.env(variable, OsStr::from_bytes(b"secr\xe9t"));
        let done = done(command).await;
        assert_eq!(done.code, 64, "{done:?}");
        let expected = format!("lockctl: {variable} is not text in UTF-8\n");
        assert_eq!(done.err, expected);
    }
}

/// As in a file of settings with a line for each of them.
#[tokio::test]
async fn a_variable_that_is_empty_is_none() {
    let redis = RedisServer::start().await;
    let mut command = lockctl(&redis.url(), &RUN);
    let connection = ["REDIS_USER", "REDIS_PASSWORD", "REDIS_PASSWORD_FILE"];
    let others = ["NAMESPACE", "TLS_CA", "TLS_CERT", "TLS_KEY"];
    let others = others.map(|name| format!("LOCKCTL_{name}"));
    command.envs(connection.map(|name| (name, "")));
    command.envs(others.map(|name| (name, "")));
    let done = done(command).await;
    assert_eq!((done.code, &*done.err), (0, ""));
}
