package main

import (
	"bytes"
	"context"
	"crypto/sha256"
	"debug/buildinfo"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strings"

	"github.com/spf13/cobra"
	"github.com/spf13/cobra/doc"

	"github.com/seed-62bf7108/unwind/starter/command"
)

// module is the path of what is built.
const module = "github.com/seed-62bf7108/unwind"

// buildRelease builds an archive for each platform and the checksums, and returns their names.
func buildRelease(ctx context.Context, out string, chosen []platform) ([]string, error) {
	root, err := checkout(ctx)
	if err != nil {
		return nil, err
	}
	if err := os.MkdirAll(out, 0o755); err != nil {
		return nil, err
	}
	var names []string
	var sums strings.Builder
	for _, p := range chosen {
		built, version, err := buildPrograms(ctx, root, p)
		if err != nil {
			return names, err
		}
		shared, err := sharedFiles(root, p)
		if err != nil {
			return names, err
		}
		base := fmt.Sprintf("unwind_%s_%s_%s", version, p.os, p.arch)
		content, err := archive(base, append(built, shared...))
		if err != nil {
			return names, err
		}
		name := base + ".tar.gz"
		if err := os.WriteFile(filepath.Join(out, name), content, 0o644); err != nil {
			return names, err
		}
		names = append(names, name)
		fmt.Fprintf(&sums, "%x  %s\n", sha256.Sum256(content), name)
	}
	const checksums = "SHA256SUMS"
	return append(names, checksums), os.WriteFile(filepath.Join(out, checksums), []byte(sums.String()), 0o644)
}

// checkout returns the folder of the module that this command was started in.
func checkout(ctx context.Context) (string, error) {
	dir, err := exec.CommandContext(ctx, "go", "list", "-m", "-f", "{{.Dir}}", module).Output()
	if err != nil {
		return "", fmt.Errorf("run it inside a checkout of Unwind: go list -m %s: %w", module, err)
	}
	return strings.TrimSpace(string(dir)), nil
}

// buildPrograms compiles the programs for a platform, and returns them with the version that Go has
// stamped.
func buildPrograms(ctx context.Context, root string, p platform) (built []file, version string, err error) {
	dir, err := os.MkdirTemp("", "unwind-release-")
	if err != nil {
		return nil, "", err
	}
	defer os.RemoveAll(dir)
	args := []string{"build", "-trimpath", "-buildvcs=auto", "-ldflags=-s -w", "-o", dir + string(filepath.Separator)}
	for _, name := range p.programs() {
		args = append(args, "./"+name)
	}
	build := exec.CommandContext(ctx, "go", args...)
	build.Dir = root
	build.Env = append(os.Environ(), "CGO_ENABLED=0", "GOOS="+p.os, "GOARCH="+p.arch)
	if said, err := build.CombinedOutput(); err != nil {
		return nil, "", fmt.Errorf("build for %s: %w\n%s", p, err, said)
	}
	for _, name := range p.programs() {
		path := filepath.Join(dir, name)
		content, err := os.ReadFile(path)
		if err != nil {
			return nil, "", err
		}
		built = append(built, file{name, 0o755, content})
		info, err := buildinfo.ReadFile(path)
		if err != nil {
			return nil, "", err
		}
		version = strings.Trim(info.Main.Version, "()")
	}
	return built, version, nil
}

// sharedFiles are the same for all architectures.
func sharedFiles(root string, p platform) ([]file, error) {
	var all []file
	for _, name := range []string{"README.md", "LICENSE"} {
		content, err := os.ReadFile(filepath.Join(root, name))
		if err != nil {
			return nil, err
		}
		all = append(all, file{name, 0o644, content})
	}
	starter := command.Tree(p.os)
	completions, err := completionFiles(starter)
	if err != nil {
		return nil, err
	}
	pages, err := manPages(starter)
	return append(append(all, completions...), pages...), err
}

func completionFiles(c *cobra.Command) ([]file, error) {
	var all []file
	for name, generate := range map[string]func(io.Writer) error{
		"starter.bash": func(w io.Writer) error { return c.GenBashCompletionV2(w, true) },
		"_starter":     c.GenZshCompletion,
		"starter.fish": func(w io.Writer) error { return c.GenFishCompletion(w, true) },
	} {
		var b bytes.Buffer
		if err := generate(&b); err != nil {
			return nil, fmt.Errorf("completion %s: %w", name, err)
		}
		all = append(all, file{"completions/" + name, 0o644, b.Bytes()})
	}
	return all, nil
}

// manPages are one page for each command.
func manPages(c *cobra.Command) ([]file, error) {
	var all []file
	c.DisableAutoGenTag = true
	var b bytes.Buffer
	if err := doc.GenMan(c, &doc.GenManHeader{Section: "1", Source: "Unwind", Manual: "Unwind", Date: &released},
		&b); err != nil {
		return nil, fmt.Errorf("man page of %s: %w", c.CommandPath(), err)
	}
	name := strings.ReplaceAll(c.CommandPath(), " ", "-")
	all = append(all, file{"man/man1/" + name + ".1", 0o644, b.Bytes()})
	for _, each := range c.Commands() {
		if !each.IsAvailableCommand() {
			continue
		}
		pages, err := manPages(each)
		if err != nil {
			return nil, err
		}
		all = append(all, pages...)
	}
	return all, nil
}
