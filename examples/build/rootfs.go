package main

import (
	"context"
	"crypto/sha256"
	_ "embed"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
)

//go:embed rootfs.sh
var script string

// errNoDebian means that this machine cannot make the root filesystem.
var errNoDebian = errors.New("the root filesystem is made by mmdebstrap, as root: apt-get install mmdebstrap")

// rootfs returns the path of a tar file with the root filesystem, which it makes if it is not in
// the user's cache.
func rootfs(ctx context.Context, log io.Writer) (string, error) {
	cache, err := os.UserCacheDir()
	if err != nil {
		return "", err
	}
	file := filepath.Join(cache, "unwind", fmt.Sprintf("debian-%.8x.tar", sha256.Sum256([]byte(script))))
	if _, err := os.Stat(file); err == nil {
		return file, nil
	}
	if _, err := exec.LookPath("mmdebstrap"); err != nil || os.Geteuid() != 0 {
		return "", errNoDebian
	}
	if err := os.MkdirAll(filepath.Dir(file), 0o700); err != nil {
		return "", err
	}
	folder, err := os.MkdirTemp(filepath.Dir(file), "debian-")
	if err != nil {
		return "", err
	}
	defer os.RemoveAll(folder)
	fmt.Fprintln(log, "making a Debian root filesystem with a C compiler (one or two minutes, once)")
	made := filepath.Join(folder, "root.tar")
	if said, err := exec.CommandContext(ctx, "sh", "-c", script, "rootfs.sh", made).CombinedOutput(); err != nil {
		return "", fmt.Errorf("mmdebstrap: %w\n%s", err, said)
	}
	return file, os.Rename(made, file)
}
