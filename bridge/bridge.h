/* SPDX-License-Identifier: Apache-2.0 */
/* The C face of the Rust crate `lockstep_bridge`: tokenizer and chat template.
 *
 * Texts are bytes with a length, not terminated. Handles and buffers belong to the caller, who
 * gives them back with the matching *_free. Every function returns a lockstep_bridge_code; unless
 * it is OK, `error` holds a sentence and `out` isn't touched. A panic inside is caught and
 * reported. Handles may be used by several threads at once. No function calls back or prints. */
#ifndef LOCKSTEP_BRIDGE_BRIDGE_H_
#define LOCKSTEP_BRIDGE_BRIDGE_H_

#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

enum lockstep_bridge_code {
  LOCKSTEP_BRIDGE_OK = 0,
  LOCKSTEP_BRIDGE_INVALID = 1,      /* the input isn't what its format says */
  LOCKSTEP_BRIDGE_INCONSISTENT = 2, /* parts of the input contradict each other */
  LOCKSTEP_BRIDGE_UNSUPPORTED = 3,  /* a feature the bridge doesn't have */
  LOCKSTEP_BRIDGE_LIMIT = 4,        /* fuel or output used up, too many tokens */
  LOCKSTEP_BRIDGE_TEMPLATE = 5,     /* the template doesn't compile, failed, or raised */
  LOCKSTEP_BRIDGE_PANIC = 6         /* a defect in the bridge or a library */
};

/* Memory of the bridge. A zeroed buffer is empty and needs no free. */
typedef struct lockstep_buffer {
  uint8_t* data;
  size_t size;
} lockstep_buffer;

void lockstep_buffer_free(lockstep_buffer buffer);

typedef struct lockstep_tokenizer lockstep_tokenizer;

/* `json` is the text of tokenizer.json. `listed` is a JSON array of {id, content, special, ...}, in
 * the order of the ids: what tokenizer_config.json lists; tokens that are only there are added
 * behind. At most `tokens_max` ids. */
int32_t lockstep_tokenizer_open(const uint8_t* json, size_t json_size, const uint8_t* listed,
                                size_t listed_size, uint32_t tokens_max, lockstep_tokenizer** out,
                                lockstep_buffer* error);
void lockstep_tokenizer_free(lockstep_tokenizer* tokenizer);

/* `out`: native uint32_t ids. With `match_added` the literals of added tokens become their ids. */
int32_t lockstep_tokenizer_encode(const lockstep_tokenizer* tokenizer, const uint8_t* text,
                                  size_t text_size, int32_t match_added, lockstep_buffer* out,
                                  lockstep_buffer* error);

/* `out`: for each id from 0 a native uint32_t length and the bytes it stands for. */
int32_t lockstep_tokenizer_vocabulary(const lockstep_tokenizer* tokenizer, lockstep_buffer* out,
                                      lockstep_buffer* error);

/* `out`: JSON array of {id, content, special}, in the order of the ids. */
int32_t lockstep_tokenizer_added(const lockstep_tokenizer* tokenizer, lockstep_buffer* out,
                                 lockstep_buffer* error);

typedef struct lockstep_template lockstep_template;

typedef struct lockstep_template_limits {
  uint64_t fuel;       /* engine steps, and 64 bytes of data each */
  uint64_t heap_bytes; /* at one time */
  uint64_t output_bytes;
  uint64_t seconds; /* of processor time, for what fuel doesn't see */
} lockstep_template_limits;

/* Compiles a Jinja chat template with the settings of Hugging Face transformers. The limits hold
 * for compiling and for each rendering; a template that exceeded heap or time isn't rendered again.
 */
int32_t lockstep_template_open(const uint8_t* source, size_t source_size,
                               lockstep_template_limits limits, lockstep_template** out,
                               lockstep_buffer* error);
void lockstep_template_free(lockstep_template* handle);

/* `variables` is a JSON object. `marks` is two characters, or nothing. Neither is ever escaped in
 * JSON. Where the second stands on both sides of a think tag in a string, splitting the string at
 * the tag drops it on both sides. */
int32_t lockstep_template_render(const lockstep_template* handle, const uint8_t* variables,
                                 size_t variables_size, const uint8_t* marks, size_t marks_size,
                                 lockstep_buffer* out, lockstep_buffer* error);

#ifdef __cplusplus
}
#endif

#endif /* LOCKSTEP_BRIDGE_BRIDGE_H_ */
