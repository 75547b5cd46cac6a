//! A real browser, without a window.

use std::os::unix::process::CommandExt;
use std::process::Command;
use std::str::FromStr;
use std::time::Duration;

use fantoccini::error::CmdError;
use fantoccini::wd::WebDriverCompatibleCommand;
use fantoccini::{Client, ClientBuilder, Locator};
use http::Method;
use hyper_util::client::legacy::connect::HttpConnector;
use nix::sys::signal::{Signal, killpg};
use nix::unistd::Pid;
use reqwest::Url;
use serde_json::{Value, json};
use tempfile::TempDir;

use super::{Process, eventually};

const LIMIT: Duration = Duration::from_secs(60);

/// Chromium with one window, and its driver. Dropping it ends both.
#[derive(Debug)]
pub(crate) struct Browser {
    client: Client,
    // Dropped before the process, because it ends the browser that the driver has started.
    _group: Group,
    _driver: Process,
    _profile: TempDir,
}

/// Starts a driver, and returns its port. It takes a port that is free for IPv6, and exits if that is taken for IPv4: then
/// another one is started.
async fn start_driver() -> (Process, Group, String) {
    for _ in 0..20 {
        let mut command = Command::new("chromedriver");
        command.arg("--port=0").process_group(0);
        let driver = Process::spawn(&mut command).unwrap_or_else(|error| {
            panic!(
                "chromedriver: {error}. Run: sudo apt-get install chromium chromium-driver (scripts/test does it)"
            )
        });
        let group = Group(Pid::from_raw(driver.id().cast_signed()));
        let port = eventually("chromedriver listens", LIMIT, async || {
            let output = driver.output();
            if output.contains("port not available") {
                return Some(None);
            }
            let (_, rest) = output.split_once("started successfully on port ")?;
            let port: String = rest.chars().take_while(char::is_ascii_digit).collect();
            rest.contains('.').then_some(Some(port))
        })
        .await;
        if let Some(port) = port {
            return (driver, group, port);
        }
    }
    panic!("chromedriver found no free port in 20 attempts")
}

/// The driver and all that it has started.
#[derive(Debug)]
struct Group(Pid);

impl Drop for Group {
    fn drop(&mut self) {
        // An error is ignored: the group does not exist any more if the browser was closed.
        let _ = killpg(self.0, Signal::SIGKILL);
    }
}

impl Browser {
    /// Starts a browser and opens a page.
    pub(crate) async fn open(url: &str) -> Self {
        let (driver, group, port) = start_driver().await;
        let profile = TempDir::new().expect("a folder");
        let options = json!({ "args": [
            "--headless=new",
            "--no-sandbox",
            "--disable-gpu",
            "--disable-dev-shm-usage",
            "--no-first-run",
            "--hide-scrollbars",
            "--window-size=1280,900",
            format!("--user-data-dir={}", profile.path().display()),
        ]});
        let mut wishes = serde_json::Map::new();
        wishes.insert("goog:chromeOptions".to_owned(), options);
        wishes.insert("goog:loggingPrefs".to_owned(), json!({ "browser": "ALL" }));
        let client = ClientBuilder::new(HttpConnector::new())
            .capabilities(wishes)
            .connect(&format!("http://127.0.0.1:{port}"))
            .await
            .expect("a browser");
        client.goto(url).await.expect("the page");
        Self {
            client,
            _group: group,
            _driver: driver,
            _profile: profile,
        }
    }

    /// Closes the browser. Fails if it has logged an error, of code that fails or of code that the page's policy refuses.
    pub(crate) async fn close(self) {
        let log = self
            .client
            .issue_cmd(Wire::new("se/log", json!({ "type": "browser" })));
        let log = log.await.expect("a log");
        let complaints = log.as_array().expect("lines").iter();
        let complaints = complaints.filter(|line| line["level"] == "SEVERE");
        let complaints: Vec<_> = complaints.collect();
        assert!(complaints.is_empty(), "{complaints:#?}");
        self.client.clone().close().await.expect("it closes");
    }

    /// Runs a script in the page, and returns its result.
    pub(crate) async fn run(&self, script: &str, arguments: Vec<Value>) -> Value {
        let result = self.client.execute(script, arguments).await;
        result.unwrap_or_else(|error| panic!("{script}: {error}"))
    }

    pub(crate) async fn click(&self, css: &str) {
        eventually(&format!("a click on {css}"), LIMIT, async || {
            self.client.find(Locator::Css(css)).await?.click().await
        })
        .await;
    }

    /// Appends text to a field.
    pub(crate) async fn fill(&self, css: &str, text: &str) {
        self.press(css, text).await;
    }

    /// Presses keys on an element.
    pub(crate) async fn press(&self, css: &str, keys: &str) {
        eventually(&format!("keys on {css}"), LIMIT, async || {
            let element = self.client.find(Locator::Css(css)).await?;
            element.send_keys(keys).await
        })
        .await;
    }

    /// Presses keys where the focus is.
    pub(crate) async fn press_here(&self, keys: &str) {
        let focused = self.client.active_element().await.expect("a focus");
        focused.send_keys(keys).await.expect("keys");
    }

    pub(crate) async fn reload(&self) {
        self.client.refresh().await.expect("the page again");
    }

    /// Sets the size of the page in pixels, and dark or light colours.
    pub(crate) async fn look(&self, width: u64, height: u64, dark: bool) {
        let size = json!({ "width": width, "height": height, "deviceScaleFactor": 1, "mobile": width < 500 });
        self.tell("Emulation.setDeviceMetricsOverride", size).await;
        let scheme = if dark { "dark" } else { "light" };
        let features = json!({ "features": [{ "name": "prefers-color-scheme", "value": scheme }] });
        self.tell("Emulation.setEmulatedMedia", features).await;
    }

    /// A picture of the page, as PNG.
    pub(crate) async fn picture(&self) -> Vec<u8> {
        self.client.screenshot().await.expect("a picture")
    }

    async fn tell(&self, command: &str, parameters: Value) {
        let body = json!({ "cmd": command, "params": parameters });
        let told: Result<_, CmdError> = self
            .client
            .issue_cmd(Wire::new("goog/cdp/execute", body))
            .await;
        told.expect("the browser knows the command");
    }
}

/// A command of Chromium's driver that is not in the standard.
#[derive(Debug)]
struct Wire {
    path: &'static str,
    body: Value,
}

impl Wire {
    fn new(path: &'static str, body: Value) -> Self {
        Self { path, body }
    }
}

impl WebDriverCompatibleCommand for Wire {
    fn endpoint(&self, base: &Url, session: Option<&str>) -> Result<Url, <Url as FromStr>::Err> {
        base.join(&format!(
            "session/{}/{}",
            session.unwrap_or_default(),
            self.path
        ))
    }

    fn method_and_body(&self, _: &Url) -> (Method, Option<String>) {
        (Method::POST, Some(self.body.to_string()))
    }
}
