#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# Puts a library in place by rename, so that processes which have the old one mapped keep it.
set -e
name=$(basename "$1")
cmp -s "$1" "$2/$name" && exit 0
cp "$1" "$2/.$name.$$" && mv "$2/.$name.$$" "$2/$name"
echo "installed $2/$name"
