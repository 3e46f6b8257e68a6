//! Owns [`size`]: the rows and columns of a terminal.

use std::io;
use std::os::fd::AsFd;

use rustix::termios::tcgetwinsize;

/// The rows and columns of a stream that is a terminal.
pub(crate) fn size(stream: impl AsFd) -> Option<(usize, usize)> {
    let size = tcgetwinsize(stream).ok()?;
    (size.ws_row > 0 && size.ws_col > 0).then(|| (size.ws_row.into(), size.ws_col.into()))
}

/// The columns of standard output; `None` if it is no terminal.
pub(crate) fn columns() -> Option<usize> {
    size(io::stdout()).map(|(_, columns)| columns)
}
