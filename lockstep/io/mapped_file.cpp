// SPDX-License-Identifier: Apache-2.0
#include "lockstep/io/mapped_file.h"

#include <cerrno>
#include <cstdint>
#include <cstring>
#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

namespace lockstep::io {
namespace {

struct Descriptor {
  int fd = -1;
  ~Descriptor() {
    if (fd >= 0) ::close(fd);
  }
};

Error system_error(const char* what, const std::string& path) {
  return Error{errno == ENOENT ? ErrorCode::kNotFound : ErrorCode::kIo,
               std::string(what) + ": " + std::strerror(errno), path};
}

}  // namespace

Result<MappedFile> MappedFile::open(const std::string& path) {
  // O_NONBLOCK: opening a named pipe must not wait for a writer.
  const Descriptor file{::open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK)};
  if (file.fd < 0) return system_error("can't be opened", path);
  struct stat info{};
  if (::fstat(file.fd, &info) != 0) return system_error("can't be examined", path);
  if (!S_ISREG(info.st_mode)) {
    return Error{ErrorCode::kIo, "is not a regular file; give the path of a file", path};
  }
  MappedFile mapped;
  if (info.st_size == 0) return mapped;
  if (static_cast<std::uint64_t>(info.st_size) > SIZE_MAX) {
    return Error{ErrorCode::kLimit, "is larger than this machine can map", path};
  }
  const auto size = static_cast<std::size_t>(info.st_size);
  void* data = ::mmap(nullptr, size, PROT_READ, MAP_PRIVATE, file.fd, 0);
  if (data == MAP_FAILED) return system_error("can't be mapped", path);
  mapped.data_ = data;
  mapped.size_ = size;
  return mapped;
}

MappedFile::~MappedFile() {
  if (data_ != nullptr) ::munmap(data_, size_);
}

}  // namespace lockstep::io
