#!/bin/sh
# Makes a Debian root filesystem as the tar file $1: a C compiler, the source of less below /src/less, and below
# /packages, not installed, the library that less lacks. Everything comes from Debian's archive, as root.
set -eu
exec mmdebstrap --mode=root --quiet --variant=minbase --include=gcc,libc6-dev,make --dpkgopt=force-unsafe-io \
	--customize-hook='sed -i "s/^deb \(.*\)/&\ndeb-src \1/" "$1/etc/apt/sources.list"' \
	--customize-hook='mkdir -p "$1/packages/partial" "$1/src/less"' \
	--customize-hook='chroot "$1" apt-get -q update' \
	--customize-hook='chroot "$1" apt-get -qy --no-install-recommends --download-only -o Dir::Cache::archives=/packages install libncurses-dev' \
	--customize-hook='chroot "$1" sh -c "cd /src && apt-get -q source --download-only less && tar xzf less_*.orig.tar.gz -C less --strip-components=1"' \
	bookworm "$1"
