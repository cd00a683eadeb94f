// SPDX-License-Identifier: Apache-2.0
//! Runs the template engine where a hostile template can do no harm. The engine's own fuel bounds
//! instructions and the data they make. It doesn't see values that refer to one another unfold when
//! they are printed or hashed, nor how deep they nest. So work is done on a thread with a stack as
//! deep as fuel can nest, a budget of heap memory, and one of processor time. Rust can't end a
//! thread from
//! outside: one that exceeds its bounds sleeps for ever at its next allocation.

use std::alloc::{GlobalAlloc, Layout, System};
use std::cell::Cell;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{sync_channel, RecvTimeoutError};
use std::sync::Arc;
use std::time::Duration;

use crate::Limits;

/// Covers 500 bytes a level for what 8 million units of fuel can nest, and 2 kB a level for what
/// fits into a template file. Pages are only taken when touched.
const STACK_BYTES: usize = 1 << 30;

#[derive(Default)]
struct Watch {
    exceeded: AtomicBool,
    abandoned: AtomicBool,
}

thread_local! {
    static HEAP_LEFT: Cell<i64> = const { Cell::new(0) };
    static WATCH: Cell<*const Watch> = const { Cell::new(std::ptr::null()) };
}

struct Metered;

#[global_allocator]
static ALLOCATOR: Metered = Metered;

fn charge(size: usize) {
    let watch = WATCH.get();
    if watch.is_null() {
        return;
    }
    let left = HEAP_LEFT.get() - size as i64;
    HEAP_LEFT.set(left);
    // SAFETY: a watched thread keeps its watch alive until it clears WATCH.
    let watch = unsafe { &*watch };
    if left < 0 {
        watch.exceeded.store(true, Ordering::Release);
    }
    while left < 0 || watch.abandoned.load(Ordering::Relaxed) {
        std::thread::sleep(Duration::from_secs(3600));
    }
}

fn refund(size: usize) {
    if !WATCH.get().is_null() {
        HEAP_LEFT.set(HEAP_LEFT.get() + size as i64);
    }
}

// SAFETY: everything is passed to the system's allocator as it is.
unsafe impl GlobalAlloc for Metered {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        charge(layout.size());
        System.alloc(layout)
    }
    unsafe fn alloc_zeroed(&self, layout: Layout) -> *mut u8 {
        charge(layout.size());
        System.alloc_zeroed(layout)
    }
    unsafe fn dealloc(&self, data: *mut u8, layout: Layout) {
        refund(layout.size());
        System.dealloc(data, layout)
    }
    unsafe fn realloc(&self, data: *mut u8, layout: Layout, size: usize) -> *mut u8 {
        charge(size);
        refund(layout.size());
        System.realloc(data, layout, size)
    }
}

pub enum Stopped {
    Panicked,
    NoThread,
    /// The thread is left asleep, with what it holds.
    Exceeded,
}

/// The value of `body`, run under the bounds above.
pub fn run<T: Send + 'static>(
    limits: &Limits,
    body: impl FnOnce() -> T + Send + 'static,
) -> Result<T, Stopped> {
    let heap_bytes = i64::try_from(limits.heap_bytes).unwrap_or(i64::MAX);
    let watch = Arc::new(Watch::default());
    let (sender, receiver) = sync_channel(1);
    let watched = watch.clone();
    let thread = std::thread::Builder::new().stack_size(STACK_BYTES).spawn(move || {
        HEAP_LEFT.set(heap_bytes);
        WATCH.set(Arc::as_ptr(&watched));
        let value = body();
        WATCH.set(std::ptr::null());
        let _ = sender.send(value);
    });
    let thread = thread.map_err(|_| Stopped::NoThread)?;
    let clock = Clock::of(&thread);
    loop {
        match receiver.recv_timeout(Duration::from_millis(20)) {
            Ok(value) => {
                let _ = thread.join();
                return Ok(value);
            }
            Err(RecvTimeoutError::Disconnected) => {
                let _ = thread.join();
                return Err(Stopped::Panicked);
            }
            Err(RecvTimeoutError::Timeout) => {}
        }
        if watch.exceeded.load(Ordering::Acquire) || clock.seconds() > limits.seconds {
            watch.abandoned.store(true, Ordering::Release);
            return Err(Stopped::Exceeded);
        }
    }
}

/// Processor time of a thread, which doesn't run ahead on a busy machine; wall time where a system
/// can't tell.
struct Clock {
    #[cfg(target_os = "linux")]
    id: Option<libc::clockid_t>,
    #[cfg(not(target_os = "linux"))]
    begin: std::time::Instant,
}

#[cfg(target_os = "linux")]
impl Clock {
    fn of<T>(thread: &std::thread::JoinHandle<T>) -> Clock {
        use std::os::unix::thread::JoinHandleExt;
        let mut id: libc::clockid_t = 0;
        // SAFETY: the thread hasn't been joined, so its handle is valid.
        let code = unsafe { libc::pthread_getcpuclockid(thread.as_pthread_t(), &mut id) };
        Clock { id: (code == 0).then_some(id) }
    }
    /// 0 for a thread that has ended.
    fn seconds(&self) -> u64 {
        let mut time = libc::timespec { tv_sec: 0, tv_nsec: 0 };
        if let Some(id) = self.id {
            // SAFETY: writes to a live local, or fails and leaves it.
            unsafe { libc::clock_gettime(id, &mut time) };
        }
        u64::try_from(time.tv_sec).unwrap_or(0)
    }
}

#[cfg(not(target_os = "linux"))]
impl Clock {
    fn of<T>(_: &std::thread::JoinHandle<T>) -> Clock {
        Clock { begin: std::time::Instant::now() }
    }
    fn seconds(&self) -> u64 {
        self.begin.elapsed().as_secs()
    }
}
