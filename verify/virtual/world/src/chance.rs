//! The random numbers of the C library and of hash maps, on the thread of a world.

use std::cell::RefCell;

use libc::{c_uint, c_void, size_t, ssize_t};

thread_local! {
    static RANDOM: RefCell<Option<fastrand::Rng>> = const { RefCell::new(None) };
}

pub(crate) struct Here;

impl Here {
    pub(crate) fn enter(seed: u64) -> Self {
        RANDOM.set(Some(fastrand::Rng::with_seed(seed)));
        // The client shuffles its hosts by it.
        fastrand::seed(seed);
        Self
    }
}

impl Drop for Here {
    fn drop(&mut self) {
        RANDOM.set(None);
    }
}

/// In place of that of the C library.
///
/// # Safety
///
/// As there.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn getrandom(buffer: *mut c_void, length: size_t, flags: c_uint) -> ssize_t {
    let is_filled = RANDOM.try_with(|random| {
        let mut random = random.borrow_mut();
        let Some(random) = random.as_mut() else { return false };
        // SAFETY: the caller gives a buffer of this length.
        random.fill(unsafe { std::slice::from_raw_parts_mut(buffer.cast(), length) });
        true
    });
    if is_filled.unwrap_or(false) {
        return length as ssize_t;
    }
    // SAFETY: the arguments are the caller's.
    unsafe { libc::syscall(libc::SYS_getrandom, buffer, length, flags) as ssize_t }
}

/// By which branch a `select!` of the client begins.
#[unsafe(no_mangle)]
pub extern "C" fn virtual_world_chance() -> usize {
    let chance = RANDOM.try_with(|random| random.borrow_mut().as_mut().map(|random| random.usize(..)));
    chance.ok().flatten().unwrap_or_default()
}

/// In place of that of the C library: the library shows it in its nodes.
#[unsafe(no_mangle)]
pub extern "C" fn getpid() -> libc::pid_t {
    let is_here = RANDOM.try_with(|random| random.try_borrow().is_ok_and(|random| random.is_some()));
    // SAFETY: it has no conditions.
    if is_here.unwrap_or(false) { 4242 } else { unsafe { libc::syscall(libc::SYS_getpid) as libc::pid_t } }
}
