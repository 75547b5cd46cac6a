//! The live page: its JSON, its rules, and the page itself in a browser.

use std::net::SocketAddr;
use std::time::Duration;

use axum::Router;
use serde_json::Value;
use tokio::net::TcpListener;
use tokio::task::JoinHandle;
use tower_distributed_lock::{LockClient, LockGuard, LockRequest, MemoryStore};

use crate::support::eventually;

mod api;
mod browser;
pub(crate) mod costs;
mod namespace;
mod security;
mod stream;

/// A generous limit for immediate effects.
const SOON: Duration = Duration::from_secs(30);

/// Names that would be markup, code or invisible in a page that does not treat them as text.
const HOSTILE: [&str; 8] = [
    "<img src=x onerror=\"document.title='owned'\">",
    "</script><script>document.title='owned'</script>",
    "javascript:document.title='owned'",
    "order\u{0}\u{7}\u{1b}[31m\r\n42",
    "invoice\u{202e}gpj.exe",
    "a\u{200b}b\u{feff}c",
    "\"'&amp;{{constructor}}${1}",
    "ключ 鍵 🔑 مفتاح",
];

/// A console on an address of its own, at `/_locks` as in a program.
struct Page {
    url: String,
    serving: JoinHandle<()>,
}

impl Page {
    async fn serve(console: Router) -> Self {
        Self::serve_in(Router::new().nest_service("/_locks", console)).await
    }

    /// `app` has the page at `/_locks`.
    async fn serve_in(app: Router) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        let app = app.into_make_service_with_connect_info::<SocketAddr>();
        let serving = tokio::spawn(async move { axum::serve(listener, app).await.unwrap() });
        Self {
            url: format!("http://{address}/_locks"),
            serving,
        }
    }

    async fn get(&self, path: &str) -> reqwest::Response {
        let url = format!("{}{path}", self.url);
        reqwest::get(url).await.unwrap()
    }

    async fn json(&self, path: &str) -> Value {
        let response = self.get(path).await;
        assert_eq!(response.status(), 200, "{path}");
        response.json().await.unwrap()
    }

    /// One key in full.
    async fn key(&self, key: &str) -> Value {
        let url = reqwest::Url::parse_with_params(&format!("{}/api/key", self.url), [("key", key)]);
        let response = reqwest::get(url.unwrap()).await.unwrap();
        response.json().await.unwrap()
    }

    /// Waits until `count` requests wait for a key.
    async fn waiting(&self, key: &str, count: usize) -> Value {
        let what = format!("{count} wait for {key}");
        eventually(&what, SOON, async || {
            let shown = self.key(key).await;
            (shown["waiting"] == count).then_some(shown)
        })
        .await
    }
}

impl Drop for Page {
    fn drop(&mut self) {
        self.serving.abort();
    }
}

fn locks() -> LockClient {
    LockClient::new(MemoryStore::new())
}

/// A request that waits in a task.
fn wait(request: LockRequest) -> JoinHandle<LockGuard> {
    tokio::spawn(async move { request.wait(2 * SOON).await.unwrap() })
}

fn rows(page: &Value) -> &Vec<Value> {
    page["keys"].as_array().unwrap()
}

fn names(page: &Value) -> Vec<&str> {
    let rows = rows(page).iter();
    rows.map(|row| row["key"].as_str().unwrap()).collect()
}
