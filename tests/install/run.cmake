# SPDX-License-Identifier: Apache-2.0
set(work ${BUILD}/install_test)
file(REMOVE_RECURSE ${work})
set(sanitize "")
if(FLAGS)
  set(sanitize "-fsanitize=${FLAGS}")
endif()
set(configure
  ${CMAKE_COMMAND} -S ${SOURCE}/tests/install/example -B ${work}/build -G Ninja
  -D CMAKE_BUILD_TYPE=Release -D CMAKE_CXX_COMPILER=${CXX} -D CMAKE_CXX_FLAGS=${sanitize}
  -D CMAKE_PREFIX_PATH=${work}/prefix)
foreach(command
    "${CMAKE_COMMAND};--install;${BUILD};--prefix;${work}/prefix"
    "${configure}"
    "${CMAKE_COMMAND};--build;${work}/build"
    "${work}/build/example;${SOURCE}/models/demo"
    "${work}/prefix/bin/lockstep;inspect;${SOURCE}/models/demo")
  execute_process(COMMAND ${command} RESULT_VARIABLE status OUTPUT_VARIABLE output
    ERROR_VARIABLE output)
  if(NOT status EQUAL 0)
    message(FATAL_ERROR "'${command}' ended with ${status}:\n${output}")
  endif()
endforeach()
message(STATUS "installed, linked and run")
