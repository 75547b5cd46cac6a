//! A console of a client with a name space.

use serde_json::json;
use tower_distributed_lock_console::Console;

use super::*;

#[tokio::test]
async fn a_console_shows_and_breaks_the_locks_of_its_name_space_by_their_names() {
    let store = MemoryStore::new();
    let client = |namespace: &str| {
        let builder = LockClient::builder(store.clone());
        builder.namespace(namespace).build()
    };
    let (shop, second, stock) = (
        client("prod-shop"),
        client("prod-shop"),
        client("prod-stock"),
    );
    let page = Page::serve(Console::new(&shop).allow_force_unlock().router()).await;
    let own = shop.lock("own").await.unwrap();
    let elsewhere = second.lock("elsewhere").await.unwrap();
    let other = stock.lock("elsewhere").await.unwrap();

    let keys = page.json("/api/keys").await;
    assert_eq!(names(&keys), ["own"]);
    assert_eq!(page.key("own").await["holds"].as_array().unwrap().len(), 1);
    let shown = page.key("elsewhere").await;
    let holder = shown["store"]["holders"][0]["id"].as_str().unwrap();
    assert!(holder.starts_with(&second.id().to_string()), "{shown}");

    let request = reqwest::Client::new().post(format!("{}/api/break", page.url));
    let request = request.header("sec-fetch-site", "same-origin");
    let body = json!({ "key": "elsewhere", "confirm": "elsewhere", "holders": [holder] });
    let told = request.json(&body).send().await.unwrap();
    let told: Value = told.json().await.unwrap();
    assert_eq!(told["broken"], true, "{told}");
    assert_eq!(told["key"], "elsewhere");
    assert!(elsewhere.release().await.is_err());
    other.release().await.unwrap();
    own.release().await.unwrap();
}
