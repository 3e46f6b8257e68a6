//! The sockets of `async-net`, in a virtual network. What the client sends and reads is recorded for the audit.

use std::io;
use std::pin::Pin;
use std::task::{Context, Poll, ready};

use audit::Tap;
use futures_io::{AsyncRead, AsyncWrite};
use world::net::{self, Addresses};

/// A connection of the client.
#[derive(Debug)]
pub struct TcpStream {
    stream: net::TcpStream,
    tap: Tap,
}

impl TcpStream {
    /// # Errors
    ///
    /// If nothing listens there.
    pub async fn connect(to: impl Addresses) -> io::Result<Self> {
        Ok(Self { stream: net::TcpStream::connect(to).await?, tap: Tap::default() })
    }

    pub fn set_nodelay(&self, _: bool) -> io::Result<()> {
        Ok(())
    }
}

impl AsyncRead for TcpStream {
    fn poll_read(self: Pin<&mut Self>, cx: &mut Context<'_>, buffer: &mut [u8]) -> Poll<io::Result<usize>> {
        let this = self.get_mut();
        let read = ready!(Pin::new(&mut this.stream).poll_read(cx, buffer))?;
        this.tap.read(&buffer[..read]);
        Poll::Ready(Ok(read))
    }
}

impl AsyncWrite for TcpStream {
    fn poll_write(self: Pin<&mut Self>, cx: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
        let this = self.get_mut();
        let written = ready!(Pin::new(&mut this.stream).poll_write(cx, bytes))?;
        this.tap.sent(&bytes[..written]);
        Poll::Ready(Ok(written))
    }

    fn poll_write_vectored(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        parts: &[io::IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        let this = self.get_mut();
        let written = ready!(Pin::new(&mut this.stream).poll_write_vectored(cx, parts))?;
        let mut rest = written;
        for part in parts {
            let length = part.len().min(rest);
            this.tap.sent(&part[..length]);
            rest -= length;
        }
        Poll::Ready(Ok(written))
    }

    fn poll_flush(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.get_mut().stream).poll_flush(cx)
    }

    fn poll_close(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.get_mut().stream).poll_close(cx)
    }
}
