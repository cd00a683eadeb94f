// SPDX-License-Identifier: Apache-2.0
//! The `tokenizers` library, opened with checks on what the file states.

use std::collections::HashMap;

use serde::{Deserialize, Serialize};
use tokenizers::tokenizer::{
    AddedToken, Model, Normalizer, OffsetType, PreTokenizedString, PreTokenizer,
};
use tokenizers::NormalizedString;

use crate::{Code, Failure, Outcome};

pub struct Tokenizer {
    library: tokenizers::Tokenizer,
    added: Vec<Stated>, // by id
    size: u32,
}

/// An added token as a file states it.
#[derive(Deserialize, Serialize, Clone)]
struct Stated {
    id: u32,
    content: String,
    #[serde(default)]
    special: bool,
    #[serde(default, skip_serializing)]
    single_word: bool,
    #[serde(default, skip_serializing)]
    lstrip: bool,
    #[serde(default, skip_serializing)]
    rstrip: bool,
    #[serde(default, skip_serializing)]
    normalized: bool,
}

/// The parts of tokenizer.json that are checked here.
#[derive(Deserialize)]
struct Outline {
    #[serde(default)]
    added_tokens: Vec<Stated>,
    decoder: Option<Kind>,
    model: Option<Kind>,
}

#[derive(Deserialize)]
struct Kind {
    r#type: Option<String>,
}

impl Kind {
    fn name(kind: &Option<Kind>) -> &str {
        kind.as_ref().and_then(|k| k.r#type.as_deref()).unwrap_or("none")
    }
}

fn invalid(e: impl std::fmt::Display) -> Failure {
    Failure::new(Code::Invalid, format!("isn't a tokenizer the library can read: {e}"))
}

impl Tokenizer {
    pub fn open(json: &[u8], listed: &[u8], tokens_max: u32) -> Outcome<Tokenizer> {
        let outline: Outline = serde_json::from_slice(json).map_err(invalid)?;
        let (model, decoder) = (Kind::name(&outline.model), Kind::name(&outline.decoder));
        if model != "BPE" || decoder != "ByteLevel" {
            return Err(Failure::new(
                Code::Unsupported,
                format!("has model {model} with decoder {decoder}; BPE with ByteLevel is needed"),
            ));
        }
        let mut library = tokenizers::Tokenizer::from_bytes(json).map_err(invalid)?;
        library.with_truncation(None).map_err(invalid)?;
        library.with_padding(None);

        let mut added = outline.added_tokens;
        let listed: Vec<Stated> = serde_json::from_slice(listed).map_err(invalid)?;
        let known: HashMap<String, u32> =
            added.iter().map(|token| (token.content.clone(), token.id)).collect();
        for token in listed {
            match known.get(&token.content) {
                Some(&id) if id == token.id => continue,
                Some(&id) => {
                    return Err(Failure::new(
                        Code::Inconsistent,
                        format!(
                            "added token {:?} has id {id} here and {} in tokenizer_config.json",
                            token.content, token.id
                        ),
                    ))
                }
                None => {}
            }
            let new =
                AddedToken::from(token.content.clone(), token.special).normalized(token.normalized);
            library.add_tokens([new]).map_err(invalid)?;
            added.push(token);
        }
        added.sort_by_key(|token| token.id);
        check_added(&library, &added)?;

        let largest = library.get_vocab(true).into_values().max();
        let size = largest.map_or(0, |id| id.saturating_add(1));
        if size > tokens_max {
            return Err(Failure::new(
                Code::Limit,
                format!("has token id {}; at most {tokens_max} ids are taken", size - 1),
            ));
        }
        Ok(Tokenizer { library, added, size })
    }

    pub fn encode(&self, text: &str, match_added: bool) -> Outcome<Vec<u32>> {
        let encoding = if match_added {
            self.library.encode_fast(text, false).map_err(invalid)?
        } else {
            let mut normalized = NormalizedString::from(text);
            if let Some(normalizer) = self.library.get_normalizer() {
                normalizer.normalize(&mut normalized).map_err(invalid)?;
            }
            let mut pieces = PreTokenizedString::from(normalized);
            if let Some(pre_tokenizer) = self.library.get_pre_tokenizer() {
                pre_tokenizer.pre_tokenize(&mut pieces).map_err(invalid)?;
            }
            let model = self.library.get_model();
            pieces.tokenize(|piece| model.tokenize(piece.get())).map_err(invalid)?;
            pieces.into_encoding(None, 0, OffsetType::None).map_err(invalid)?
        };
        Ok(encoding.get_ids().to_vec())
    }

    pub fn vocabulary(&self) -> Outcome<Vec<u8>> {
        let bytes_of = byte_alphabet();
        let mut out = Vec::new();
        let mut next_added = self.added.iter().peekable();
        for id in 0..self.size {
            let token = match next_added.next_if(|token| token.id == id) {
                Some(token) => token.content.clone().into_bytes(),
                None => decode_bytes(&self.library.id_to_token(id).unwrap_or_default(), &bytes_of)
                    .ok_or_else(|| {
                        Failure::new(
                            Code::Unsupported,
                            format!(
                                "has token {id}, which isn't written in the byte-level alphabet"
                            ),
                        )
                    })?,
            };
            out.extend((token.len() as u32).to_ne_bytes());
            out.extend(token);
        }
        Ok(out)
    }

    pub fn added(&self) -> Outcome<Vec<u8>> {
        serde_json::to_vec(&self.added).map_err(invalid)
    }
}

/// The library numbers added tokens on from the vocabulary, whatever id the file states.
fn check_added(library: &tokenizers::Tokenizer, added: &[Stated]) -> Outcome<()> {
    for (i, token) in added.iter().enumerate() {
        let name = &token.content;
        if name.is_empty() {
            return Err(Failure::new(Code::Invalid, format!("added token {} is empty", token.id)));
        }
        if token.single_word || token.lstrip || token.rstrip {
            return Err(Failure::new(
                Code::Unsupported,
                format!(
                    "added token {name:?} sets single_word, lstrip or rstrip; only plain ones are \
                     taken"
                ),
            ));
        }
        if i > 0 && added[i - 1].id == token.id {
            return Err(Failure::new(
                Code::Inconsistent,
                format!(
                    "added tokens {:?} and {name:?} both state id {}",
                    added[i - 1].content,
                    token.id
                ),
            ));
        }
        let loaded = library.token_to_id(name);
        if loaded != Some(token.id) {
            let loaded = loaded.map_or("none".to_string(), |id| id.to_string());
            return Err(Failure::new(
                Code::Inconsistent,
                format!(
                    "added token {name:?} states id {}, but the tokenizer library gives it \
                     {loaded}; restore the missing or reordered added tokens",
                    token.id
                ),
            ));
        }
    }
    Ok(())
}

/// The characters that byte-level BPE writes bytes with: printable Latin-1 stands for itself, the
/// other bytes follow from U+0100 on.
fn byte_alphabet() -> HashMap<char, u8> {
    let mut next = 0x100;
    (0..=255u8)
        .map(|byte| match byte {
            0x21..=0x7e | 0xa1..=0xac | 0xae..=0xff => (char::from(byte), byte),
            _ => {
                next += 1;
                (char::from_u32(next - 1).expect("below U+0200"), byte)
            }
        })
        .collect()
}

fn decode_bytes(token: &str, alphabet: &HashMap<char, u8>) -> Option<Vec<u8>> {
    token.chars().map(|c| alphabet.get(&c).copied()).collect()
}
