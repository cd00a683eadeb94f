// SPDX-License-Identifier: Apache-2.0
//! A compiled chat template and its rendering under limits.

use std::io::Write;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::Arc;

use minijinja::syntax::SyntaxConfig;
use minijinja::value::Serde;
use minijinja::{AutoEscape, Environment, Error, ErrorKind, Value};

use crate::guard::{self, Stopped};
use crate::{python, Code, Failure, Limits, Outcome};

const NAME: &str = "chat_template";

pub struct ChatTemplate {
    environment: Arc<Environment<'static>>,
    limits: Limits,
    exhausted: AtomicBool,
}

impl ChatTemplate {
    pub fn open(source: &str, limits: Limits) -> Outcome<ChatTemplate> {
        let source = source.to_string();
        let environment = guarded(&limits, move || compile(source, limits.fuel))??;
        let environment = Arc::new(environment);
        Ok(ChatTemplate { environment, limits, exhausted: AtomicBool::new(false) })
    }

    pub fn render(&self, variables: &[u8], marks: &str) -> Outcome<Vec<u8>> {
        // A thread that was given up stays. One is enough.
        if self.exhausted.load(Ordering::Relaxed) {
            return Err(exceeded());
        }
        let variables: serde_json::Map<String, serde_json::Value> =
            serde_json::from_slice(variables)
                .map_err(|e| Failure::new(Code::Invalid, format!("can't be passed on: {e}")))?;
        let variables = Value::from(Serde(variables));
        // A global is seen inside macros too, which a variable isn't.
        let mut environment = Environment::clone(&self.environment);
        environment.add_global(python::MARKS, marks);
        let output_max = usize::try_from(self.limits.output_bytes).unwrap_or(usize::MAX);
        let result = guarded(&self.limits, move || write(&environment, variables, output_max));
        if matches!(&result, Err(failure) if failure.code == Code::Limit) {
            self.exhausted.store(true, Ordering::Relaxed);
        }
        result?
    }
}

fn compile(source: String, fuel: u64) -> Outcome<Environment<'static>> {
    let mut environment = Environment::new();
    environment.set_syntax(syntax()?);
    environment.set_auto_escape_callback(|_| AutoEscape::None);
    environment.set_fuel(Some(fuel));
    python::install(&mut environment);
    environment
        .add_template_owned(NAME, source)
        .map_err(|e| Failure::new(Code::Template, format!("doesn't compile, {}", describe(&e))))?;
    Ok(environment)
}

fn write(environment: &Environment, variables: Value, output_max: usize) -> Outcome<Vec<u8>> {
    let mut out = Bounded { bytes: Vec::new(), max: output_max, exceeded: false };
    let template = environment.get_template(NAME).map_err(|e| failure(&e))?;
    let error = template.render_captured_to(variables, &mut out).err();
    match error {
        None => Ok(out.bytes),
        Some(_) if out.exceeded => Err(Failure::new(
            Code::Limit,
            format!("wrote more than the limit of {output_max} bytes"),
        )),
        Some(e) => Err(failure(&e)),
    }
}

fn guarded<T: Send + 'static>(
    limits: &Limits,
    body: impl FnOnce() -> T + Send + 'static,
) -> Outcome<T> {
    guard::run(limits, body).map_err(|stopped| match stopped {
        Stopped::Exceeded => exceeded(),
        Stopped::Panicked => Failure::new(Code::Panic, "failed inside the template engine"),
        Stopped::NoThread => Failure::new(Code::Panic, "can't run: no thread could be started"),
    })
}

fn exceeded() -> Failure {
    Failure::new(Code::Limit, "didn't end within its limit of work and memory")
}

/// The white space settings of Hugging Face transformers.
fn syntax() -> Outcome<SyntaxConfig> {
    SyntaxConfig::builder()
        .trim_blocks(true)
        .lstrip_blocks(true)
        .build()
        .map_err(|e| Failure::new(Code::Template, describe(&e)))
}

struct Bounded {
    bytes: Vec<u8>,
    max: usize,
    exceeded: bool,
}

impl Write for Bounded {
    fn write(&mut self, data: &[u8]) -> std::io::Result<usize> {
        if data.len() > self.max - self.bytes.len() {
            self.exceeded = true;
            return Err(std::io::ErrorKind::OutOfMemory.into());
        }
        self.bytes.extend_from_slice(data);
        Ok(data.len())
    }
    fn flush(&mut self) -> std::io::Result<()> {
        Ok(())
    }
}

fn failure(error: &Error) -> Failure {
    let mut cause: Option<&dyn std::error::Error> = Some(error);
    while let Some(e) = cause {
        match e.downcast_ref::<Error>() {
            Some(e) if e.kind() == ErrorKind::OutOfFuel => {
                return exceeded();
            }
            Some(e) => {
                if let Some(raised) = e.detail().and_then(|d| d.strip_prefix(python::RAISED)) {
                    return Failure::new(
                        Code::Template,
                        format!("refused the conversation: {raised}"),
                    );
                }
            }
            None => {}
        }
        cause = e.source();
    }
    Failure::new(Code::Template, format!("failed, {}", describe(error)))
}

fn describe(error: &Error) -> String {
    let line = error.line().map_or(String::new(), |line| format!("line {line}: "));
    match error.detail() {
        Some(detail) => format!("{line}{}: {detail}", error.kind()),
        None => format!("{line}{}", error.kind()),
    }
}
