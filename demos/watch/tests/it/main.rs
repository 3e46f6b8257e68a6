//! The real binary on a real ZooKeeper: its pages in headless Chromium, and its numbers.

mod chromium;
mod connection;
mod history;
mod layout;
mod list;
mod page;
mod rate;
mod scrape;
mod support;
#[cfg(feature = "tls")]
mod tls;
