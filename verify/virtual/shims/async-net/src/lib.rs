//! The sockets of `async-net`, in a virtual network.

pub use world::net::{TcpListener, TcpStream};
