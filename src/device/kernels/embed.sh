#!/bin/sh
# An assembler file that holds a file's bytes and a 0 as coll_ptx; without a file, the 0 alone. Written anew with the
# file, because no compiler's list of dependencies names what .incbin reads.
#
# usage: embed.sh OUTPUT [FILE]
set -eu
{
	echo '.section .rodata'
	echo '.balign 16'
	echo '.globl coll_ptx'
	echo '.hidden coll_ptx'
	echo '.type coll_ptx, %object'
	echo 'coll_ptx:'
	[ $# -lt 2 ] || echo ".incbin \"$(realpath "$2")\""
	echo '.byte 0'
	echo '.size coll_ptx, . - coll_ptx'
	echo '.section .note.GNU-stack, "", %progbits'
} >"$1"
