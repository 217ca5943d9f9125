// Package demoimage makes a small container image out of nothing but this module: a static shell
// with coreutils (see examples/shell), 4 MB, FROM scratch. Demo and tests use it, for many machines
// cannot pull an image.
package demoimage

import (
	"archive/tar"
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"time"

	"github.com/seed-62bf7108/unwind/activities/docker/engine"
)

// Shell is the import path of the program that the image consists of.
const Shell = "github.com/seed-62bf7108/unwind/examples/shell"

// programs are the names that the shell answers to.
var programs = []string{
	"base64", "cat", "chmod", "cp", "find", "gunzip", "gzcat", "gzip", "ls", "mkdir", "mktemp", "mv", "rm", "shasum",
	"sleep", "tar", "touch", "xargs",
}

// Build compiles the shell with the go command, imports the image under ref, and returns the
// image's id. The image's command is "sleep infinity". The go command must find this module: as the
// main module, or among its dependencies.
func Build(ctx context.Context, on engine.Importer, ref string) (id string, err error) {
	shell, err := compile(ctx)
	if err != nil {
		return "", err
	}
	root, err := rootfs(shell)
	if err != nil {
		return "", err
	}
	return engine.Import(ctx, on, root, ref, "Unwind's demo shell", "ENV PATH=/bin", "WORKDIR /",
		`CMD ["/bin/sleep", "infinity"]`)
}

func compile(ctx context.Context) ([]byte, error) {
	dir, err := os.MkdirTemp("", "unwind-shell-")
	if err != nil {
		return nil, err
	}
	defer os.RemoveAll(dir)
	out := filepath.Join(dir, "sh")
	build := exec.CommandContext(ctx, "go", "build", "-trimpath", "-buildvcs=false", "-ldflags=-s -w", "-o", out, Shell)
	build.Env = append(os.Environ(), "CGO_ENABLED=0", "GOOS=linux", "GOFLAGS=")
	if said, err := build.CombinedOutput(); err != nil {
		if errors.Is(err, exec.ErrNotFound) {
			return nil, errors.New("the demo image is compiled on the spot, and there is no go command on PATH: install Go")
		}
		return nil, fmt.Errorf("compiling %s: %w\n%s", Shell, err, said)
	}
	return os.ReadFile(out)
}

// rootfs is the whole file tree of the image as a tar stream.
func rootfs(shell []byte) (io.Reader, error) {
	var b bytes.Buffer
	w := tar.NewWriter(&b)
	made := time.Unix(0, 0)
	for _, dir := range []struct {
		name string
		mode int64
	}{{"bin", 0o755}, {"etc", 0o755}, {"root", 0o700}, {"run", 0o755}, {"srv", 0o755}, {"tmp", 0o1777}, {"var",
		0o755}, {"var/log", 0o755}} {
		if err := w.WriteHeader(&tar.Header{Typeflag: tar.TypeDir, Name: dir.name + "/", Mode: dir.mode,
			ModTime: made}); err != nil {
			return nil, err
		}
	}
	for _, file := range []struct {
		name    string
		mode    int64
		content []byte
	}{
		{"bin/sh", 0o755, shell},
		{"etc/passwd", 0o644, []byte("root:x:0:0:root:/root:/bin/sh\nnobody:x:65534:65534:nobody:/:/bin/sh\n")},
		{"etc/group", 0o644, []byte("root:x:0:\nnobody:x:65534:\n")},
	} {
		h := &tar.Header{Typeflag: tar.TypeReg, Name: file.name, Mode: file.mode, Size: int64(len(file.content)),
			ModTime: made}
		if err := w.WriteHeader(h); err != nil {
			return nil, err
		}
		if _, err := w.Write(file.content); err != nil {
			return nil, err
		}
	}
	for _, name := range programs {
		h := &tar.Header{Typeflag: tar.TypeSymlink, Name: "bin/" + name, Linkname: "sh", Mode: 0o777, ModTime: made}
		if err := w.WriteHeader(h); err != nil {
			return nil, err
		}
	}
	return &b, w.Close()
}
