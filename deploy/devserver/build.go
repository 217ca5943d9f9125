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
	wayOut       = "install the temporal CLI (https://docs.temporal.io/cli), run inside a checkout of Unwind with Go installed, or set TEMPORAL_ADDRESS to a running server"
)

// ensureBuilt is the path of our own server's binary. Whoever comes first builds it, all others wait for that one.
func ensureBuilt(ctx context.Context, log io.Writer) (string, error) {
	source, err := serverSource(ctx)
	if err != nil {
		return "", err
	}
	cache, err := os.UserCacheDir()
	if err != nil {
		return "", fmt.Errorf("no folder to keep the Temporal server in: %w", err)
	}
	return buildInto(ctx, filepath.Join(cache, "unwind"), source, log)
}

// serverSource is the folder of the server module: that of the checkout this code was compiled in, else of the one
// that the working folder depends on.
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
	return "", fmt.Errorf("no Temporal server: there is no temporal on PATH and no source of %s/%s to build one from; %s", rootModule, serverFolder, wayOut)
}

func isServerModule(folder string) bool {
	_, err := os.Stat(filepath.Join(folder, "go.mod"))
	return err == nil
}

// buildInto builds the module in source into folder, once for each content of it.
func buildInto(ctx context.Context, folder, source string, log io.Writer) (string, error) {
	key, err := sourceKey(ctx, source)
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
	fmt.Fprintf(log, "building the Temporal server, once: this takes 1 to 4 minutes, later starts take a second (kept in %s) ...\n", folder)
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

// goBuild has a binary appear whole or not at all.
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

// sourceKey is a digest of all that the binary is built from: the module's files (its dependencies stand in go.sum) and
// the Go version.
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

// removeUnused drops binaries of older sources, 150 MB each, that nobody has started for a week.
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

// markUsed keeps the binary from removeUnused. A cache folder that cannot be written to still serves.
func markUsed(binary string) { _ = os.Chtimes(binary, time.Time{}, time.Now()) }
