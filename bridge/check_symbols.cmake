# SPDX-License-Identifier: Apache-2.0
# Fails unless the functions of bridge.h are exactly the lockstep_* symbols of the library.
execute_process(COMMAND ${NM} -g --defined-only ${LIBRARY}
  OUTPUT_VARIABLE symbols ERROR_QUIET COMMAND_ERROR_IS_FATAL ANY)
string(REGEX MATCHALL " T lockstep_[a-z_]+" exported "${symbols}")
list(TRANSFORM exported REPLACE " T " "")
file(READ ${HEADER} header)
string(REGEX MATCHALL "lockstep_[a-z_]+\\(" declared "${header}")
list(TRANSFORM declared REPLACE "\\(" "")
list(REMOVE_DUPLICATES exported)
list(REMOVE_DUPLICATES declared)
list(SORT exported)
list(SORT declared)
if(NOT declared OR NOT "${declared}" STREQUAL "${exported}")
  message(FATAL_ERROR "bridge.h declares ${declared}\nbut the library exports ${exported}")
endif()
