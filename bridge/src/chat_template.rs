// SPDX-License-Identifier: Apache-2.0
//! A compiled chat template and its rendering under limits.

use std::io::Write;

use minijinja::syntax::SyntaxConfig;
use minijinja::value::Serde;
use minijinja::{AutoEscape, Environment, Error, ErrorKind, Value};

use crate::{python, Code, Failure, Outcome};

const NAME: &str = "chat_template";

pub struct ChatTemplate {
    environment: Environment<'static>,
}

impl ChatTemplate {
    pub fn open(source: &str, fuel: u64) -> Outcome<ChatTemplate> {
        let mut environment = Environment::new();
        environment.set_syntax(syntax()?);
        environment.set_auto_escape_callback(|_| AutoEscape::None);
        environment.set_fuel(Some(fuel));
        python::install(&mut environment);
        environment.add_template_owned(NAME, source.to_string()).map_err(|e| {
            Failure::new(Code::Template, format!("doesn't compile, {}", describe(&e)))
        })?;
        Ok(ChatTemplate { environment })
    }

    pub fn render(&self, variables: &[u8], marks: &str, output_max: usize) -> Outcome<Vec<u8>> {
        let variables: serde_json::Map<String, serde_json::Value> =
            serde_json::from_slice(variables)
                .map_err(|e| Failure::new(Code::Invalid, format!("can't be passed on: {e}")))?;
        // A global is seen inside macros too, which a variable isn't.
        let mut environment = self.environment.clone();
        environment.add_global(python::MARKS, marks);
        let mut out = Bounded { bytes: Vec::new(), max: output_max, exceeded: false };
        let template = environment.get_template(NAME).map_err(|e| failure(&e))?;
        let error = template.render_captured_to(Value::from(Serde(variables)), &mut out).err();
        match error {
            None => Ok(out.bytes),
            Some(_) if out.exceeded => Err(Failure::new(
                Code::Limit,
                format!("wrote more than the limit of {output_max} bytes"),
            )),
            Some(e) => Err(failure(&e)),
        }
    }
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
                return Failure::new(Code::Limit, "didn't end within its limit of work and memory");
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
