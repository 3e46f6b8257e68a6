//! Simulated servers in the foreground: `cargo run -p zookeeper-simulation -- --port 2181`. More ports are more servers.

use std::error::Error;

use zookeeper_simulation::{Config, Server};

#[tokio::main]
async fn main() -> Result<(), Box<dyn Error>> {
    let mut ports = Vec::new();
    let mut arguments = std::env::args().skip(1);
    while let Some(argument) = arguments.next() {
        match (argument.as_str(), arguments.next()) {
            ("--port", Some(port)) => ports.push(port.parse()?),
            _ => return Err("usage: simulation [--port PORT]...".into()),
        }
    }
    if ports.is_empty() {
        ports.push(0);
    }
    let server = Server::start_with(Config::default(), &ports)?;
    println!("{}", server.address());
    std::future::pending().await
}
