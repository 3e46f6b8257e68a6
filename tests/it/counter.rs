//! Servers whose counters are almost at their end. Without help it takes a server weeks to get there.

use testbed::Server;

pub(crate) const PATH: &str = "/end/lock";

/// A server whose next number is `next` under each of these paths.
pub(crate) async fn server(paths: &[String], next: i32) -> Server {
    let builder = paths.iter().fold(Server::builder(), |builder, path| builder.counter(path, next));
    builder.start().await.expect("a server")
}

/// The number at the end of a contender's name.
pub(crate) fn number(name: &str) -> i32 {
    let separators = ["-lock-", "-latch-", "-lease-", "__READ__", "__WRIT__"];
    let number = separators.iter().find_map(|separator| name.rsplit_once(separator)).expect("a contender").1;
    number.parse().expect("a number")
}
