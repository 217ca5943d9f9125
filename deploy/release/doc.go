// Command release builds what a release is made of: for each platform an archive with starter, for
// Linux also worker, completion for bash, zsh and fish, and man pages; and the checksums of the
// archives.
//
//	go run ./deploy/release                          # into dist, for all platforms
//	go run ./deploy/release --only linux/arm64 --out /tmp/dist
//
// The version is the one that Go stamps: the tag of the commit, or a pseudo-version. Two builds of
// one commit by one version of Go are equal byte for byte.
package main
