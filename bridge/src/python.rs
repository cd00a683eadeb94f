// SPDX-License-Identifier: Apache-2.0
//! What chat templates expect of Python and of Hugging Face transformers, beyond Jinja itself.

use std::ffi::CString;

use minijinja::value::{from_args, Kwargs, StringInput, ValueKind};
use minijinja::{Environment, Error, ErrorKind, State, Value};
use minijinja_contrib::pycompat;

/// Begins the error detail of raise_exception.
pub const RAISED: &str = "\u{1}raised: ";
/// The global that holds the marks (see bridge.h): the text mark, then the tag mark.
pub const MARKS: &str = "lockstep_marks";

const JSON_DEPTH_MAX: usize = 300;
const JSON_OPTION_BYTES_MAX: usize = 64;

pub fn install(environment: &mut Environment<'static>) {
    environment.add_filter("tojson", to_json);
    environment.add_filter("trim", |text: StringInput, chars: Option<&str>| {
        strip(text.as_str(), chars, true, true).to_string()
    });
    environment.add_function("raise_exception", |message: StringInput| -> Result<Value, Error> {
        Err(invalid(format!("{RAISED}{}", message.as_str())))
    });
    environment.add_function("strftime_now", strftime_now);
    environment.set_unknown_method_callback(method);
}

fn invalid(message: impl Into<std::borrow::Cow<'static, str>>) -> Error {
    Error::new(ErrorKind::InvalidOperation, message)
}

fn method(state: &mut State, value: &Value, name: &str, args: &[Value]) -> Result<Value, Error> {
    if let (Some(text), ValueKind::String) = (value.as_str(), value.kind()) {
        let sides = match name {
            "strip" => Some((true, true)),
            "lstrip" => Some((true, false)),
            "rstrip" => Some((false, true)),
            _ => None,
        };
        if let Some((left, right)) = sides {
            let (chars,): (Option<&str>,) = from_args(args)?;
            return Ok(Value::from(strip(text, chars, left, right)));
        }
    }
    let result = pycompat::unknown_method_callback(state, value, name, args)?;
    match (name, args.first().and_then(Value::as_str)) {
        ("split", Some(separator)) => drop_tag_marks(state, separator, result),
        _ => Ok(result),
    }
}

/// Python's white space has the separators U+001C to U+001F besides Unicode's.
fn is_space(c: char) -> bool {
    c.is_whitespace() || ('\u{1c}'..='\u{1f}').contains(&c)
}

fn strip<'a>(text: &'a str, chars: Option<&str>, left: bool, right: bool) -> &'a str {
    let drop = |c: char| chars.map_or_else(|| is_space(c), |chars| chars.contains(c));
    let text = if left { text.trim_start_matches(drop) } else { text };
    if right {
        text.trim_end_matches(drop)
    } else {
        text
    }
}

/// After splitting at a tag that the caller put between marks, the marks belong to the tag.
fn drop_tag_marks(state: &State, separator: &str, pieces: Value) -> Result<Value, Error> {
    let tag_mark = marks(state).chars().nth(1);
    let (Some(mark), "<think>" | "</think>") = (tag_mark, separator) else {
        return Ok(pieces);
    };
    let count = pieces.len().unwrap_or(0);
    let mut out = Vec::with_capacity(count);
    for (i, piece) in pieces.try_iter()?.enumerate() {
        let mut text = piece.as_str().unwrap_or_default();
        if i > 0 {
            text = text.strip_prefix(mark).unwrap_or(text);
        }
        if i + 1 < count {
            text = text.strip_suffix(mark).unwrap_or(text);
        }
        out.push(Value::from(text));
    }
    Ok(Value::from(out))
}

fn marks(state: &State) -> String {
    state.lookup(MARKS).map_or(String::new(), |marks| marks.to_string())
}

/// The local time by C's strftime, which Python's is too.
fn strftime_now(format: &str) -> Result<String, Error> {
    let format = CString::new(format).map_err(|_| invalid("strftime_now: a zero byte"))?;
    let mut buffer = [0u8; 1024];
    // SAFETY: all pointers are to live locals, and strftime gets the size of its buffer.
    let size = unsafe {
        let mut now: libc::time_t = 0;
        libc::time(&mut now);
        let mut parts: libc::tm = std::mem::zeroed();
        libc::localtime_r(&now, &mut parts);
        libc::strftime(buffer.as_mut_ptr().cast(), buffer.len(), format.as_ptr(), &parts)
    };
    Ok(String::from_utf8_lossy(&buffer[..size]).into_owned())
}

