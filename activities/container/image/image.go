package image

import (
	"archive/tar"
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"time"

	dockerimage "github.com/docker/docker/api/types/image"
)

// Shell is the import path of the program that the image consists of.
const Shell = "github.com/seed-62bf7108/unwind/examples/shell"

// Importer is the part of a Docker client that Build and Import need.
type Importer interface {
	ImageImport(ctx context.Context, source dockerimage.ImportSource, ref string, options dockerimage.ImportOptions) (io.ReadCloser, error)
}

// programs are the names that the shell answers to.
var programs = []string{
	"base64", "cat", "chmod", "cp", "find", "gunzip", "gzcat", "gzip", "ls", "mkdir", "mktemp", "mv", "rm", "shasum",
	"sleep", "tar", "touch", "xargs",
}

// Build compiles the shell with the go command, imports the image under ref, and returns the image's id. The image's
// command is "sleep infinity". The go command must find this module: as the main module, or among its dependencies.
func Build(ctx context.Context, engine Importer, ref string) (id string, err error) {
	shell, err := compile(ctx)
	if err != nil {
		return "", err
	}
	root, err := rootfs(shell)
	if err != nil {
		return "", err
	}
	return Import(ctx, engine, root, ref, "Unwind's demo shell", "ENV PATH=/bin", "WORKDIR /", `CMD ["/bin/sleep", "infinity"]`)
}

// Import makes an image of a tar stream, with changes as in a Dockerfile, and returns its id.
func Import(ctx context.Context, engine Importer, root io.Reader, ref, message string, changes ...string) (id string, err error) {
	answer, err := engine.ImageImport(ctx, dockerimage.ImportSource{Source: root, SourceName: "-"}, ref, dockerimage.ImportOptions{
		Message: message, Changes: changes,
	})
	if err != nil {
		return "", fmt.Errorf("importing image %s: %w", ref, err)
	}
	defer answer.Close()
	return importedID(answer, ref)
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
	}{{"bin", 0o755}, {"etc", 0o755}, {"root", 0o700}, {"run", 0o755}, {"srv", 0o755}, {"tmp", 0o1777}, {"var", 0o755}, {"var/log", 0o755}} {
		if err := w.WriteHeader(&tar.Header{Typeflag: tar.TypeDir, Name: dir.name + "/", Mode: dir.mode, ModTime: made}); err != nil {
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
		h := &tar.Header{Typeflag: tar.TypeReg, Name: file.name, Mode: file.mode, Size: int64(len(file.content)), ModTime: made}
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

// importedID reads the engine's progress messages; the last status is the new image's id.
func importedID(answer io.Reader, ref string) (id string, err error) {
	for d := json.NewDecoder(answer); ; {
		var message struct{ Status, Error string }
		if err := d.Decode(&message); errors.Is(err, io.EOF) {
			break
		} else if err != nil {
			return "", fmt.Errorf("importing image %s: %w", ref, err)
		}
		if message.Error != "" {
			return "", fmt.Errorf("importing image %s: %s", ref, message.Error)
		}
		if strings.HasPrefix(message.Status, "sha256:") {
			id = message.Status
		}
	}
	if id == "" {
		return "", fmt.Errorf("importing image %s: the engine named no image id", ref)
	}
	return id, nil
}
