// SPDX-License-Identifier: Apache-2.0
//! Tokenizer and chat template for C++. `bridge.h` is the contract of every function here.

mod chat_template;
mod guard;
mod python;
mod tokenizer;

use std::panic::{catch_unwind, AssertUnwindSafe};
use std::sync::Once;

use chat_template::ChatTemplate;
use tokenizer::Tokenizer;

#[repr(i32)]
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Code {
    Ok = 0,
    Invalid = 1,
    Inconsistent = 2,
    Unsupported = 3,
    Limit = 4,
    Template = 5,
    Panic = 6,
}

#[derive(Debug)]
pub struct Failure {
    pub code: Code,
    pub message: String,
}

impl Failure {
    pub fn new(code: Code, message: impl Into<String>) -> Failure {
        Failure { code, message: message.into() }
    }
}

pub type Outcome<T> = Result<T, Failure>;

#[repr(C)]
#[derive(Clone, Copy)]
pub struct Limits {
    pub fuel: u64,
    pub heap_bytes: u64,
    pub output_bytes: u64,
    pub seconds: u64,
}

#[repr(C)]
pub struct Buffer {
    data: *mut u8,
    size: usize,
}

impl Buffer {
    fn new(bytes: Vec<u8>) -> Buffer {
        let slice = Box::leak(bytes.into_boxed_slice());
        Buffer { data: slice.as_mut_ptr(), size: slice.len() }
    }
}

/// # Safety
/// `data` points to `size` readable bytes, or `size` is 0.
unsafe fn bytes<'a>(data: *const u8, size: usize) -> &'a [u8] {
    if size == 0 {
        &[]
    } else {
        std::slice::from_raw_parts(data, size)
    }
}

fn text(bytes: &[u8]) -> Outcome<&str> {
    std::str::from_utf8(bytes).map_err(|e| {
        Failure::new(Code::Invalid, format!("isn't valid UTF-8 at byte {}", e.valid_up_to()))
    })
}

/// Runs `body`, stores its value or its error, and keeps panics on this side of the border.
///
/// # Safety
/// `out` and `error` are writable.
unsafe fn guarded<T>(out: *mut T, error: *mut Buffer, body: impl FnOnce() -> Outcome<T>) -> i32 {
    static QUIET: Once = Once::new();
    QUIET.call_once(|| std::panic::set_hook(Box::new(|_| {})));
    let failure = match catch_unwind(AssertUnwindSafe(body)) {
        Ok(Ok(value)) => {
            out.write(value);
            return Code::Ok as i32;
        }
        Ok(Err(failure)) => failure,
        Err(payload) => {
            let what = payload
                .downcast_ref::<String>()
                .cloned()
                .or_else(|| payload.downcast_ref::<&str>().map(|s| s.to_string()))
                .unwrap_or_default();
            Failure::new(Code::Panic, format!("the bridge failed inside: {what}"))
        }
    };
    error.write(Buffer::new(failure.message.into_bytes()));
    failure.code as i32
}

/// # Safety
/// `buffer` came from this library and isn't used again.
#[no_mangle]
pub unsafe extern "C" fn lockstep_buffer_free(buffer: Buffer) {
    if !buffer.data.is_null() {
        drop(Box::from_raw(std::ptr::slice_from_raw_parts_mut(buffer.data, buffer.size)));
    }
}

/// # Safety
/// As bridge.h says.
#[no_mangle]
pub unsafe extern "C" fn lockstep_tokenizer_open(
    json: *const u8,
    json_size: usize,
    listed: *const u8,
    listed_size: usize,
    tokens_max: u32,
    out: *mut *mut Tokenizer,
    error: *mut Buffer,
) -> i32 {
    guarded(out, error, || {
        let opened =
            Tokenizer::open(bytes(json, json_size), bytes(listed, listed_size), tokens_max)?;
        Ok(Box::into_raw(Box::new(opened)))
    })
}

/// # Safety
/// `tokenizer` came from lockstep_tokenizer_open, or is null, and isn't used again.
#[no_mangle]
pub unsafe extern "C" fn lockstep_tokenizer_free(tokenizer: *mut Tokenizer) {
    if !tokenizer.is_null() {
        drop(Box::from_raw(tokenizer));
    }
}

/// # Safety
/// As bridge.h says.
#[no_mangle]
pub unsafe extern "C" fn lockstep_tokenizer_encode(
    tokenizer: *const Tokenizer,
    input: *const u8,
    input_size: usize,
    match_added: i32,
    out: *mut Buffer,
    error: *mut Buffer,
) -> i32 {
    guarded(out, error, || {
        let ids = (*tokenizer).encode(text(bytes(input, input_size))?, match_added != 0)?;
        Ok(Buffer::new(ids.iter().flat_map(|id| id.to_ne_bytes()).collect()))
    })
}

/// # Safety
/// As bridge.h says.
#[no_mangle]
pub unsafe extern "C" fn lockstep_tokenizer_vocabulary(
    tokenizer: *const Tokenizer,
    out: *mut Buffer,
    error: *mut Buffer,
) -> i32 {
    guarded(out, error, || Ok(Buffer::new((*tokenizer).vocabulary()?)))
}

/// # Safety
/// As bridge.h says.
#[no_mangle]
pub unsafe extern "C" fn lockstep_tokenizer_added(
    tokenizer: *const Tokenizer,
    out: *mut Buffer,
    error: *mut Buffer,
) -> i32 {
    guarded(out, error, || Ok(Buffer::new((*tokenizer).added()?)))
}

/// # Safety
/// As bridge.h says.
#[no_mangle]
pub unsafe extern "C" fn lockstep_template_open(
    source: *const u8,
    source_size: usize,
    limits: Limits,
    out: *mut *mut ChatTemplate,
    error: *mut Buffer,
) -> i32 {
    guarded(out, error, || {
        let opened = ChatTemplate::open(text(bytes(source, source_size))?, limits)?;
        Ok(Box::into_raw(Box::new(opened)))
    })
}

/// # Safety
/// `handle` came from lockstep_template_open, or is null, and isn't used again.
#[no_mangle]
pub unsafe extern "C" fn lockstep_template_free(handle: *mut ChatTemplate) {
    if !handle.is_null() {
        drop(Box::from_raw(handle));
    }
}

/// # Safety
/// As bridge.h says.
#[no_mangle]
pub unsafe extern "C" fn lockstep_template_render(
    handle: *const ChatTemplate,
    variables: *const u8,
    variables_size: usize,
    marks: *const u8,
    marks_size: usize,
    out: *mut Buffer,
    error: *mut Buffer,
) -> i32 {
    guarded(out, error, || {
        let marks = text(bytes(marks, marks_size))?;
        let rendered = (*handle).render(bytes(variables, variables_size), marks)?;
        Ok(Buffer::new(rendered))
    })
}
