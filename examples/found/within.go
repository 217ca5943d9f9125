package found

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"runtime"
	"strconv"

	"github.com/docker/docker/client"
	"golang.org/x/sys/unix"
)

// Within takes a snapshot of a running container from within: every path that a process entering it
// now would see, and the container's identity. Unlike the engine it sees what is mounted over the
// container's own root. It must be root on the engine's host. Of a container that is not running it
// returns only the identity.
func Within(ctx context.Context, name string) (Snapshot, error) {
	s, pid, err := is(ctx, name)
	if err != nil || pid == 0 {
		return s, err
	}
	err = inside(pid, func() error {
		return filepath.WalkDir("/", func(at string, d fs.DirEntry, err error) error {
			switch {
			case err != nil:
				return err
			case at != "/" && byEngine(at) && d.IsDir():
				return fs.SkipDir
			case byEngine(at):
				return nil
			}
			s[at], err = seen(at)
			return err
		})
	})
	if err != nil {
		return nil, fmt.Errorf("within container %s: %w", name, err)
	}
	return s, nil
}

// ReadWithin reads a file of a running container from within; a missing file is empty.
func ReadWithin(ctx context.Context, name, path string) (content string, err error) {
	_, pid, err := is(ctx, name)
	if err != nil || pid == 0 {
		return "", err
	}
	err = inside(pid, func() error {
		raw, err := os.ReadFile(path)
		content = string(raw)
		return err
	})
	if errors.Is(err, fs.ErrNotExist) {
		return "", nil
	}
	return content, err
}

// is returns the identity of a container, and its first process: 0 if it is not running.
func is(ctx context.Context, name string) (Snapshot, int, error) {
	engine, err := client.NewClientWithOpts(client.FromEnv, client.WithAPIVersionNegotiation())
	if err != nil {
		return nil, 0, err
	}
	defer engine.Close()
	c, err := engine.ContainerInspect(ctx, name)
	if err != nil {
		return nil, 0, fmt.Errorf("container %s: %w", name, err)
	}
	return Snapshot{itself: identity(c)}, c.State.Pid, nil
}

// seen returns the facts of a path. The time of a file is two facts, as in an export, because one
// of them may be a named loss.
func seen(at string) (Facts, error) {
	f, err := file(at)
	if err != nil || f["kind"] != "file" {
		return f, err
	}
	info, err := os.Lstat(at)
	if err != nil {
		return nil, err
	}
	f["time"] = info.ModTime().UTC().Format("2006-01-02T15:04:05Z")
	f["part of a second"] = fmt.Sprintf("%09d", info.ModTime().Nanosecond())
	return f, nil
}

// inside runs f on a thread that has entered the container's mounts.
func inside(pid int, f func() error) error {
	mounts, err := os.Open(filepath.Join("/proc", strconv.Itoa(pid), "ns", "mnt"))
	if err != nil {
		return err
	}
	defer mounts.Close()
	return onThread(func() error {
		if err := unix.Unshare(unix.CLONE_FS); err != nil {
			return err
		}
		if err := unix.Setns(int(mounts.Fd()), unix.CLONE_NEWNS); err != nil {
			return fmt.Errorf("entering its mounts: %w", err)
		}
		return f()
	})
}

// onThread runs f on a thread that ends with it.
func onThread(f func() error) error {
	done := make(chan error)
	go func() {
		runtime.LockOSThread() // never unlocked, so the thread ends
		if unix.Gettid() != unix.Getpid() {
			done <- f()
			return
		}
		done <- onThread(f) // the main thread would never end and so stay inside: use another one
		runtime.UnlockOSThread()
	}()
	return <-done
}
