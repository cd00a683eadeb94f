// SPDX-License-Identifier: Apache-2.0
// Every limit on input, named, in one place. Units are in the names.
#pragma once

#include <cstddef>
#include <cstdint>

namespace lockstep::limits {

inline constexpr std::size_t kKiB = 1024;
inline constexpr std::size_t kMiB = 1024 * kKiB;
inline constexpr std::size_t kGiB = 1024 * kMiB;

// Artifact files.
inline constexpr std::size_t kSafetensorsHeaderBytesMax =
    100 * kMiB;  // as the format's own library
inline constexpr std::size_t kTensorsPerFileMax = 1'000'000;
inline constexpr std::size_t kTensorRankMax = 8;
inline constexpr std::size_t kTensorNameBytesMax = 1024;
inline constexpr std::size_t kShardsMax = 4096;
inline constexpr std::size_t kJsonFileBytesMax =
    256 * kMiB;  // tokenizer.json of large vocabularies
inline constexpr std::size_t kJsonDepthMax = 128;
inline constexpr std::size_t kJsonValuesMax = 10'000'000;  // about 40 bytes each in memory
inline constexpr std::size_t kTemplateFileBytesMax = 256 * kKiB;

// Model geometry (config.json). Generous: ten times the largest of the family.
inline constexpr std::int64_t kLayersMax = 1024;
inline constexpr std::int64_t kHiddenMax = 65536;
inline constexpr std::int64_t kVocabMax = 4'000'000;
inline constexpr std::int64_t kExpertsMax = 4096;
inline constexpr std::int64_t kHeadsMax = 4096;
inline constexpr std::int64_t kHeadDimMax = 8192;
inline constexpr std::int64_t kConvKernelMax = 64;
inline constexpr std::int64_t kMtpLayersMax = 16;
inline constexpr std::int64_t kVisionPatchMax = 256;
inline constexpr std::int64_t kVisionPositionsMax = 1 << 20;
inline constexpr std::int64_t kContextTokensMax = 4'194'304;

// Requests.
inline constexpr std::size_t kPromptBytesMax = 64 * kMiB;
inline constexpr std::size_t kRequestLineBytesMax = 64 * kMiB;
inline constexpr std::size_t kResultLineBytesMax = 1 * kGiB;  // long answers with log-probabilities
inline constexpr std::size_t kStopStringsMax = 64;
inline constexpr std::size_t kStopStringBytesMax = 1024;
inline constexpr std::size_t kLogitBiasMax = 4096;
inline constexpr int kLogprobsMax = 64;
inline constexpr int kDraftDepthMax = 8;
inline constexpr int kWindowRowsMax = kDraftDepthMax + 1;  // verification rows of one sequence
inline constexpr int kSequencesMax = 1024;
inline constexpr int kThreadsMax = 1024;

// Prefill chunks end at multiples of this many tokens, or at the prompt's end.
inline constexpr std::int64_t kChunkGrain = 64;

// Chat template.
inline constexpr std::uint64_t kTemplateFuel = 8'000'000;  // steps; bounds memory to 64 bytes each
inline constexpr std::size_t kTemplateHeapBytesMax = 512 * kMiB;
inline constexpr std::size_t kTemplateOutputBytesMax = 64 * kMiB;
inline constexpr std::uint64_t kTemplateSecondsMax = 4;  // of processor time

}  // namespace lockstep::limits
