//! Threads that a world starts: each has ended before the call that starts it returns, so the world does not depend on its speed.

use std::ffi::c_void;
use std::sync::mpsc::{Sender, channel};

use libc::{c_int, pthread_attr_t, pthread_t};

use crate::clock::elapsed;

type Start = extern "C" fn(*mut c_void) -> *mut c_void;
type Create = unsafe extern "C" fn(*mut pthread_t, *const pthread_attr_t, Start, *mut c_void) -> c_int;

/// What a thread runs.
struct Work {
    start: Start,
    argument: *mut c_void,
    ended: Sender<()>,
}

extern "C" fn run(work: *mut c_void) -> *mut c_void {
    // SAFETY: it was made for this call.
    let work = unsafe { Box::from_raw(work.cast::<Work>()) };
    let result = (work.start)(work.argument);
    // Nobody listens if the thread was not started by a world.
    _ = work.ended.send(());
    result
}

/// In place of that of the C library.
///
/// # Safety
///
/// As there.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn pthread_create(
    thread: *mut pthread_t,
    attributes: *const pthread_attr_t,
    start: Start,
    argument: *mut c_void,
) -> c_int {
    // SAFETY: it is the function of this name and type that comes after this one.
    let create: Create = unsafe { std::mem::transmute(libc::dlsym(libc::RTLD_NEXT, c"pthread_create".as_ptr())) };
    if elapsed().is_none() {
        // SAFETY: the arguments are the caller's.
        return unsafe { create(thread, attributes, start, argument) };
    }
    let (ended, has_ended) = channel();
    let work = Box::into_raw(Box::new(Work { start, argument, ended }));
    // SAFETY: as above; `run` takes what it is given.
    let code = unsafe { create(thread, attributes, run, work.cast()) };
    if code == 0 {
        _ = has_ended.recv();
    } else {
        // SAFETY: no thread has it.
        drop(unsafe { Box::from_raw(work) });
    }
    code
}