/// `json.dumps` with the defaults of transformers: non-ASCII kept, keys in their order.
fn to_json(state: &State, value: &Value, options: Kwargs) -> Result<String, Error> {
    let separators: Option<Vec<String>> = options.get("separators")?;
    let indent = match options.get::<Option<Value>>("indent")? {
        Some(v) if v.is_none() => None,
        Some(v) => match v.as_str() {
            Some(text) => Some(text.to_string()),
            None => Some(" ".repeat(usize::try_from(v)?.min(JSON_OPTION_BYTES_MAX + 1))),
        },
        None => None,
    };
    let (item, key) = match separators.as_deref() {
        Some([item, key]) => (item.clone(), key.clone()),
        Some(_) => return Err(invalid("tojson: separators takes two strings")),
        None => ((if indent.is_some() { "," } else { ", " }).into(), ": ".into()),
    };
    let mut writer = JsonWriter {
        state,
        ensure_ascii: options.get::<Option<bool>>("ensure_ascii")?.unwrap_or(false),
        sort_keys: options.get::<Option<bool>>("sort_keys")?.unwrap_or(false),
        indent,
        item,
        key,
        marks: marks(state),
        out: String::new(),
        charged: 0,
    };
    options.assert_all_used()?;
    let longest = writer.item.len().max(writer.key.len());
    if longest.max(writer.indent.as_ref().map_or(0, String::len)) > JSON_OPTION_BYTES_MAX {
        return Err(invalid("tojson: indent or separators are too long"));
    }
    writer.write(value, 0)?;
    Ok(writer.out)
}

struct JsonWriter<'a, 'template, 'env> {
    state: &'a State<'template, 'env>,
    ensure_ascii: bool,
    sort_keys: bool,
    indent: Option<String>,
    item: String,
    key: String,
    marks: String,
    out: String,
    charged: usize,
}

impl JsonWriter<'_, '_, '_> {
    fn write(&mut self, value: &Value, depth: usize) -> Result<(), Error> {
        if depth > JSON_DEPTH_MAX {
            return Err(invalid("tojson: the value is nested too deeply"));
        }
        self.charge()?;
        match value.kind() {
            ValueKind::None => self.out.push_str("null"),
            ValueKind::Bool => self.out.push_str(if value.is_true() { "true" } else { "false" }),
            ValueKind::Number if value.is_integer() => self.out.push_str(&value.to_string()),
            ValueKind::Number => self.out.push_str(&float(f64::try_from(value.clone())?)),
            ValueKind::String => self.string(value.as_str().unwrap_or_default()),
            ValueKind::Seq | ValueKind::Iterable => {
                let items: Vec<Value> = value.try_iter()?.checked().collect::<Result<_, _>>()?;
                self.container(('[', ']'), items.len(), depth, |writer, i| {
                    writer.write(&items[i], depth + 1)
                })?;
            }
            ValueKind::Map => {
                let mut keys: Vec<Value> = value.try_iter()?.checked().collect::<Result<_, _>>()?;
                if self.sort_keys {
                    keys.sort();
                }
                self.container(('{', '}'), keys.len(), depth, |writer, i| {
                    match keys[i].kind() {
                        ValueKind::String => writer.string(keys[i].as_str().unwrap_or_default()),
                        _ => writer.string(&keys[i].to_string()),
                    }
                    let separator = writer.key.clone();
                    writer.out.push_str(&separator);
                    writer.write(&value.get_item(&keys[i])?, depth + 1)
                })?;
            }
            kind => return Err(invalid(format!("tojson: {kind} has no JSON form"))),
        }
        Ok(())
    }

    fn container(
        &mut self,
        (open, close): (char, char),
        count: usize,
        depth: usize,
        mut item: impl FnMut(&mut Self, usize) -> Result<(), Error>,
    ) -> Result<(), Error> {
        self.out.push(open);
        for i in 0..count {
            if i > 0 {
                self.out.push_str(&self.item);
            }
            self.new_line(depth + 1);
            item(self, i)?;
        }
        if count > 0 {
            self.new_line(depth);
        }
        self.out.push(close);
        Ok(())
    }

    fn new_line(&mut self, depth: usize) {
        if let Some(indent) = &self.indent {
            self.out.push('\n');
            for _ in 0..depth {
                self.out.push_str(indent);
            }
        }
    }

    fn string(&mut self, text: &str) {
        self.out.push('"');
        for c in text.chars() {
            match c {
                '"' => self.out.push_str("\\\""),
                '\\' => self.out.push_str("\\\\"),
                '\n' => self.out.push_str("\\n"),
                '\r' => self.out.push_str("\\r"),
                '\t' => self.out.push_str("\\t"),
                '\u{8}' => self.out.push_str("\\b"),
                '\u{c}' => self.out.push_str("\\f"),
                c if c < ' ' || (self.ensure_ascii && c > '~' && !self.marks.contains(c)) => {
                    for unit in c.encode_utf16(&mut [0; 2]) {
                        self.out.push_str(&format!("\\u{unit:04x}"));
                    }
                }
                c => self.out.push(c),
            }
        }
        self.out.push('"');
    }

    /// What a filter returns is charged only when it is done, and shared values can unfold to far
    /// more than they occupy.
    fn charge(&mut self) -> Result<(), Error> {
        let grown = (self.out.len() - self.charged) / 64;
        self.charged += grown * 64;
        self.state.consume_fuel(1 + grown as u64)
    }
}

/// The shortest digits that read back, in Python's form: 1e+16, 1e-05, 0.0001, 2.0.
fn float(value: f64) -> String {
    let text = format!("{value:?}");
    match text.split_once('e') {
        None => text,
        Some((digits, exponent)) => {
            let (sign, size) = match exponent.strip_prefix('-') {
                Some(size) => ('-', size),
                None => ('+', exponent),
            };
            format!("{digits}e{sign}{size:0>2}")
        }
    }
}
