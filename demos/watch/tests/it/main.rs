//! The real binary on a real ZooKeeper: its page in headless Chromium, and its numbers.

mod chromium;
mod layout;
mod page;
mod scrape;
mod support;
