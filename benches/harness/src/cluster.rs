//! Three masters of a bench's own, which share the slots of a Redis Cluster.

use std::path::PathBuf;
use std::time::{Duration, Instant};

use anyhow::{Result, ensure};

use crate::server::Server;

const MASTERS: usize = 3;
const SLOTS: usize = 16_384;

/// Masters without replicas; killed on drop, and what they have written about each other is removed.
pub(crate) struct Cluster {
    pub(crate) masters: Vec<Server>,
    _files: Files,
}

/// A directory for the files in which the nodes keep what they know of the cluster.
struct Files(PathBuf);

impl Drop for Files {
    fn drop(&mut self) {
        if let Err(error) = std::fs::remove_dir_all(&self.0) {
            eprintln!("{} is left behind: {error}", self.0.display());
        }
    }
}

impl Cluster {
    pub(crate) async fn start() -> Result<Self> {
        let directory = std::env::temp_dir().join(format!("bench-cluster.{}", std::process::id()));
        std::fs::create_dir_all(&directory)?;
        let files = Files(directory);
        let mut masters = Vec::new();
        for n in 0..MASTERS {
            masters.push(Server::start_node(&files.0.join(format!("{n}.conf"))).await?);
        }
        let cluster = Self {
            masters,
            _files: files,
        };
        cluster.form().await?;
        Ok(cluster)
    }

    /// Gives each master a third of the slots, and waits until all of them know that.
    async fn form(&self) -> Result<()> {
        for (n, node) in self.masters.iter().enumerate() {
            let epoch = (n + 1).to_string();
            let slots = [SLOTS * n / MASTERS, SLOTS * (n + 1) / MASTERS - 1].map(|n| n.to_string());
            node.ask::<()>(&["CLUSTER", "SET-CONFIG-EPOCH", &epoch])
                .await?;
            node.ask::<()>(&["CLUSTER", "ADDSLOTSRANGE", &slots[0], &slots[1]])
                .await?;
        }
        for (n, node) in self.masters.iter().enumerate() {
            for other in &self.masters[n + 1..] {
                let found: Vec<String> = other.ask(&["CONFIG", "GET", "cluster-port"]).await?;
                let port = other.port().to_string();
                node.ask::<()>(&["CLUSTER", "MEET", "127.0.0.1", &port, &found[1]])
                    .await?;
            }
        }
        let began = Instant::now();
        for node in &self.masters {
            loop {
                let about: String = node.ask(&["CLUSTER", "INFO"]).await?;
                let all_slots = format!("cluster_slots_ok:{SLOTS}");
                if about.contains("cluster_state:ok") && about.contains(&all_slots) {
                    break;
                }
                let in_time = began.elapsed() < Duration::from_secs(60);
                ensure!(in_time, "the masters do not find each other: {about}");
                tokio::time::sleep(Duration::from_millis(50)).await;
            }
        }
        Ok(())
    }
}
