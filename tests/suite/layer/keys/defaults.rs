//! The key of a layer without an extractor: the route and its parameters, or the path.

use super::*;

#[tokio::test]
async fn the_default_is_the_route_and_its_parameters_also_when_nested() {
    let routes = || {
        Router::new()
            .route("/orders/{id}", any(describe))
            .route("/orders/{id}/items/{item}", any(describe))
            .route("/files/{*path}", any(describe))
            .route("/health", any(describe))
    };
    let outside = Router::new()
        .nest("/shops/{shop}", routes())
        .layer(exclusive());
    let inside = Router::new().nest("/shops/{shop}", routes().layer(exclusive()));
    for app in [outside, inside] {
        for (path, key) in [
            ("/shops/7/orders/1", "/shops/%7Bshop%7D/orders/%7Bid%7D:7:1"),
            (
                "/shops/%37/orders/%31",
                "/shops/%7Bshop%7D/orders/%7Bid%7D:7:1",
            ),
            (
                "/shops/7/orders/1/items/2",
                "/shops/%7Bshop%7D/orders/%7Bid%7D/items/%7Bitem%7D:7:1:2",
            ),
            (
                "/shops/7/files/a/b",
                "/shops/%7Bshop%7D/files/%7B%2Apath%7D:7:a/b",
            ),
            ("/shops/7/health", "/shops/%7Bshop%7D/health:7"),
        ] {
            assert_eq!(key_of(&app, path).await.unwrap(), key, "{path}");
        }
    }
}

#[tokio::test]
async fn outside_of_any_route_the_default_is_the_original_path() {
    let fallback = Router::new().fallback(describe).layer(exclusive());
    assert_eq!(key_of(&fallback, "/a/%62").await.unwrap(), "path:/a/b");

    // A private template of axum is not a route.
    let private = Router::new().route("/{*__private__axum_x}", any(describe));
    let private = private.layer(exclusive());
    assert_eq!(key_of(&private, "/a/b").await.unwrap(), "path:/a/b");

    let nested = Router::new().nest(
        "/api",
        Router::new()
            .route("/orders/{id}", any(describe))
            .layer(exclusive().key(key::path())),
    );
    assert_eq!(
        key_of(&nested, "/api/orders/1").await.unwrap(),
        "path:/api/orders/1"
    );

    let service = Router::new()
        .nest_service("/api", orders())
        .layer(exclusive());
    assert_eq!(
        key_of(&service, "/api/orders/1").await.unwrap(),
        "path:/api/orders/1"
    );
}

#[tokio::test]
async fn query_and_host_are_no_part_of_the_key() {
    let app = orders().layer(exclusive());
    let plain = key_of(&app, "/orders/1").await.unwrap();
    assert_eq!(key_of(&app, "/orders/1?a=b").await.unwrap(), plain);
    assert_eq!(
        key_of(&app, "http://elsewhere/orders/1").await.unwrap(),
        plain
    );
}

#[tokio::test]
async fn every_mode_of_one_resource_is_under_one_name() {
    let (_store, _locks, layer) = locking();
    let layer = layer.key(key::param("order", "id"));
    let both = orders().layer(layer.clone());
    assert_eq!(text(put(&both, "/orders/1").await).await, "write order:1");
    let read = send(&both, request("GET", "/orders/1")).await;
    assert_eq!(text(read).await, "read order:1");
    let fair = orders().layer(layer.mode(LockMode::Fair));
    assert_eq!(text(put(&fair, "/orders/1").await).await, "fair order:1");
}

#[tokio::test]
async fn a_path_that_is_spelled_in_another_way_is_the_same_key() {
    let app = by_id(key::path());
    for reserved in "!$&'()*+,;=:@?#[]".chars() {
        let encoded = format!("/orders/a%{:02X}b", u32::from(reserved));
        let lower = format!("/orders/a%{:02x}b", u32::from(reserved));
        let key = key_of(&app, &encoded).await.unwrap();
        assert_eq!(key_of(&app, &lower).await.unwrap(), key, "{reserved}");
        if !"?#[]".contains(reserved) {
            let plain = format!("/orders/a{reserved}b");
            assert_eq!(key_of(&app, &plain).await.unwrap(), key, "{reserved}");
        }
    }
    let slash = key_of(&app, "/orders/a%2Fb").await.unwrap();
    assert_ne!(slash, key_of(&app, "/orders/a%252Fb").await.unwrap());
}
