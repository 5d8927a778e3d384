#!/bin/bash
# Print TMPDIR=FOLDER for a folder in memory that has a gigabyte free and lets programs run: containers often allow neither.

folder=$(mktemp -d /dev/shm/try.XXXXXX 2>/dev/null) || exit 0
trap 'rm -rf -- "$folder"' EXIT
printf '#!/bin/sh\n' >"$folder/program" && chmod 700 "$folder/program" && "$folder/program" 2>/dev/null || exit 0
free=$(df -Pk "$folder" | awk 'NR == 2 {print $4}')
if ((free > 1000000)); then echo TMPDIR=/dev/shm; fi
