//! The messages, and the channels on which processes listen.

use super::*;

#[tokio::test]
async fn messages_go_where_redisson_listens() {
    let (server, store) = server_and_store().await;
    let mut messages = Messages::of(&server).await;
    for (name, tag) in NAMES {
        let channel = format!("redisson_lock__channel:{tag}");
        let rw = format!("redisson_rwlock:{tag}");
        for (mode, told) in [
            (LockMode::Reentrant, Some((channel.as_str(), "0"))),
            // Redisson would publish nothing here, because its queue is empty.
            (LockMode::Fair, Some((channel.as_str(), "0"))),
            (LockMode::Read, Some((rw.as_str(), "0"))),
            (LockMode::Write, Some((rw.as_str(), "1"))),
        ] {
            // A thread of Redisson that was refused and does not sleep yet misses a `1`, and not a `0`.
            let and = (mode == LockMode::Write).then_some((rw.as_str(), "0"));
            let hold = attempt(name, mode);
            assert!(asks(&store, &hold).await && releases(&store, &hold).await);
            assert!(
                !releases(&store, &hold).await,
                "no message is sent the second time"
            );
            let withdrawn = attempt(name, mode);
            assert!(asks(&store, &withdrawn).await);
            store.withdraw(&withdrawn, true).await.unwrap();
            let told: Vec<_> = told.into_iter().chain(and).collect();
            messages.are(&[told.clone(), told].concat()).await;
        }

        let (holder, waiter) = (attempt(name, LockMode::Fair), patient(name, LockMode::Fair));
        assert!(asks(&store, &holder).await && !asks(&store, &waiter).await);
        assert!(releases(&store, &holder).await);
        let own = format!("{channel}:{}", waiter.hold.id);
        messages.are(&[(own.as_str(), "0")]).await;
        store.withdraw(&waiter, false).await.unwrap();
        messages.are(&[(channel.as_str(), "0")]).await;

        // Readers begin and end without a message while others read.
        let (one, other) = (attempt(name, LockMode::Read), attempt(name, LockMode::Read));
        assert!(asks(&store, &one).await && asks(&store, &other).await);
        assert!(releases(&store, &one).await);
        messages.are(&[]).await;
        assert!(releases(&store, &other).await);
        messages.are(&[(rw.as_str(), "0")]).await;
    }
}

#[tokio::test]
async fn waiters_listen_on_the_channels_of_redisson() {
    let (server, store) = server_and_store().await;
    for (name, tag) in NAMES {
        for mode in MODES {
            let waiter = match mode {
                LockMode::Fair => patient(name, mode),
                // With patience it would listen on our channels.
                _ => attempt(name, mode),
            };
            let channel = match mode {
                LockMode::Reentrant => format!("redisson_lock__channel:{tag}"),
                LockMode::Fair => format!("redisson_lock__channel:{tag}:{}", waiter.hold.id),
                LockMode::Read | LockMode::Write => format!("redisson_rwlock:{tag}"),
                LockMode::Permit(_) => format!("redisson_sc:{tag}"),
            };
            let mut wakeups = store.subscribe(&waiter).await.unwrap();
            assert_eq!(server.pubsub_channels().await.get(&channel), Some(&1));
            for message in ["0", "1"] {
                let mut redis = server.connection().await;
                let publish = redis::cmd("PUBLISH").arg(&channel).arg(message).to_owned();
                publish.exec_async(&mut redis).await.unwrap();
                woken(&mut wakeups).await;
            }
        }
    }
}

