# SPDX-License-Identifier: Apache-2.0
# Script: merges the static libraries INPUTS into OUTPUT with AR. Members that are named alike in
# two archives are all kept.
get_filename_component(folder ${OUTPUT} DIRECTORY)
file(MAKE_DIRECTORY ${folder})
file(REMOVE ${OUTPUT})
# An MRI script can't hold every path; links beside the output have plain names.
set(script "create liblockstep.a\n")
set(index 0)
foreach(input ${INPUTS})
  math(EXPR index "${index} + 1")
  file(CREATE_LINK ${input} ${folder}/part${index}.a SYMBOLIC)
  string(APPEND script "addlib part${index}.a\n")
endforeach()
string(APPEND script "save\nend\n")
file(WRITE ${folder}/merge.mri "${script}")
execute_process(COMMAND ${AR} -M INPUT_FILE ${folder}/merge.mri WORKING_DIRECTORY ${folder}
  COMMAND_ERROR_IS_FATAL ANY)
foreach(number RANGE 1 ${index})
  file(REMOVE ${folder}/part${number}.a)
endforeach()
file(REMOVE ${folder}/merge.mri)
