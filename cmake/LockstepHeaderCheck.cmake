# SPDX-License-Identifier: Apache-2.0
# Target header_check: compiles each header alone, so that none leans on what was included before.
file(GLOB_RECURSE headers RELATIVE ${PROJECT_SOURCE_DIR} CONFIGURE_DEPENDS
  ${PROJECT_SOURCE_DIR}/lockstep/*.h)
list(FILTER headers EXCLUDE REGEX "_inl\\.h$")  # bodies that are included once per instruction set
set(units "")
foreach(header ${headers})
  string(MAKE_C_IDENTIFIER ${header} name)
  set(unit ${PROJECT_BINARY_DIR}/header_check/${name}.cpp)
  file(CONFIGURE OUTPUT ${unit} CONTENT "#include \"${header}\"\n#include \"${header}\"\n")
  list(APPEND units ${unit})
endforeach()
if(units)
  add_library(header_check OBJECT EXCLUDE_FROM_ALL ${units})
  target_link_libraries(header_check PRIVATE lockstep_flags)
endif()
