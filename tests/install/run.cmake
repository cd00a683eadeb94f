# SPDX-License-Identifier: Apache-2.0
set(work ${BUILD}/install_test)
file(REMOVE_RECURSE ${work})
set(sanitize "")
if(FLAGS)
  set(sanitize "-fsanitize=${FLAGS}")
endif()
foreach(command
    "${CMAKE_COMMAND};--install;${BUILD};--prefix;${work}/prefix"
    "${CMAKE_COMMAND};-S;${SOURCE}/tests/install/example;-B;${work}/build;-G;Ninja;-DCMAKE_BUILD_TYPE=Release;-DCMAKE_CXX_COMPILER=${CXX};-DCMAKE_CXX_FLAGS=${sanitize};-DCMAKE_PREFIX_PATH=${work}/prefix"
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
