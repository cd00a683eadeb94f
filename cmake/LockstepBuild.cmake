# SPDX-License-Identifier: Apache-2.0
# Compiler settings, and the two functions every folder uses: lockstep_module and lockstep_test.
set(CMAKE_CXX_STANDARD 20)
set(CMAKE_CXX_STANDARD_REQUIRED ON)
set(CMAKE_CXX_EXTENSIONS OFF)
set(CMAKE_EXPORT_COMPILE_COMMANDS ON)
set(CMAKE_POSITION_INDEPENDENT_CODE ON)
set(CMAKE_RUNTIME_OUTPUT_DIRECTORY ${CMAKE_BINARY_DIR}/bin)

if(NOT CMAKE_BUILD_TYPE)
  set(CMAKE_BUILD_TYPE Release)
endif()

add_library(lockstep_flags INTERFACE)
# No contraction: a fused multiply-add stands where the code says so and nowhere else.
target_compile_options(lockstep_flags INTERFACE
  -Wall -Wextra -Wpedantic -Wshadow -Wconversion -Wno-sign-conversion -Werror
  -ffp-contract=off -fno-math-errno -fvisibility=default
  # GCC 12 warns about "literal" + std::string at -O3; there is nothing to overlap.
  $<$<CXX_COMPILER_ID:GNU>:-Wno-restrict>
  # Clang warns about what stable_sort of libstdc++ 12 does inside.
  $<$<CXX_COMPILER_ID:Clang>:-Wno-deprecated-declarations>)
target_include_directories(lockstep_flags INTERFACE
  $<BUILD_INTERFACE:${PROJECT_SOURCE_DIR}>)
if(LOCKSTEP_SANITIZE)
  target_compile_options(lockstep_flags INTERFACE
    -fsanitize=${LOCKSTEP_SANITIZE} -fno-omit-frame-pointer -fno-sanitize-recover=all)
  target_link_options(lockstep_flags INTERFACE -fsanitize=${LOCKSTEP_SANITIZE})
endif()
if(LOCKSTEP_FUZZ)
  target_compile_options(lockstep_flags INTERFACE -fsanitize=fuzzer-no-link)
endif()
if(LOCKSTEP_COVERAGE)
  target_compile_options(lockstep_flags INTERFACE --coverage)
  target_link_options(lockstep_flags INTERFACE --coverage)
endif()

find_program(LOCKSTEP_CCACHE ccache)
if(LOCKSTEP_CCACHE)
  set(CMAKE_CXX_COMPILER_LAUNCHER ${LOCKSTEP_CCACHE})
endif()
find_program(LOCKSTEP_MOLD mold)
if(LOCKSTEP_MOLD)
  add_link_options(-fuse-ld=mold)
endif()

find_package(Threads REQUIRED)
if(LOCKSTEP_TESTS)
  find_package(GTest REQUIRED)
  include(GoogleTest)
endif()

# lockstep_module(NAME base SOURCES a.cpp ... DEPS lockstep_x ... [TESTS a_test.cpp ...])
# Makes the static library lockstep_NAME, and one test program lockstep_NAME_test from TESTS.
function(lockstep_module)
  cmake_parse_arguments(ARG "" "NAME" "SOURCES;DEPS;PRIVATE_DEPS;TESTS;TEST_DEPS" ${ARGN})
  add_library(lockstep_${ARG_NAME} STATIC ${ARG_SOURCES})
  target_link_libraries(lockstep_${ARG_NAME} PUBLIC ${ARG_DEPS}
    PRIVATE lockstep_flags ${ARG_PRIVATE_DEPS})
  target_include_directories(lockstep_${ARG_NAME} PUBLIC
    $<BUILD_INTERFACE:${PROJECT_SOURCE_DIR}> $<INSTALL_INTERFACE:include>)
  set_property(GLOBAL APPEND PROPERTY LOCKSTEP_MODULES lockstep_${ARG_NAME})
  if(LOCKSTEP_TESTS AND ARG_TESTS)
    lockstep_test(NAME lockstep_${ARG_NAME}_test SOURCES ${ARG_TESTS}
      DEPS lockstep_${ARG_NAME} ${ARG_TEST_DEPS})
  endif()
endfunction()

# lockstep_test(NAME x SOURCES ... DEPS ... [LABELS unit] [TIMEOUT 300])
# One CTest entry per test case; the working directory is the repository root.
function(lockstep_test)
  cmake_parse_arguments(ARG "" "NAME;LABELS;TIMEOUT" "SOURCES;DEPS" ${ARGN})
  if(NOT ARG_LABELS)
    set(ARG_LABELS unit)
  endif()
  if(NOT ARG_TIMEOUT)
    set(ARG_TIMEOUT 300)
  endif()
  if(LOCKSTEP_SANITIZE)
    math(EXPR ARG_TIMEOUT "5 * ${ARG_TIMEOUT}")
  endif()
  add_executable(${ARG_NAME} ${ARG_SOURCES})
  target_link_libraries(${ARG_NAME} PRIVATE ${ARG_DEPS} lockstep_flags
    GTest::gtest GTest::gmock GTest::gtest_main)
  gtest_discover_tests(${ARG_NAME} WORKING_DIRECTORY ${PROJECT_SOURCE_DIR}
    DISCOVERY_TIMEOUT 120 PROPERTIES LABELS ${ARG_LABELS} TIMEOUT ${ARG_TIMEOUT})
endfunction()
