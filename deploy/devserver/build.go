package devserver

import (
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strings"
	"time"
)

const (
	rootModule   = "github.com/seed-62bf7108/unwind"
	serverFolder = "deploy/server"
	binaryPrefix = "temporal-server-"
	unusedAfter  = 7 * 24 * time.Hour
	wayOut       = "install the temporal CLI (https://docs.temporal.io/cli), run inside a checkout of Unwind with Go " +
		"installed, or set TEMPORAL_ADDRESS to a running server"
)

// ensureBuilt returns the path of our own server's binary. The first process to call it builds the
// binary; all others wait. Without the source or the go command it returns one that was built
// earlier.
func ensureBuilt(ctx context.Context, log io.Writer) (string, error) {
	cache, err := os.UserCacheDir()
	if err != nil {
		return "", fmt.Errorf("no folder to keep the Temporal server in: %w", err)
	}
	folder := filepath.Join(cache, "unwind")
	source, err := serverSource(ctx)
	if err != nil {
		return builtEarlier(folder, log, err)
	}
	return buildInto(ctx, folder, source, log)
}

// builtEarlier returns the server that was used last, since none can be built, which is why.
func builtEarlier(folder string, log io.Writer, why error) (string, error) {
	var last string
	var used time.Time
	found, err := filepath.Glob(filepath.Join(folder, binaryPrefix+"*"))
	if err != nil {
		return "", err
	}
	for _, binary := range found {
		if info, err := os.Stat(binary); err == nil && info.Mode().IsRegular() && filepath.Ext(binary) == "" &&
			info.ModTime().After(used) {
			last, used = binary, info.ModTime()
		}
	}
	if last == "" {
		return "", why
	}
	fmt.Fprintf(log, "using the Temporal server %s, which was built earlier\n", last)
	markUsed(last)
	return last, nil
}

// serverSource returns the folder of the server module: in the checkout that this code was compiled
// in, otherwise in the version of Unwind that the working folder depends on.
func serverSource(ctx context.Context) (string, error) {
	if _, file, _, ok := runtime.Caller(0); ok && filepath.IsAbs(file) {
		folder := filepath.Join(filepath.Dir(filepath.Dir(file)), filepath.Base(serverFolder))
		if isServerModule(folder) {
			return folder, nil
		}
	}
	out, err := exec.CommandContext(ctx, "go", "list", "-m", "-f", "{{.Dir}}", rootModule).Output()
	if err == nil {
		folder := filepath.Join(strings.TrimSpace(string(out)), serverFolder)
		if isServerModule(folder) {
			return folder, nil
		}
	}
	return "", fmt.Errorf("no Temporal server: there is no temporal on PATH and no source of %s/%s to build one from; %s",
		rootModule, serverFolder, wayOut)
}

func isServerModule(folder string) bool {
	_, err := os.Stat(filepath.Join(folder, "go.mod"))
	return err == nil
}

// buildInto builds the module in source into folder, once for each content of source.
func buildInto(ctx context.Context, folder, source string, log io.Writer) (string, error) {
	key, err := sourceKey(ctx, source)
	if errors.Is(err, exec.ErrNotFound) {
		return builtEarlier(folder, log, err)
	}
	if err != nil {
		return "", err
	}
	binary := filepath.Join(folder, binaryPrefix+key)
	if isFile(binary) {
		markUsed(binary)
		return binary, nil
	}
	if err := os.MkdirAll(folder, 0o755); err != nil {
		return "", err
	}
	unlock, err := lockFile(ctx, filepath.Join(folder, "build.lock"), func() {
		fmt.Fprintln(log, "waiting for another process that is building the Temporal server ...")
	})
	if err != nil {
		return "", err
	}
	defer unlock()
	if isFile(binary) {
		return binary, nil
	}
	fmt.Fprintf(log,
		"building the Temporal server, once: this takes 1 to 4 minutes, later starts take a second (kept in %s) ...\n",
		folder)
	began := time.Now()
	if err := goBuild(ctx, source, binary); err != nil {
		return "", err
	}
	fmt.Fprintf(log, "built the Temporal server in %s\n", time.Since(began).Round(time.Second))
	return binary, removeUnused(folder)
}

func isFile(path string) bool {
	info, err := os.Stat(path)
	return err == nil && info.Mode().IsRegular()
}

// goBuild builds a binary, which appears complete or not at all.
func goBuild(ctx context.Context, source, binary string) error {
	draft := binary + ".draft"
	cmd := exec.CommandContext(ctx, "go", "build", "-ldflags=-s -w", "-o", draft, ".")
	cmd.Dir = source
	cmd.Env = append(os.Environ(), "GOWORK=off")
	var out bytes.Buffer
	cmd.Stdout, cmd.Stderr = &out, &out
	if err := cmd.Run(); err != nil {
		if ctx.Err() != nil {
			return fmt.Errorf("build the Temporal server: %w", context.Cause(ctx))
		}
		return fmt.Errorf("build the Temporal server in %s: %w\n%s\n%s", source, err, strings.TrimSpace(out.String()), wayOut)
	}
	return os.Rename(draft, binary)
}

// sourceKey returns a digest of everything that the binary is built from: the module's files, which
// include go.sum, and the Go version.
func sourceKey(ctx context.Context, source string) (string, error) {
	cmd := exec.CommandContext(ctx, "go", "env", "GOVERSION", "GOOS", "GOARCH")
	cmd.Dir = source
	toolchain, err := cmd.Output()
	if err != nil {
		return "", fmt.Errorf("no Temporal server: it has to be built, but the go command fails (%w); %s", err, wayOut)
	}
	h := sha256.New()
	h.Write(toolchain)
	files, err := filepath.Glob(filepath.Join(source, "*"))
	if err != nil {
		return "", err
	}
	for _, file := range files {
		if !isSource(file) {
			continue
		}
		content, err := os.ReadFile(file)
		if err != nil {
			return "", err
		}
		fmt.Fprintf(h, "%s %d\n%s", filepath.Base(file), len(content), content)
	}
	return hex.EncodeToString(h.Sum(nil)[:8]), nil
}

func isSource(file string) bool {
	name := filepath.Base(file)
	return name == "go.mod" || name == "go.sum" || filepath.Ext(name) == ".go" && !strings.HasSuffix(name, "_test.go")
}

// removeUnused removes binaries of older sources, 150 MB each, that nobody has started for a week.
func removeUnused(folder string) error {
	old, err := filepath.Glob(filepath.Join(folder, binaryPrefix+"*"))
	if err != nil {
		return err
	}
	for _, path := range old {
		info, err := os.Stat(path)
		if err == nil && time.Since(info.ModTime()) > unusedAfter {
			err = os.Remove(path)
		}
		if err != nil && !errors.Is(err, fs.ErrNotExist) {
			return err
		}
	}
	return nil
}

// markUsed protects the binary from removeUnused. A read-only cache folder is good enough
// otherwise.
func markUsed(binary string) { _ = os.Chtimes(binary, time.Time{}, time.Now()) }
