// SPDX-License-Identifier: Apache-2.0
#include "lockstep/base/result.h"

namespace lockstep {

const char* error_code_name(ErrorCode code) {
  switch (code) {
    case ErrorCode::kInvalidArgument:
      return "invalid_argument";
    case ErrorCode::kNotFound:
      return "not_found";
    case ErrorCode::kIo:
      return "io";
    case ErrorCode::kFormat:
      return "format";
    case ErrorCode::kInconsistent:
      return "inconsistent";
    case ErrorCode::kLimit:
      return "limit";
    case ErrorCode::kUnsupported:
      return "unsupported";
    case ErrorCode::kTemplate:
      return "template";
    case ErrorCode::kCancelled:
      return "cancelled";
  }
  return "unknown";
}

std::string Error::to_string() const {
  return where.empty() ? message : where + ": " + message;
}

}  // namespace lockstep