#[tokio::test]
async fn processes_in_line_listen_on_channels_of_their_own() {
    let (server, store) = server_and_store().await;
    for (name, tag) in NAMES {
        for mode in [LockMode::Reentrant, LockMode::Write] {
            let (holder, waiter) = (attempt(name, mode), patient(name, mode));
            let mut wakeups = store.subscribe(&waiter).await.unwrap();
            let channel = format!("tower_lock_turn:{tag}:{}", waiter.hold.id.client());
            let channels = server.pubsub_channels().await;
            assert_eq!(channels.into_keys().collect::<Vec<_>>(), [channel.as_str()]);
            assert!(asks(&store, &holder).await && !asks(&store, &waiter).await);
            let dump = server.dump().await;
            let id = waiter.hold.id.to_string();
            for key in ["tower_lock_line", "tower_lock_writers"] {
                let entry = &dump[&format!("{key}:{tag}")];
                assert!(entry.ttl.is_some_and(|ttl| ttl <= 3 * WAITER_LIVENESS));
                let Stored::SortedSet(ids) = &entry.stored else {
                    panic!("{entry:?}");
                };
                assert_eq!(ids.iter().map(|(id, _)| id).collect::<Vec<_>>(), [&id]);
            }
            let mut messages = Messages::of(&server).await;
            assert!(releases(&store, &holder).await);
            let rw = format!("redisson_rwlock:{tag}");
            let exclusive = format!("redisson_lock__channel:{tag}");
            let mut expected = match mode {
                LockMode::Write => vec![(rw.as_str(), "1"), (rw.as_str(), "0")],
                _ => vec![(exclusive.as_str(), "0")],
            };
            expected.push((channel.as_str(), "0"));
            messages.are(&expected).await;
            woken(&mut wakeups).await;
            eventually("its turn", LEASE, async || asks(&store, &waiter).await).await;
            assert!(releases(&store, &waiter).await);
            eventually("nothing is left", LEASE, async || {
                server.dump().await == Dump::new()
            })
            .await;
        }
    }
}

#[tokio::test]
async fn readers_that_a_writer_lets_in_are_woken_by_one_message() {
    let (server, store) = server_and_store().await;
    for (name, tag) in NAMES {
        let writer = attempt(name, LockMode::Write);
        assert!(asks(&store, &writer).await);
        let readers = [(); 3].map(|()| patient(name, LockMode::Read));
        let mut wakeups = Vec::new();
        for reader in &readers {
            assert!(!asks(&store, reader).await);
            wakeups.push(store.subscribe(reader).await.unwrap());
        }
        let enter = format!("tower_lock_enter:{tag}");
        let channels = server.pubsub_channels().await;
        let theirs = |channel: &&String| channel.starts_with("redisson");
        assert_eq!(channels.keys().find(theirs), None);
        let mut messages = Messages::of(&server).await;
        assert!(releases(&store, &writer).await);
        let rw = format!("redisson_rwlock:{tag}");
        let expected = [
            (enter.as_str(), "0"),
            (rw.as_str(), "1"),
            (rw.as_str(), "0"),
        ];
        messages.are(&expected).await;
        for (reader, wakeups) in readers.iter().zip(&mut wakeups) {
            woken(wakeups).await;
            assert!(asks(&store, reader).await);
        }
        for reader in &readers {
            assert!(releases(&store, reader).await);
        }
        drop(wakeups);
        eventually("nothing is left", LEASE, async || {
            server.dump().await == Dump::new()
        })
        .await;
    }
}

/// All published messages.
struct Messages {
    all: PubSub,
    marks: RedisStore,
}

impl Messages {
    async fn of(server: &RedisServer) -> Self {
        // First, because on Redis 6.2 the check of a new connection's rights publishes.
        let marks = RedisStore::connect(server.url()).await.unwrap();
        let client = redis::Client::open(server.url()).unwrap();
        let mut all = client.get_async_pubsub().await.unwrap();
        all.psubscribe("*").await.unwrap();
        Self { all, marks }
    }

    /// Asserts that exactly these messages have arrived since the last call.
    async fn are(&mut self, expected: &[(&str, &str)]) {
        let mark = attempt("mark", LockMode::Reentrant);
        assert!(asks(&self.marks, &mark).await && releases(&self.marks, &mark).await);
        let mut come = Vec::new();
        let mut messages = self.all.on_message();
        loop {
            let next = tokio::time::timeout(Duration::from_secs(10), messages.next()).await;
            let message = next.expect("the mark").expect("a connection");
            if message.get_channel_name() == "redisson_lock__channel:{mark}" {
                break;
            }
            let payload: String = message.get_payload().unwrap();
            come.push((message.get_channel_name().to_owned(), payload));
        }
        let come: Vec<_> = come.iter().map(|(c, p)| (c.as_str(), p.as_str())).collect();
        assert_eq!(come, expected);
    }
}
